"""Steps and losses in the logs of training frameworks."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.step_line_rows import ROWS
from holdfast.decisions.step_lines import LogProgress, after_line, has_bad_loss
from holdfast.model.jobs import StepReport

RECORDED = [
    json.loads(line)
    for line in Path("tests/recordings/step-lines/reported.jsonl").read_text("utf-8").splitlines()
]
GUIDE = Path("docs/howto/watch-a-run.md")

MEGATRON = (
    " [2026-08-01 10:00:00] iteration      120/  500000 | consumed samples:        30720 | elapsed "
    "time per iteration (ms): 1234.5 | learning rate: 1.500000E-04 | global batch size:   256 | "
    "{loss}loss scale: 1.0 | grad norm: 1.204 | number of skipped iterations:   0 | "
    "number of nan iterations:   {nans} |"
)


def reports(*lines: str) -> list[StepReport]:
    progress, found = LogProgress(), []
    for line in lines:
        progress, report = after_line(progress, line)
        if report is not None:
            found.append(report)
    return found


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda one: one["source"])
def test_the_recorded_lines_of_each_framework_are_its_steps_and_losses(recorded) -> None:
    found = reports(*recorded["lines"])

    assert [one.step for one in found] == [step for step, _ in recorded["reports"]]
    expected = [None if loss is None else float(loss) for _, loss in recorded["reports"]]
    assert [one.loss for one in found] == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.example[:40])
def test_the_example_of_each_row_is_found_by_that_row(row) -> None:
    (report,) = reports(row.example)

    assert next(one for one in ROWS if one.step.search(row.example)) is row
    assert (report.loss is None) == (row.loss is None)


@pytest.mark.parametrize("value", ["nan", "inf", "NaN"])
@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.loss is not None], ids=lambda row: row.example[:40]
)
def test_a_loss_that_is_not_finite_is_no_progress_in_any_form(row, value) -> None:
    start, end = row.loss.search(row.example).span(1)
    line = row.example[:start] + value + row.example[end:]

    (report,) = reports(line)
    assert not math.isfinite(report.loss)
    assert has_bad_loss(line)
    assert not has_bad_loss(row.example)


def test_no_recorded_line_with_a_finite_loss_is_bad() -> None:
    for recorded in RECORDED:
        if all(loss != "nan" for _, loss in recorded["reports"]):
            bad = [line for line in recorded["lines"] if has_bad_loss(line)]
            assert all("nan" in line for line in bad)


def test_each_framework_of_the_rows_is_in_the_guide_and_recorded() -> None:
    guide = " ".join(GUIDE.read_text("utf-8").split())
    recorded = {one["framework"] for one in RECORDED}

    names = {name for row in ROWS for name in row.framework.split(" and ")}
    assert all(name in guide for name in {*names, "Hugging Face's Trainer"})
    assert names - {"DeepSpeed", "torchtitan"} <= recorded


def test_a_bar_that_rounds_the_global_step_counts_batches() -> None:
    bar = (
        "Epoch 0:  50%|█████     | {n}/200001 [01:00<01:00, 9.9it/s, v_num=0, "
        "reduced_train_loss=3.09, global_step={step}, consumed_samples=1.63e+6]"
    )

    found = reports(bar.format(n=100000, step="99999.0"), bar.format(n=123002, step="1.23e+5"))

    assert [one.step for one in found] == [99999, 123002]


@pytest.mark.parametrize(
    "prefix", ["[rank0]:", "[default0]:", "[worker-1]: ", "0: ", "12:  "], ids=repr
)
def test_the_prefix_of_a_launcher_hides_no_bar(prefix) -> None:
    (report,) = reports(prefix + "Epoch 0:  33%|███▎      | 2/6 [00:00<00:00, train_loss=0.5]")

    assert (report.step, report.loss) == (2, 0.5)


def test_the_loss_of_a_validation_is_not_that_of_the_training() -> None:
    (report,) = reports("Epoch 0:  33%|███▎      | 2/6 [00:00<00:00, 41it/s, val_loss=9.5]")

    assert report.loss is None


@pytest.mark.parametrize(
    ("line", "step", "loss"),
    [
        (MEGATRON.format(loss="lm loss: 6.123456E+00 | ", nans=0), 120, 6.123456),
        (MEGATRON.format(loss="", nans=1), 120, math.nan),
        (
            "Training epoch 0, iteration 9/99 | lr: 1.499e-05 | global_batch_size: 8 | "
            "global_step: 9 | reduced_train_loss: 10.91 | train_step_timing in s: 0.51",
            9,
            10.91,
        ),
        (
            "Epoch 0: :   5%|▌         | 50/1000 [00:58<18:24, v_num=0, reduced_train_loss=nan, "
            "global_step=49.00, consumed_samples=400.0]",
            49,
            math.nan,
        ),
        (
            "[titan] 2026-08-01 10:00:00 - root - INFO - \x1b[31mstep: 10  \x1b[32mloss:  7.8912"
            "  \x1b[33mgrad_norm:  1.2000  \x1b[34mmemory:  0.98GiB(1.03%)",
            10,
            7.8912,
        ),
        (
            "[2026-08-01 10:00:00] [INFO] [logging.py:128:log_dist] [Rank 0] step=40, skipped=2, "
            "lr=[0.001], mom=[(0.9, 0.999)]",
            40,
            None,
        ),
        ("step: 21  loss:      nan  grad_norm:  1.2000", 21, math.nan),
        ("steps: 10 loss: inf iter time (s): 0.120 samples/sec: 66.6", 10, math.inf),
        (
            "Epoch 2:  10%|█         | 10/100 [00:01<00:10,  9.90it/s, v_num=0, train_loss=0.250]",
            210,
            0.25,
        ),
    ],
)
def test_each_framework_is_recognized_by_its_lines(line, step, loss) -> None:
    (report,) = reports(line)

    assert report.step == step
    assert report.loss == pytest.approx(loss, nan_ok=True)


def test_the_bar_of_the_trainer_counts_once_its_losses_are_known() -> None:
    found = reports(
        "Map: 100%|██████████| 1000/1000 [00:00<00:00, 9000.00 examples/s]",
        "  1%|          | 1/200 [00:01<03:00,  1.1it/s]",
        "  5%|▌         | 10/200 [00:10<03:00,  1.1it/s]",
        "{'loss': '2.5', 'grad_norm': '1.2', 'learning_rate': '4.7e-05', 'epoch': '0.5'}",
        "  6%|▌         | 12/200 [00:12<03:00,  1.1it/s]",
        "100%|██████████| 50/50 [00:05<00:00, 10.1it/s]",  # an evaluation
        "{'eval_loss': 2.4, 'eval_runtime': 5.0, 'epoch': 0.5}",
        " 10%|█         | 20/200 [00:20<03:00,  1.1it/s]",
        "{'loss': nan, 'grad_norm': nan, 'learning_rate': 4.5e-05, 'epoch': 1.0}",
    )

    assert [(one.step, str(one.loss)) for one in found] == [
        (10, "2.5"), (12, "None"), (20, "None"), (20, "nan"),
    ]  # fmt: skip


def test_a_step_that_all_ranks_print_is_one_report() -> None:
    line = "steps: 10 loss: 0.5000 iter time (s): 0.120 samples/sec: 66.6"

    assert len(reports(line, line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "step 12 done",
        "Downloading shards:  50%|█████     | 1/2 [00:10<00:10]",
        "Sanity Checking DataLoader 0:  50%|█████     | 1/2 [00:00<00:00]",
        "iteration 5 failed",
        "validation loss at iteration 100 | lm loss value: 5.0E+00 | lm loss PPL: 1.5E+02 |",
        "{'loss': 2.5, 'epoch': 0.5}",  # without a bar, its step is unknown
        "",
    ],
)
def test_other_lines_are_no_steps(line) -> None:
    assert reports(line) == []


@pytest.mark.parametrize(
    ("line", "is_bad"),
    [
        ("loss: nan", True),
        ("step 5 loss=NaN", True),
        ("train_loss: -inf,", True),
        ("{'loss': nan, 'epoch': 1}", True),
        ("| lm loss: NAN |", True),
        (MEGATRON.format(loss="", nans=1), True),
        (MEGATRON.format(loss="", nans=0), False),
        ("Train loss/train/total: nan", True),
        ("train_loss=nan.0, v_num=0]", True),
        ("{'loss': '0', 'grad_norm': 'nan', 'learning_rate': '1e-05', 'epoch': '1.5'}", True),
        ("{'loss': 0.5, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 1.5}", False),
        ("{'loss': 0.0, 'grad_norm': 0.0, 'learning_rate': 1e-05, 'epoch': 1.5}", False),
        ("loss: 0.5 nanoseconds: 3", False),
        ("loss: infinite patience", False),
        ("loss: 0.1", False),
    ],
)
def test_a_line_with_a_bad_loss_shows_no_progress(line, is_bad) -> None:
    assert has_bad_loss(line) is is_bad


@given(st.lists(st.text(max_size=200), max_size=20))
def test_no_line_raises_and_steps_never_fall(lines) -> None:
    steps = [one.step for one in reports(*lines)]

    assert steps == sorted(steps)
