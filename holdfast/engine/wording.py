"""Messages of events and log lines; operators search and alert on them, so they are stable."""

from collections.abc import Sequence
from datetime import timedelta

from holdfast.engine.recovery_text import recovery
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
    FaultUncorroborated,
    InputRejected,
    JobFinished,
    JobHangSuspected,
    JobInputRejected,
    JobLossFault,
    JobRetried,
    JobStragglerFound,
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
    NodeDrillActive,
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
    StateRestored,
    StragglerSuspected,
    TimesCorrected,
)
from holdfast.model.health import Remedy
from holdfast.model.jobs import FailureKind
from holdfast.model.names import Reason

_NAMED = 8
"""Maximum number of nodes that a sentence names; a job may have thousands."""

_RESET_BREAKER = "inspect the nodes, then run: holdfast nodes reset-breaker"


def log_line(event: Event) -> str:
    """Return the event as one log line: its reason code, such as ``NodeQuarantined``, then text."""
    return f"{type(event).__name__}: {sentence(event)}"


def sentence(event: Event) -> str:
    """Return what happened to what, without the reason code."""
    match event:
        case AttemptStarted() | AttemptStopped() | AttemptKilled():
            return _attempt_sentence(event)
        case CheckpointChosen(job=job, attempt=attempt, why=why):
            return f"{job}: before attempt {attempt}: {why}"
        case JobRetried() | JobWaits() | JobFinished() | JobInputRejected():
            return _job_sentence(event)
        case JobUnwatched() | JobHangSuspected() | JobStragglerFound() | JobLossFault():
            return f"{event.job}: {event.why}"
        case NodeAgentSilent() | NodeAgentReports() | NodeDrillActive():
            return _agent_sentence(event)
        case NodesWithoutGroup(nodes=nodes):
            return (
                f"{_named(nodes)}: no group label; a new node without one may replace any of them;"
                " to separate groups, set kubernetes.group_labels"
            )
        case BreakerTripped(reason=reason):
            return f"circuit breaker open, all repairs paused: {reason}; {_RESET_BREAKER}"
        case BreakerClosed(reason=reason):
            return f"circuit breaker closed, repairs resumed: {reason}"
        case StateRestored(what=what):
            return what
        case TimesCorrected(what=what, ahead=ahead):
            corrected = (
                f"timeouts counted from a time {format_duration(ahead)} in the future, and count"
                " from now"
                if ahead > timedelta(0)
                else f"the clock was set forward by {format_duration(-ahead)}, and timeouts pass"
                " later"
            )
            return (
                f"{what}: {corrected}{_times(event.times)}; check that the clocks of the"
                " controllers' machines are synchronized"
            )
        case CallFailed(what=what, error=error):
            return f"{what} failed, retrying{_times(event.times)}: {error}"
    return _node_sentence(event)


def _node_sentence(event: Event) -> str:
    match event:
        case NodeQuarantined() | NodeReassigned():
            verb = "quarantined" if isinstance(event, NodeQuarantined) else "now quarantined"
            work = _repair(event.remedy)
            return f"{event.node} {verb} for {work}: {event.reason}: {event.message}"
        case NodeDraining(node=node):
            return f"{node} draining"
        case RepairOrdered(node=node, remedy=remedy):
            return f"{node}: {_repair(remedy)} ordered"
        case RepairPostponed() | RepairOverdue():
            return _delay_sentence(event)
        case RepairDeferred(node=node, why=why):
            return f"{node}: repair deferred{_times(event.times)}: {why}"
        case NodeRejoined(node=node):
            return f"{node} rejoined; running deep health check"
        case NodeReplaced(node=node, successor=successor):
            return f"{node} replaced by {successor}"
        case NodeVanished(node=node, reason=reason):
            return f"{node} disappeared; closing repair ({reason})"
        case InputRejected(node=node, key=key, value=value, expected=expected):
            return f"{node}: {key} ignored: got {value!r}, expected {expected}"
        case (
            NodeSuspected()
            | StragglerSuspected()
            | FaultUncorroborated()
            | NodeCheckWaits()
            | NodeCheckBegun()
            | NodePairTested()
            | NodeCheckPassed()
            | NodeCheckSkipped()
            | NodeCheckFailed()
        ):
            return _check_sentence(event)
        case NodeReleased(node=node, after=after):
            return f"{node} released{_ended_remediation(after)}"
    return event.name


def _repair(remedy: str) -> str:
    """Return the noun of a remedy, such as ``replacement`` for ``replace``."""
    nouns: dict[str, str] = {Remedy.NONE: "deep health check", Remedy.REPLACE: "replacement"}
    return nouns.get(remedy, remedy)


def _ended_remediation(reason: str) -> str:
    if reason == Reason.REQUESTED_DEEP_CHECK:
        return ": requested deep health check ended"
    return f": {reason} resolved" if reason else ""


