"""A single save that was cut off: the first one of a job, or one of a job that keeps only one."""

from datetime import UTC, datetime

import pytest

from holdfast.decisions.checkpoint_choice import ResumeOutcome, choose
from holdfast.decisions.checkpoint_trust import Trust
from holdfast.model.checkpoints import (
    Checkpoint,
    CheckpointHistory,
    CheckpointState,
    Depth,
    ResumedAttempt,
    Survey,
)
from holdfast.model.set_aside import SetAside

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CUT_OFF = Checkpoint(
    name="step_50000", step=50_000, is_ended=False, changed_at=NOW,
    state=CheckpointState.INCOMPLETE, depth=Depth.SIZES,
)  # fmt: skip


def attempt(checkpoint: str) -> ResumedAttempt:
    return ResumedAttempt(job="a", attempt=1, at=NOW, checkpoint=checkpoint, newest_at=NOW)


def aside(resumed: str) -> SetAside:
    return SetAside(name="step_1", path="/c.set-aside/step_1", why="", at=NOW, resumed=resumed)


@pytest.mark.parametrize(
    ("history", "is_first"),
    [
        (CheckpointHistory(), True),
        (CheckpointHistory(attempts=(attempt(""),), aside=(aside(""),)), True),
        (CheckpointHistory(attempts=(attempt("step_40000"), attempt(""))), False),
        (CheckpointHistory(aside=(aside("step_40000"), aside(""))), False),
    ],
    ids=["new", "the first save was cut off twice", "resumed before", "rolled back before"],
)
def test_only_a_job_that_never_resumed_starts_over(history, is_first: bool) -> None:
    survey = Survey(folder="/c", format="dcp", checkpoints=(CUT_OFF,))

    choice = choose(survey, Depth.SIZES, None, Trust(history=history))

    expected = ResumeOutcome.START_OVER if is_first else ResumeOutcome.NONE_COMPLETE
    assert choice.outcome is expected
    assert choice.aside == ((CUT_OFF,) if is_first else ())
