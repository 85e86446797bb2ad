"""The coordinator of a job while the clock of its node is set, and after it was stopped."""

import time
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.apps.launch import coordinator as coordinators
from holdfast.decisions.launch_events import Joined, LossReported, Member, Stopped
from holdfast.decisions.launch_state import Phase, RoundSettings
from holdfast.model.jobs import LossAction, LossFault
from holdfast.model.names import Reason

FAULT = LossFault(
    reason=Reason.LOSS_NOT_FINITE, step=30, evidence="nan", action=LossAction.ROLLBACK
)


@given(st.sampled_from([0, 1, -1, 3600, -3600, 86400 * 365]) | st.integers(-(10**8), 10**8))
def test_a_bad_loss_has_the_time_of_the_files_that_ranks_save(seconds: int) -> None:
    """Without a step in its name, a checkpoint is good if it was saved before the loss."""

    class SetClock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(seconds=seconds)

    coordinator = coordinators.Coordinator(RoundSettings(can_join=False))
    coordinator.handle(Joined(member=Member(name="a", address="", port=1, slots=2)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordinators, "datetime", SetClock)
        coordinator.handle(LossReported(launcher="a", round=1, ranks=(0,), fault=FAULT))
        coordinator.handle(Stopped(launcher="a", round=1, port=2))
        expected = SetClock.now(UTC)

    loss = coordinator.job.history.loss
    assert coordinator.job.round == 2
    assert loss is not None
    assert abs(loss.at - expected) < timedelta(seconds=60)


@pytest.mark.parametrize("is_verified", [True, False])
def test_a_verification_that_ends_while_the_launcher_is_stopped_counts(
    tmp_path: Path, is_verified: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGSTOP to a launcher, as by ``scontrol suspend``, for longer than the timeout."""
    if not is_verified:
        (tmp_path / "sitecustomize.py").write_text("import time; time.sleep(600)")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    timeout = timedelta(seconds=1)
    settings = RoundSettings(can_join=False, verifies_checkpoints=True, verify_timeout=timeout)
    coordinator = coordinators.Coordinator(settings, checkpoints=str(tmp_path / "ckpt"))
    coordinator.handle(Joined(member=Member(name="a", address="", port=1, slots=2)))
    coordinator.handle(LossReported(launcher="a", round=1, ranks=(0,), fault=FAULT))
    coordinator.handle(Stopped(launcher="a", round=1, port=2))
    (pid,) = coordinator.pids
    end = time.monotonic() + (60 if is_verified else 2)
    while time.monotonic() < end and not _has_ended(pid):
        time.sleep(0.05)
    time.sleep(timeout.total_seconds())
    coordinator.handle(None)

    assert coordinator.job.phase is (Phase.RUN if is_verified else Phase.END)
    assert (coordinator.job.round, coordinator.pids) == (1 + is_verified, set())


def _has_ended(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    return state == "Z"
