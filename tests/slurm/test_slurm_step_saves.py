"""A supervised step that reports no steps: its checkpoints show whether it trains."""

import time
from pathlib import Path

from holdfast.adapters.slurm.jobs.step_hangs import StepHangs

ZIP = b"PK\x03\x04"
"""First bytes of a file of ``torch.save``."""

SAVES = 12
DEADLINE_S = 60


def test_a_step_that_saves_no_more_checkpoints_is_reported_once_and_never_stopped(
    tmp_path: Path,
) -> None:
    variables = {"HOLDFAST_STALL_FLOOR": "100ms", "HOLDFAST_HANG_TIMEOUT": "auto"}
    hangs = StepHangs(variables, checkpoints=lambda: tmp_path)
    hangs.begin()
    deadline = time.monotonic() + DEADLINE_S
    saves, next_at, notices = 0, time.monotonic(), list[str]()
    while not notices and time.monotonic() < deadline:
        if saves < SAVES and time.monotonic() > next_at:
            saves, next_at = saves + 1, time.monotonic() + 0.3
            (tmp_path / f"step_{saves}.pt").write_bytes(ZIP + bytes(1000))
        assert not hangs.look(None)
        notices += [text for text in [hangs.notice()] if text]
        time.sleep(0.02)
    hangs.end()

    (notice,) = notices
    assert notice.startswith("the step seems to hang: no new checkpoint for ")
    assert notice.endswith("; without steps that show a hang, a job is not restarted")
    assert hangs.notice() == ""
    report = hangs.report(0)
    assert report is not None
    assert report.step is None
