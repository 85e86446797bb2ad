"""Kubernetes Events about jobs."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from holdfast.adapters.kubernetes.jobs.conditions import WAITS
from holdfast.adapters.kubernetes.nodes.events import (
    NODE_FAULT,
    EventKind,
    KubernetesEvents,
    Notice,
)
from holdfast.adapters.kubernetes.nodes.pods import PodOwner
from holdfast.engine.wording import sentence
from holdfast.model.events import (
    AttemptKilled,
    AttemptStarted,
    AttemptStopped,
    CheckpointChosen,
    Event,
    JobFinished,
    JobHangSuspected,
    JobInputRejected,
    JobLossFault,
    JobRetried,
    JobStragglerFound,
    JobUnwatched,
    JobWaits,
)
from holdfast.model.jobs import FailureKind, JobPhase
from holdfast.model.names import PodPhase, Reason
from holdfast.ports.clock import Clock

KINDS: Final[Mapping[type[Event], EventKind]] = {
    AttemptStarted: EventKind(PodPhase.RUNNING, "Normal"),
    AttemptKilled: EventKind("PodsRemoved", "Warning"),
    CheckpointChosen: EventKind("CheckpointChosen", "Warning"),
    JobRetried: EventKind(
        "JobRestarting", "Normal", "its pods are recreated when nodes are available"
    ),
    JobWaits: EventKind(WAITS, "Normal"),
    JobUnwatched: EventKind("HangsNotDetected", "Warning"),
    JobHangSuspected: EventKind("HangSuspected", "Warning"),
    JobStragglerFound: EventKind(Reason.STRAGGLER_FOUND.value, "Warning"),
    JobLossFault: EventKind("LossFault", "Warning"),
    JobInputRejected: EventKind("InvalidInput", "Warning", "correct or remove it"),
}
"""Events with a single kind. HyperPod's training operator also uses the reason of the first."""

STOPPED: Final[Mapping[str, EventKind]] = {
    FailureKind.HARDWARE: EventKind(NODE_FAULT, "Warning"),
    FailureKind.APPLICATION: EventKind("ApplicationFailure", "Warning"),
    FailureKind.REQUESTED: EventKind("NodeWithdrawn", "Normal"),
}
EXCHANGED: Final = EventKind(
    "NodeExchanged", "Normal", "its pod there is evicted, and the others stay"
)
FINISHED: Final[Mapping[str, EventKind]] = {
    JobPhase.FAILED: EventKind("RestartsSpent", "Warning", "it is not restarted again"),
    JobPhase.SUCCEEDED: EventKind("JobSucceeded", "Normal"),
}


def job_notice(event: Event, owner: PodOwner, at: datetime) -> Notice | None:
    """Return the Kubernetes Event for an event of the engine; None if it is not reported."""
    match event:
        case AttemptStopped(kind=which):
            kind = STOPPED.get(which)
        case JobRetried(exchanged=node) if node:
            kind = EXCHANGED
        case JobFinished(outcome=outcome):
            kind = FINISHED.get(outcome)
        case _:
            kind = KINDS.get(type(event))
    if kind is None:
        return None
    message = sentence(event)
    if isinstance(event, AttemptStopped) and event.kind != FailureKind.APPLICATION:
        message = f"{message}: {event.evidence}"
    message = f"{message}; {kind.next}" if kind.next else message
    return Notice(about=owner, kind=kind, message=message, at=at)


class JobEvents:
    """``EventSink`` that reports events of jobs on their objects and forwards all others."""

    def __init__(
        self, events: KubernetesEvents, owner: Callable[[str], PodOwner | None], clock: Clock
    ) -> None:
        self._events = events
        self._owner = owner
        self._clock = clock

    def emit(self, event: Event) -> None:
        """See ``EventSink.emit``."""
        job = getattr(event, "job", None)
        owner = self._owner(job) if job else None
        if owner is None:
            self._events.emit(event)
            return
        notice = job_notice(event, owner, self._clock.now())
        if notice is not None:
            self._events.put(notice)
