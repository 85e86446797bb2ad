"""Saves that a training script reported as done although they are incomplete. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from holdfast.kit.units import one_line
from holdfast.model.checkpoints import Checkpoint, CheckpointState, Survey

SETTLED: Final = timedelta(minutes=1)
"""Time without a change after which a reported save counts as ended. A rank that saves changes one
of its files more often, and a report may come before an asynchronous save has ended."""

_NAME: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class IncompleteSave:
    """A save that was reported as done."""

    name: str
    reported_at: datetime
    problem: str

    @property
    def text(self) -> str:
        """Message for people."""
        name, at = one_line(self.name, _NAME), f"{self.reported_at:%Y-%m-%d %H:%M:%S}Z"
        return (
            f"{name} was reported as saved at {at}, but"
            f" {self.problem}; look for errors of that save in the logs of all ranks"
        )


def incomplete_saves(survey: Survey, now: datetime) -> Iterator[IncompleteSave]:
    """Yield the reported saves that are incomplete, or of which nothing exists.

    Args:
        survey: state of a directory; checkpoints that are not verified do not count.
        now: the present time.

    """
    lost = survey.lost
    if lost is not None and now - lost.at >= SETTLED:
        problem = f"does not exist (step {lost.step})"
        yield IncompleteSave(name=lost.name, reported_at=lost.at, problem=problem)
    for one in survey.checkpoints:
        if (found := incomplete_save(one, now)) is not None:
            yield found


def incomplete_save(one: Checkpoint, now: datetime) -> IncompleteSave | None:
    """Return a verified checkpoint as an incomplete save; None if it is none, or may be written."""
    if one.reported_at is None or one.state is not CheckpointState.INCOMPLETE:
        return None
    if now - max(one.reported_at, one.changed_at) < SETTLED:
        return None
    problem = f"is incomplete: {one.problems[0]}" if one.problems else "is incomplete"
    return IncompleteSave(name=one.name, reported_at=one.reported_at, problem=problem)
