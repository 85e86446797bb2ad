"""What happens to a job, as Kubernetes Events on it."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from holdfast.adapters.kubernetes.nodes.events import NODE_FAULT, Kind, KubernetesEvents, Notice
from holdfast.adapters.kubernetes.nodes.pods import Owner
from holdfast.engine.wording import sentence
from holdfast.model.events import (
    AttemptKilled,
    AttemptStarted,
    AttemptStopped,
    Event,
    JobFinished,
    JobInputRejected,
    JobRetried,
    JobWaits,
)
from holdfast.model.jobs import FailureKind, JobPhase
from holdfast.model.names import PodPhase
from holdfast.ports.clock import Clock

KINDS: Final[Mapping[type[Event], Kind]] = {
    AttemptStarted: Kind(PodPhase.RUNNING, "Normal"),
    AttemptKilled: Kind("PodsRemoved", "Warning", "pods on machines that are gone are removed"),
    JobRetried: Kind("JobRestarting", "Normal", "its pods are made anew when there is room"),
    JobWaits: Kind("JobWaiting", "Normal"),
    JobInputRejected: Kind("InvalidInput", "Warning", "correct or remove it"),
}
"""Those of which there is one kind only. HyperPod's training operator calls the first so, too."""

STOPPED: Final[Mapping[str, Kind]] = {
    FailureKind.HARDWARE: Kind(NODE_FAULT, "Warning"),
    FailureKind.APPLICATION: Kind("ApplicationFailure", "Warning"),
    FailureKind.REQUESTED: Kind("NodeWithdrawn", "Normal"),
}
FINISHED: Final[Mapping[str, Kind]] = {
    JobPhase.FAILED: Kind("RestartsSpent", "Warning", "it is not restarted any more"),
    JobPhase.SUCCEEDED: Kind("JobSucceeded", "Normal"),
}


def job_notice(event: Event, owner: Owner, at: datetime) -> Notice | None:
    """What to tell on a job of an event of the engine; None if nothing."""
    match event:
        case AttemptStopped(kind=which):
            kind = STOPPED.get(which)
        case JobFinished(outcome=outcome):
            kind = FINISHED.get(outcome)
        case _:
            kind = KINDS.get(type(event))
    if kind is None:
        return None
    words = sentence(event)
    if isinstance(event, AttemptStopped) and event.kind != FailureKind.APPLICATION:
        words = f"{words}: {event.evidence}"
    words = f"{words}; {kind.next}" if kind.next else words
    return Notice(about=owner, kind=kind, message=words, at=at)


class JobEvents:
    """An ``EventSink`` that tells of jobs on their objects, and passes on everything else."""

    def __init__(
        self, events: KubernetesEvents, owner: Callable[[str], Owner | None], clock: Clock
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
