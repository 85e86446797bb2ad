"""From what is known of a node to what the core gets to see: pure."""

from datetime import datetime
from typing import Final

from holdfast.adapters.kubernetes.encoding import Word, boot_id, is_present
from holdfast.adapters.kubernetes.nodes import UNKNOWN, NodeState
from holdfast.adapters.kubernetes.succession import Leaving
from holdfast.model.health import Urgency
from holdfast.model.nodes import CheckResult, NodeRecord, NodeView, PairOutcome, Phase

_COMING: Final = frozenset((Phase.JOINING, Phase.REBOOTING))
"""Phases in which it is the agent's word in the present boot that counts."""

_TRUE: Final = "True"
_INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"


def is_managed(state: NodeState, word: Word) -> bool:
    """Whether a node is ours to look after: it has an agent, a record, or replaces one that had."""
    if state.is_control_plane or word.is_damaged:
        return False
    return word.record is not None or word.report is not None or state.replaces is not None


def record_of(state: NodeState, word: Word, first_seen: datetime) -> NodeRecord:
    """The record of a node; of one that has none yet it is that of a node that joins.

    ``first_seen`` is when this process first saw it: only from then on can it be late.
    """
    if word.record is not None:
        return word.record
    return NodeRecord(
        phase=Phase.JOINING,
        phase_since=max(state.created_at, first_seen),
        checked_machine=_machine(state, word) if state.is_checked else "",
    )


def group_of(state: NodeState) -> str:
    """The name of the instance group that a node belongs to; empty if it belongs to none."""
    return state.group.partition("=")[2]


def instance_type_of(state: NodeState) -> str:
    """The instance type of a node; empty if nobody has told it."""
    return state.labels.get(_INSTANCE_TYPE, "")


def node_view(
    state: NodeState,
    word: Word,
    record: NodeRecord,
    *,
    heard_at: datetime | None,
    jobs: tuple[str, ...] = (),
    check: CheckResult | None = None,
    pair: PairOutcome | None = None,
    is_idle: bool = False,
) -> NodeView:
    """The node as the core sees it."""
    report = word.report if is_present(word.report, state) else None
    return NodeView(
        name=state.name,
        provider_id=state.provider_id,
        record=record,
        group=group_of(state),
        instance_type=instance_type_of(state),
        boot_id=boot_id(state, word),
        faults=() if report is None else report.faults,
        heartbeat_at=heard_at,
        powered_on=False if state.is_off else None,
        request=word.request,
        held=word.held,
        running_jobs=jobs,
        is_idle=is_idle,
        check=check,
        pair=pair,
        replaces=state.replaces or "",
    )


def leaving_view(name: str, leaving: Leaving) -> NodeView:
    """A node whose object is gone while its replacement is on the way."""
    return NodeView(name=name, provider_id=leaving.provider_id, record=leaving.record)


def needs_leases(state: NodeState, record: NodeRecord) -> bool:
    """Whether only the leases can tell when a node was last heard."""
    return state.ready == UNKNOWN and record.phase not in _COMING


def heard(
    state: NodeState, word: Word, record: NodeRecord, now: datetime, leased_at: datetime | None
) -> datetime | None:
    """When a node was last heard; None before its first word in this boot.

    While the node controller says Ready or not Ready it hears the kubelet. ``leased_at`` is the
    newest renewal of the node's leases, None if it has none.
    """
    if record.phase in _COMING:
        is_here = is_present(word.report, state) and state.ready == _TRUE
        return now if is_here else None
    return now if state.ready != UNKNOWN else leased_at or state.ready_since


def is_followed(record: NodeRecord) -> bool:
    """Whether it matters which pods run on a node: it is drained, or waits for them to end."""
    if record.phase is Phase.DRAINING:
        return True
    course = record.course
    waits = course is not None and course.urgency is Urgency.DEFERRED
    return record.phase is Phase.QUARANTINED and waits


def is_fenced(state: NodeState, word: Word, record: NodeRecord) -> bool:
    """Whether no process of the boot before the repair can run any more, though its pods remain."""
    course = record.course
    if course is None:
        return False
    is_rebooted = record.phase is Phase.REBOOTING and _machine(state, word) != course.machine
    return state.is_off or is_rebooted


def _machine(state: NodeState, word: Word) -> str:
    return f"{state.provider_id}#{boot_id(state, word)}"
