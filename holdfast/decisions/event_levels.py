"""Level of each event, the same in notices, in the console and in the API. Pure."""

from typing import Final

from holdfast.decisions.planned_work import level_of
from holdfast.model.events import (
    AttemptKilled,
    AttemptStopped,
    BreakerTripped,
    CallFailed,
    CheckpointChosen,
    Event,
    FaultUncorroborated,
    InputRejected,
    JobFinished,
    JobHangSuspected,
    JobInputRejected,
    JobLossFault,
    JobStragglerFound,
    JobUnwatched,
    NodeAgentSilent,
    NodeCheckFailed,
    NodeCheckSkipped,
    NodeDrillActive,
    NodeQuarantined,
    NodeReassigned,
    NodeSuspected,
    NodesWithoutGroup,
    NodeVanished,
    RepairDeferred,
    RepairOverdue,
    RepairPostponed,
    StragglerSuspected,
    TimesCorrected,
)
from holdfast.model.jobs import FailureKind, JobPhase
from holdfast.model.sagemaker import EventLevel

_ERRORS: Final = (
    BreakerTripped,
    NodeCheckFailed,
    NodeVanished,
    RepairOverdue,
)
_WARNINGS: Final = (
    AttemptKilled,
    AttemptStopped,
    CallFailed,
    CheckpointChosen,
    FaultUncorroborated,
    InputRejected,
    JobHangSuspected,
    JobInputRejected,
    JobLossFault,
    JobStragglerFound,
    JobUnwatched,
    NodeAgentSilent,
    NodeCheckSkipped,
    NodeDrillActive,
    NodeSuspected,
    NodesWithoutGroup,
    RepairDeferred,
    RepairPostponed,
    StragglerSuspected,
    TimesCorrected,
)


def event_level(event: Event) -> EventLevel:
    """Return the level of an event; planned work is never more than ``INFO``."""
    if isinstance(event, NodeQuarantined | NodeReassigned):
        return level_of(event.reason)
    if isinstance(event, AttemptStopped) and event.kind == FailureKind.REQUESTED:
        return EventLevel.INFO
    has_failed = isinstance(event, JobFinished) and event.outcome == JobPhase.FAILED
    if has_failed or isinstance(event, _ERRORS):
        return EventLevel.ERROR
    return EventLevel.WARN if isinstance(event, _WARNINGS) else EventLevel.INFO