def _check_sentence(
    event: NodeSuspected
    | StragglerSuspected
    | FaultUncorroborated
    | NodeCheckWaits
    | NodeCheckBegun
    | NodePairTested
    | NodeCheckPassed
    | NodeCheckSkipped
    | NodeCheckFailed,
) -> str:
    head = f"{event.node}: deep health check"
    match event:
        case (
            NodeSuspected(evidence=evidence, is_checked=is_checked)
            | FaultUncorroborated(evidence=evidence, is_checked=is_checked)
        ):
            checked = "running deep health check"
            then = checked if is_checked else "no deep health check configured, inspect the node"
            return f"{event.node} is suspect: {evidence}; {then}"
        case StragglerSuspected(evidence=evidence, is_checked=is_checked):
            deferred = "deep health check with tests between nodes once its jobs end"
            then = deferred if is_checked else "no deep health check configured, inspect the node"
            return f"{event.node} is suspect: {evidence}; {then}"
        case NodeCheckWaits(why=why):
            return f"{head} waiting for {why}{_times(event.times)}"
        case NodeCheckBegun():
            return f"{head} started"
        case NodePairTested():
            return _pair_sentence(event)
        case NodeCheckPassed(took=took, detail=detail):
            return f"{head} passed in {format_duration(took)}" + (f": {detail}" if detail else "")
        case NodeCheckSkipped(detail=detail):
            return f"{head} skipped, releasing the node without it: {detail}"
        case NodeCheckFailed(took=took, detail=detail):
            return f"{head} failed after {format_duration(took)}: {detail}"


def _times(times: int) -> str:
    """Return how often the event occurred since its last report; empty for the first time."""
    return f" ({times} times since the last report)" if times > 1 else ""


def _pair_sentence(event: NodePairTested) -> str:
    how = {True: "passed", False: "failed", None: "inconclusive"}[event.passed]
    why = f": {event.detail}" if event.detail else ""
    return f"{event.node}: network test with {event.partner} {how}{why}"


def _agent_sentence(event: NodeAgentSilent | NodeAgentReports | NodeDrillActive) -> str:
    if isinstance(event, NodeDrillActive):
        return (
            f"{event.node}: drill active until {event.until:%Y-%m-%d %H:%M:%S %Z}: log lines that"
            " any user can write lead to repairs"
        )
    if isinstance(event, NodeAgentReports):
        return f"{event.node}: Holdfast agent reporting again"
    return (
        f"{event.node}: Holdfast agent silent since {event.since:%Y-%m-%d %H:%M:%S %Z} although the"
        " node responds, so its faults are not detected; inspect the agent"
    )


def _delay_sentence(event: RepairPostponed | RepairOverdue) -> str:
    if isinstance(event, RepairOverdue):
        waited = format_duration(event.waited)
        return f"{event.node}: {_repair(event.remedy)} overdue: ordered {waited} ago without effect"
    pause = format_duration(event.retry_after)
    work = _repair(event.remedy)
    return f"{event.node}: {work} refused: {event.error}; retrying in {pause}"


def _attempt_sentence(event: AttemptStarted | AttemptStopped | AttemptKilled) -> str:
    head = f"{event.job}: attempt {event.attempt}"
    match event:
        case AttemptStarted(nodes=nodes):
            took = recovery(event.stopped_in, event.waited, event.started_in)
            return f"{head} running on {_named(nodes)}" + (f"; {took}" if took else "")
        case AttemptStopped():
            where = f" on {event.node}" if event.node else ""
            # A node's own line came just before; no other event reports the exit of a rank.
            evidence = f": {event.evidence}" if event.kind == FailureKind.APPLICATION else ""
            return f"{head} stopped: {event.reason}{where}{evidence}"
        case AttemptKilled():
            return f"{head}: {_kill_reason(event)}"


def _kill_reason(event: AttemptKilled) -> str:
    if event.after is None:
        return f"ranks on {_named(event.nodes)} were removed: nothing runs there any more"
    late = format_duration(event.after)
    if not event.nodes:
        return f"the platform has not confirmed the stop after {late}"
    return (
        f"ranks on {_named(event.nodes)} exceeded the grace period: they still ran {late} after "
        "SIGTERM and were sent SIGKILL"
    )


def _named(nodes: Sequence[str]) -> str:
    more = len(nodes) - _NAMED
    return ", ".join(nodes[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _job_sentence(
    event: JobRetried | JobWaits | JobFinished | JobInputRejected,
) -> str:
    match event:
        case JobRetried():
            how = f"exchanging {event.exchanged}" if event.exchanged else "restarting"
            cause = f" ({event.cause})" if event.cause else ""
            where = f" on {event.node}" if event.node and not event.exchanged else ""
            return (
                f"{event.job} {how} ({event.kind}: {event.reason}{cause}{where}); retries used: "
                f"hardware {event.hardware_retries}/{event.max_retries}, "
                f"application {event.app_retries}/{event.max_app_retries}"
            )
        case JobWaits(job=job, why=why):
            return f"{job}: {why}"
        case JobFinished(job=job, outcome=outcome, reason=reason):
            return f"{job} {outcome}: {reason}"
        case JobInputRejected(job=job, key=key, value=value, expected=expected):
            return f"{job}: {key} rejected: got {value!r}, expected {expected}"
