"""Node conditions that result from the faults of a node, in the form of Kubernetes.

Types and reasons are those of HyperPod's health monitoring agent and of node-problem-detector: a
condition is True when there is a problem.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from holdfast.model.health import Fault, Urgency
from holdfast.model.names import Condition


class ConditionStatus(StrEnum):
    """Status of a condition, spelled as in Kubernetes."""

    TRUE = "True"
    FALSE = "False"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCondition:
    """One aspect of a node's health."""

    type: str
    """Value of ``model.names.Condition``."""

    status: ConditionStatus
    reason: str
    """Reason of the most severe fault; without a fault, a reason that reports its absence."""

    message: str
    transition: datetime
    """Time at which status or reason last changed; unaffected by a restart of the agent."""


class Healthy(NamedTuple):
    """Reason and message of a condition without a problem."""

    reason: str
    message: str


STANDING: Final[Mapping[str, Healthy]] = {
    Condition.NVIDIA_TERMINATE: Healthy(
        "NvidiaNoErrorRequiredTerminate", "Nvidia no error required terminate"
    ),
    Condition.NVIDIA_REBOOT: Healthy(
        "NvidiaNoErrorRequiredReboot", "Nvidia GPU reboot not required"
    ),
    Condition.KERNEL_DEADLOCK: Healthy("KernelHasNoDeadlock", "kernel has no deadlock"),
    Condition.NEURON: Healthy("NeuronHasNoError", "Neuron has no error"),
}
"""Conditions that every node has, worded as in HyperPod's agent and the Neuron problem detector;
the others appear with their first fault."""

_NO_FAULT: Final = Healthy("NoFault", "no fault of this kind is known")


def node_conditions(
    before: Iterable[NodeCondition], faults: Iterable[Fault], now: datetime
) -> tuple[NodeCondition, ...]:
    """Return the conditions of a node with ``faults``, which had the conditions ``before``.

    Each condition follows its strongest fault; of equal ones, the first. Like
    node-problem-detector, a condition has a transition when its reason changes, too. The transition
    time is that of the evidence, or ``now`` when the condition clears.
    """
    known = {condition.type: condition for condition in before}
    leading: dict[str, Fault] = {}
    for fault in faults:
        other = leading.get(fault.condition)
        if other is None or _weight(fault) > _weight(other):
            leading[fault.condition] = fault
    return tuple(
        _true(leading[kind], known.get(kind))
        if kind in leading
        else _false(kind, known.get(kind), now)
        for kind in dict.fromkeys((*STANDING, *known, *leading))
    )


def _weight(fault: Fault) -> tuple[int, bool]:
    return (fault.remedy.strength, fault.urgency is Urgency.IMMEDIATE)


def _true(fault: Fault, was: NodeCondition | None) -> NodeCondition:
    if was is not None and was.status is ConditionStatus.TRUE and was.reason == fault.reason:
        return replace(was, message=fault.message)
    return NodeCondition(
        type=fault.condition,
        status=ConditionStatus.TRUE,
        reason=fault.reason,
        message=fault.message,
        transition=fault.since if was is None else max(fault.since, was.transition),
    )


def _false(kind: str, was: NodeCondition | None, now: datetime) -> NodeCondition:
    if was is not None and was.status is ConditionStatus.FALSE:
        return was
    healthy = STANDING.get(kind, _NO_FAULT)
    return NodeCondition(
        type=kind,
        status=ConditionStatus.FALSE,
        reason=healthy.reason,
        message=healthy.message,
        transition=now,
    )
