"""The coordinator of a job while the clock of its node is set."""

from datetime import UTC, datetime, timedelta, tzinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.apps.launch import coordinator as coordinators
from holdfast.decisions.launch_events import Joined, LossReported, Member, Stopped
from holdfast.decisions.launch_state import RoundSettings
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
