"""Events in the words of a person."""

from collections.abc import Sequence
from datetime import timedelta

from holdfast.kit.units import format_duration
from holdfast.model.events import (
    AttemptKilled,
    AttemptStarted,
    AttemptStopped,
    BreakerClosed,
    BreakerTripped,
    CallFailed,
    CheckpointChosen,
    Event,
    InputRejected,
    JobFinished,
    JobInputRejected,
    JobRetried,
    JobUnwatched,
    JobWaits,
    NodeAgentReports,
    NodeAgentSilent,
    NodeCheckBegun,
    NodeCheckFailed,
    NodeCheckPassed,
    NodeCheckSkipped,
    NodeCheckWaits,
    NodeDraining,
    NodePairTested,
    NodeQuarantined,
    NodeReassigned,
    NodeRejoined,
    NodeReleased,
    NodeReplaced,
    NodeSuspected,
    NodesWithoutGroup,
    NodeVanished,
    RepairDeferred,
    RepairOrdered,
    RepairOverdue,
    RepairPostponed,
)
from holdfast.model.health import Remedy
from holdfast.model.jobs import FailureKind
from holdfast.model.names import Reason

_NO_CHECK = "there is no deep health check here"
_NAMED = 8
"""Nodes that a sentence names; a job may have thousands."""

_RESET_BREAKER = "look at the nodes; then: holdfast nodes reset-breaker"


def sentence(event: Event) -> str:
    """What happened, to what."""
    match event:
        case AttemptStarted() | AttemptStopped() | AttemptKilled():
            return _attempt_sentence(event)
        case CheckpointChosen(job=job, attempt=attempt, why=why):
            return f"{job}: before attempt {attempt}: {why}"
        case JobRetried() | JobWaits() | JobUnwatched() | JobFinished() | JobInputRejected():
            return _job_sentence(event)
        case NodeAgentSilent() | NodeAgentReports():
            return _agent_sentence(event)
        case NodesWithoutGroup(nodes=nodes):
            return (
                f"{_named(nodes)}: no group label; a new node without one is taken for the"
                " replacement of any of them; to tell groups apart, set kubernetes.group_labels"
            )
        case BreakerTripped(reason=reason):
            return f"all repairs are stopped: {reason}; {_RESET_BREAKER}"
        case BreakerClosed(reason=reason):
            return f"circuit breaker closed, repairs resume: {reason}"
        case CallFailed(what=what, error=error):
            return f"{what} failed and is tried again{_times(event.times)}: {error}"
    return _node_sentence(event)


def recovery(
    stopped_in: timedelta | None, waited: timedelta | None, started_in: timedelta | None
) -> str:
    """How long a job took to go on after a failure; what was not noted is left out."""
    parts = {"stopped in": stopped_in, "waited": waited, "started in": started_in}
    known = {words: took for words, took in parts.items() if took is not None}
    if not known:
        return ""
    whole = format_duration(sum(known.values(), timedelta(0)))
    each = ", ".join(f"{words} {format_duration(took)}" for words, took in known.items())
    return f"remediated in {whole}: {each}"


def _node_sentence(event: Event) -> str:
    match event:
        case NodeQuarantined() | NodeReassigned():
            what = "a deep health check" if event.remedy == Remedy.NONE else event.remedy
            return f"{event.node} needs {what}: {event.reason}: {event.message}"
        case NodeDraining(node=node):
            return f"{node} is being drained"
        case RepairOrdered(node=node, remedy=remedy):
            return f"{node}: {remedy} ordered"
        case RepairPostponed() | RepairOverdue():
            return _delay_sentence(event)
        case RepairDeferred(node=node, why=why):
            return f"{node}: repair held back{_times(event.times)}: {why}"
        case NodeRejoined(node=node):
            return f"{node} is back and is checked"
        case NodeReplaced(node=node, successor=successor):
            return f"{node} was replaced by {successor}"
        case NodeVanished(node=node, reason=reason):
            return f"{node} is gone though nobody replaced it; its repair ({reason}) ends"
        case InputRejected(node=node, key=key, value=value, expected=expected):
            return f"{node}: {key} is {value!r}, which is ignored: expected {expected}"
        case (
            NodeSuspected()
            | NodeCheckWaits()
            | NodeCheckBegun()
            | NodePairTested()
            | NodeCheckPassed()
            | NodeCheckSkipped()
            | NodeCheckFailed()
        ):
            return _check_sentence(event)
        case NodeReleased(node=node, after=after):
            return f"{node} is schedulable{_ended_remediation(after)}"
    return event.name


