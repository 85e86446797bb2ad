"""Which event tells of which action."""

from holdfast.model.actions import (
    BeginCheck,
    Drain,
    NodeAction,
    Quarantine,
    Reassign,
    Reboot,
    Rejoin,
    Release,
    Replace,
    Retire,
)
from holdfast.model.events import (
    Event,
    NodeCheckBegun,
    NodeDraining,
    NodeQuarantined,
    NodeReassigned,
    NodeRejoined,
    NodeReleased,
    NodeReplaced,
    RepairOrdered,
)
from holdfast.model.nodes import NodeView


def event_of(action: NodeAction, node: NodeView) -> Event:
    """The event to emit once ``action`` was taken on ``node``, seen as it was before."""
    course = node.record.course
    reason = course.reason if course is not None else ""
    name = node.name
    match action:
        case Quarantine(fault=fault, remedy=remedy):
            return NodeQuarantined(
                node=name, reason=fault.reason, remedy=remedy, message=fault.message
            )
        case Reassign(fault=fault, remedy=remedy):
            return NodeReassigned(
                node=name, reason=fault.reason, remedy=remedy, message=fault.message
            )
        case Drain():
            return NodeDraining(node=name)
        case Reboot():
            return RepairOrdered(node=name, remedy="reboot", reason=reason)
        case Replace():
            return RepairOrdered(node=name, remedy="replace", reason=action.reason)
        case Rejoin():
            return NodeRejoined(node=name)
        case Retire(successor=successor):
            return NodeReplaced(node=name, successor=successor)
        case BeginCheck():
            return NodeCheckBegun(node=name)
        case Release():
            return NodeReleased(node=name, after=reason)
