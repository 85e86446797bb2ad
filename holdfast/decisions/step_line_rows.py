"""Lines in which training frameworks log a step and its loss: one row for each form.

Rows are tried in order, and the first match counts.
"""

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLine:
    """Form of a line that reports a step."""

    framework: str
    step: re.Pattern[str]
    """Has the group ``step``, or ``epoch``, ``batch`` and ``batches`` of a bar for each epoch."""

    loss: re.Pattern[str] | None = None
    """Its first group is the loss. It is searched for separately: not every line has one."""

    nan: re.Pattern[str] | None = None
    """Shows that the loss was NaN in a line that leaves it out."""

    example: str
    source: str


NUMBER: Final = r"[-+]?(?:\d{1,20}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,3})?|nan|inf|NaN|NAN|INF)"
"""Number that ``float`` reads."""

PREFIX: Final = r"^(?:\[[\w.-]{1,40}\]: ?|\d{1,5}: {0,2})?"
"""Start of a line, with the rank that ``torchrun --tee`` or ``srun --label`` writes."""

# A bar of Lightning pads numbers to 5 characters, NaN to "nan.0", and also has losses of
# validations.
_BAR_LOSS: Final = re.compile(
    rf"\b(?!val|eval|test)(?:\w{{1,40}}/)?\w{{0,40}}loss[\w/]{{0,20}}(?:: |=)({NUMBER})"
    r"(?=(?:\.0?)?(?:[,\]| ]|$))"
)
_BAR: Final = r"\d{1,3}%\|[^|]{0,200}\| "


def _row(
    framework: str, step: str, example: str, source: str, loss: str = "", nan: str = ""
) -> StepLine:
    return StepLine(
        framework=framework,
        step=re.compile(step),
        loss=re.compile(loss.replace("NUMBER", NUMBER)) if loss else None,
        nan=re.compile(nan) if nan else None,
        example=example,
        source=source,
    )


ROWS: Final = (
    _row(
        "holdfast.training",
        r"(?:^|[ \]:])holdfast: step (?P<step>\d{1,18})(?: loss |$)",
        "holdfast: step 12 loss 2.5",
        "holdfast.training, with HOLDFAST_PROGRESS_FILE=-",
        loss=r" loss (NUMBER)$",
    ),
    # Before Megatron-LM, whose form NeMo's line has, too, with batches of an epoch. Its bar rounds
    # steps from 100000 on to "1.23e+5"; then the row of Lightning counts them.
    _row(
        "NeMo",
        r"\bglobal_step(?:: |=)(?P<step>\d{1,18})(?:\.0{1,2})?(?![\d.e])",
        "Training epoch 0, iteration 9/99 | lr: 1.499e-05 | global_batch_size: 8 | global_step: 9 "
        "| reduced_train_loss: 10.91 | train_step_timing in s: 0.51",
        "NeMo 2, lightning/pytorch/callbacks/progress_printer.py",
        loss=_BAR_LOSS.pattern,
    ),
    # Megatron leaves out the mean of a loss that was NaN.
    _row(
        "Megatron-LM and Megatron-Bridge",
        r"\biteration {1,20}(?P<step>\d{1,18})/ {0,20}\d{1,18} \|",
        " [2025-10-02 22:52:07] iteration       10/      50 | consumed samples:         5120 | "
        "elapsed time per iteration (ms): 13212.7 | learning rate: 3.000000E-04 | global batch "
        "size:   512 | lm loss: 4.474437E+00 | loss scale: 1.0 | grad norm: 0.704 | number of "
        "skipped iterations:   0 | number of nan iterations:   0 |",
        "Megatron-LM, training/training.py; Megatron-Bridge, training/utils/train_utils.py",
        loss=r"\| (?:\w{1,40} )?loss:? {1,9}(NUMBER) \|",
        nan=r"\| number of nan iterations: {1,20}[1-9]\d{0,17} \|",
    ),
    _row(
        "torchtitan",
        r"\bstep: {1,3}(?P<step>\d{1,18}) {2,4}loss: {1,9}",
        "step: 10  loss:  7.8912  grad_norm:  1.2000  memory:  0.98GiB(1.03%)",
        "torchtitan, observability/metrics.py",
        loss=r" loss: {1,9}(NUMBER) ",
    ),
    _row(
        "DeepSpeed",
        r"\bsteps: (?P<step>\d{1,18}) loss: ",
        "steps: 10 loss: 0.5000 iter time (s): 0.120 samples/sec: 66.6",
        "DeepSpeed, runtime/pipe/engine.py",
        loss=r" loss: (NUMBER) iter time",
    ),
    _row(
        "DeepSpeed",
        r"\bstep=(?P<step>\d{1,18}), skipped=\d",
        "[Rank 0] step=40, skipped=2, lr=[0.001], mom=[(0.9, 0.999)]",
        "DeepSpeed, runtime/engine.py",
    ),
    _row(
        "Lightning and Composer",
        PREFIX
        + r"(?:train {1,20})?Epoch {1,4}(?P<epoch>\d{1,9})(?:/\d{1,9})?: {1,5}"
        + _BAR
        + r"(?P<batch>\d{1,9})/(?P<batches>\d{1,9}) \[",
        "Epoch 0:  33%|███▎      | 2/6 [00:00<00:00, 41.11it/s, train_loss=0.0711]",
        "Lightning, callbacks/progress/tqdm_progress.py; Composer, loggers/progress_bar_logger.py",
        loss=_BAR_LOSS.pattern,
    ),
    _row(
        "Composer",
        PREFIX + "train {1,40}" + _BAR + r"(?P<step>\d{1,18})/\d{1,18} \[[^\]]{0,40}(?:ba/s|s/ba)",
        "train                           12%|███                      | 12/100 "
        "[00:34<04:11,  2.86s/ba, loss/train/total=2.5828]",
        "Composer, loggers/progress_bar_logger.py",
        loss=_BAR_LOSS.pattern,
    ),
    _row(
        "MaxText",
        r"\bcompleted step: (?P<step>\d{1,18}), seconds: ",
        "completed step: 9, seconds: 5.667, TFLOP/s/device: 134.924, Tokens/s/device: 8672.758, "
        "total_weights: 196608, loss: 10.374",
        "MaxText, docs/guides/monitoring_and_debugging/understand_logs_and_metrics.md",
        loss=r", {1,3}loss: {1,3}(NUMBER)(?=,|\s|$)",
    ),
    _row(
        "NeMo AutoModel",
        r"\bstep (?P<step>\d{1,18}) \| epoch \d{1,9} \| loss ",
        "2026-08-10 15:55:20 | INFO | root | step 9 | epoch 0 | loss 0.6974 | grad_norm 1.5436 | "
        "lr 1.00e-05 | mem 24.90 GiB | tps 11278.56(1409.82/gpu) | num_label_tokens 21541",
        "NeMo AutoModel, pull request 3473",
        loss=r"\| loss (NUMBER) \|",
    ),
)