def _ended_remediation(reason: str) -> str:
    if reason == Reason.REQUESTED_DEEP_CHECK:
        return "; the requested deep health check has ended"
    return f"; {reason} is over" if reason else ""


def _check_sentence(
    event: NodeSuspected
    | NodeCheckWaits
    | NodeCheckBegun
    | NodePairTested
    | NodeCheckPassed
    | NodeCheckSkipped
    | NodeCheckFailed,
) -> str:
    head = f"{event.node}: deep health check"
    match event:
        case NodeSuspected(evidence=evidence, is_checked=is_checked):
            then = "it is checked" if is_checked else f"look at it: {_NO_CHECK}"
            return f"{event.node} reports no fault, but {evidence}; {then}"
        case NodeCheckWaits(node=node, why=why):
            return f"check of {node} waits for {why}{_times(event.times)}"
        case NodeCheckBegun():
            return f"{head} started"
        case NodePairTested():
            return _pair_sentence(event)
        case NodeCheckPassed(took=took, detail=detail):
            return f"{head} passed in {format_duration(took)}" + (f": {detail}" if detail else "")
        case NodeCheckSkipped(detail=detail):
            return f"{head} skipped, the node was released without it: {detail}"
        case NodeCheckFailed(took=took, detail=detail):
            return f"{head} failed after {format_duration(took)}: {detail}"


def _times(times: int) -> str:
    """How often the same happened since it was last reported; empty for the first time."""
    return f" ({times} times since the last report)" if times > 1 else ""


def _pair_sentence(event: NodePairTested) -> str:
    how = {True: "passed", False: "failed", None: "says nothing"}[event.passed]
    why = f": {event.detail}" if event.detail else ""
    return f"the test between {event.node} and {event.partner} {how}{why}"


def _agent_sentence(event: NodeAgentSilent | NodeAgentReports) -> str:
    if isinstance(event, NodeAgentReports):
        return f"{event.node}: the Holdfast agent reports again"
    return (
        f"{event.node}: no heartbeat of the Holdfast agent since {event.since:%Y-%m-%d %H:%M:%S %Z}"
        f" although the node answers, so its faults are not detected; look at the agent"
    )


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
            took = recovery(event.stopped_in, event.waited, event.started_in)
            return f"{head} runs on {_named(nodes)}" + (f"; {took}" if took else "")
        case AttemptStopped():
            where = f" on {event.node}" if event.node else ""
            # A node's own line came just before; the exit of a rank is told nowhere else.
            evidence = f": {event.evidence}" if event.kind == FailureKind.APPLICATION else ""
            return f"{head} is stopped: {event.reason}{where}{evidence}"
        case AttemptKilled():
            return f"{head}: ranks outlived the grace period and were killed"


def _named(nodes: Sequence[str]) -> str:
    more = len(nodes) - _NAMED
    return ", ".join(nodes[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _job_sentence(
    event: JobRetried | JobWaits | JobUnwatched | JobFinished | JobInputRejected,
) -> str:
    match event:
        case JobRetried():
            return (
                f"{event.job} is restarted ({event.kind}: {event.reason}); retries so far: "
                f"{_spent(event.hardware_retries, event.max_retries)} hardware, "
                f"{_spent(event.app_retries, event.max_app_retries)} application"
            )
        case JobWaits(job=job, why=why) | JobUnwatched(job=job, why=why):
            return f"{job}: {why}"
        case JobFinished(job=job, outcome=outcome, reason=reason):
            return f"{job} {outcome}: {reason}"
        case JobInputRejected(job=job, key=key, value=value, expected=expected):
            return f"{job}: {key} is {value!r}: expected {expected}"


def _spent(retries: int, allowed: int | None) -> str:
    return str(retries) if allowed is None else f"{retries} of {allowed}"
