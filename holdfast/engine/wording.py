"""Events in the words of a person."""

from holdfast.kit.units import format_duration
from holdfast.model.events import (
    AttemptKilled,
    AttemptStarted,
    AttemptStopped,
    BreakerTripped,
    CallFailed,
    Event,
    InputRejected,
    JobFinished,
    JobInputRejected,
    JobRetried,
    JobWaits,
    NodeCheckBegun,
    NodeDraining,
    NodeQuarantined,
    NodeReassigned,
    NodeRejoined,
    NodeReleased,
    NodeReplaced,
    NodeVanished,
    RepairHeldBack,
    RepairOrdered,
    RepairOverdue,
    RepairPostponed,
)
from holdfast.model.jobs import FailureKind

_RESET_BREAKER = "look at the nodes; then: holdfast nodes reset-breaker"


def sentence(event: Event) -> str:
    """What happened, to what."""
    match event:
        case AttemptStarted() | AttemptStopped() | AttemptKilled():
            return _attempt_sentence(event)
        case JobRetried() | JobWaits() | JobFinished() | JobInputRejected():
            return _job_sentence(event)
        case BreakerTripped(reason=reason):
            return f"all repairs are stopped: {reason}; {_RESET_BREAKER}"
        case CallFailed(what=what, error=error):
            return f"{what} failed and is tried again: {error}"
    return _node_sentence(event)


def _node_sentence(event: Event) -> str:
    match event:
        case NodeQuarantined() | NodeReassigned():
            return f"{event.node} needs {event.remedy}: {event.reason}: {event.message}"
        case NodeDraining(node=node):
            return f"{node} is being drained"
        case RepairOrdered(node=node, remedy=remedy):
            return f"{node}: {remedy} ordered"
        case RepairPostponed() | RepairOverdue():
            return _delay_sentence(event)
        case RepairHeldBack(node=node, why=why):
            return f"{node}: repair held back: {why}"
        case NodeRejoined(node=node):
            return f"{node} is back and is checked"
        case NodeReplaced(node=node, successor=successor):
            return f"{node} was replaced by {successor}"
        case NodeVanished(node=node, reason=reason):
            return f"{node} is gone though nobody replaced it; its repair ({reason}) ends"
        case InputRejected(node=node, key=key, value=value, expected=expected):
            return f"{node}: {key} is {value!r}, which is ignored: expected {expected}"
        case NodeCheckBegun(node=node):
            return f"{node}: deep health check started"
        case NodeReleased(node=node, after=after):
            return f"{node} is schedulable" + (f" again after {after}" if after else "")
    return event.name


def _delay_sentence(event: RepairPostponed | RepairOverdue) -> str:
    if isinstance(event, RepairOverdue):
        waited = format_duration(event.waited)
        return f"{event.node}: the {event.remedy} ordered {waited} ago has had no effect"
    pause = format_duration(event.retry_after)
    return f"{event.node}: {event.remedy} refused: {event.error}; again in {pause}"


def _attempt_sentence(event: AttemptStarted | AttemptStopped | AttemptKilled) -> str:
    head = f"{event.job}: attempt {event.attempt}"
    match event:
        case AttemptStarted(nodes=nodes):
            return f"{head} runs on {', '.join(nodes)}"
        case AttemptStopped():
            where = f" on {event.node}" if event.node else ""
            # A node's own line came just before; the exit of a rank is told nowhere else.
            evidence = f": {event.evidence}" if event.kind == FailureKind.APPLICATION else ""
            return f"{head} is stopped: {event.reason}{where}{evidence}"
        case AttemptKilled():
            return f"{head}: ranks outlived the grace period and were killed"


def _job_sentence(event: JobRetried | JobWaits | JobFinished | JobInputRejected) -> str:
    match event:
        case JobRetried():
            return (
                f"{event.job} is restarted ({event.kind}: {event.reason}); retries so far: "
                f"{event.hardware_retries} hardware, {event.app_retries} application"
            )
        case JobWaits(job=job, why=why):
            return f"{job}: {why}"
        case JobFinished(job=job, outcome=outcome, reason=reason):
            return f"{job} {outcome}: {reason}"
        case JobInputRejected(job=job, key=key, value=value, expected=expected):
            return f"{job}: {key} is {value!r}: expected {expected}"
