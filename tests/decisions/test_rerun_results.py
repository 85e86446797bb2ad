"""Results of Megatron's rerun state machine: the last one of the rank that exited."""

import pytest

from holdfast.decisions.rerun_results import rerun_text, result_file

LINE = (
    "ts=2026-01-01T00:00:00.1 node=gpu-1 device=3 jobID=7 rank={rank} iteration={step} "
    "status={status} result=nan message='loss is {what}'\n"
)


def line(rank: int, step: int, status: str, what: str = "nan") -> str:
    return LINE.format(rank=rank, step=step, status=status, what=what)


def test_the_last_result_of_the_rank_is_read() -> None:
    text = (
        line(1, 5, "initial_run")
        + line(11, 7, "first_rerun_reproducible")
        + line(11, 9, "second_rerun_not_reproducible", "rank=1 status=initial_run")
        + line(1, 9, "unknown_status")
        + "half a line"
    )

    assert rerun_text(text, 11) == (
        "iteration 9 on device 3 of gpu-1: the rerun on another accelerator had a different "
        "result: the first accelerator is faulty (loss is rank=1 status=initial_run)"
    )
    assert rerun_text(text, 1).startswith("iteration 5 on device 3 of gpu-1: a result was rejected")
    assert rerun_text(text, 2) == ""


@pytest.mark.parametrize(
    ("command", "file"),
    [
        (("python", "train.py", "--result-rejected-tracker-filename", "/r"), "/r"),
        (("train.py", "--result-rejected-tracker-filename=/r x"), "/r x"),
        (("train.py", "--result-rejected-tracker-filename"), ""),
        (("train.py",), ""),
    ],
)
def test_the_file_is_taken_from_the_command_line(command: tuple[str, ...], file: str) -> None:
    assert result_file(command) == file
