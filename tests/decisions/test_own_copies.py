"""Which copies are those of a job."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.decisions.checkpoint_choice import ResumeOutcome
from holdfast.decisions.checkpoint_restore import own_copies_since
from holdfast.model.checkpoints import CheckpointHistory, ResumedAttempt

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LOST = (ResumeOutcome.EMPTY, ResumeOutcome.MISSING, ResumeOutcome.START_OVER)


def begun(job: str, minute: int) -> ResumedAttempt:
    return ResumedAttempt(job=job, attempt=1, at=NOW + timedelta(minutes=minute))


HISTORY = CheckpointHistory(attempts=(begun("a", 0), begun("j", 1), begun("j", 2), begun("", 3)))


@pytest.mark.parametrize("outcome", LOST)
@pytest.mark.parametrize(
    ("job", "started", "since"),
    [
        ("j", None, 1),
        ("j", 5, 1),
        ("j", 0, 0),
        ("a", None, 0),
        ("b", None, None),
        ("b", 4, 4),
        ("", None, None),
    ],
)
def test_copies_are_those_of_the_job_since_its_first_attempt(outcome, job, started, since) -> None:
    started_at = None if started is None else NOW + timedelta(minutes=started)

    found = own_copies_since(outcome, HISTORY, job, started_at)

    assert found == (None if since is None else NOW + timedelta(minutes=since))


@pytest.mark.parametrize("outcome", [one for one in ResumeOutcome if one not in LOST])
def test_a_job_with_checkpoints_needs_none(outcome) -> None:
    assert own_copies_since(outcome, HISTORY, "j", NOW) is None
