"""Node fitting: nodes to which a pod could be scheduled, by its own constraints only.

Labels and taints that repairs set temporarily are ignored, since the result is the capacity after
all repairs.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.jobs.objects import Group, PodState, devices
from holdfast.adapters.kubernetes.nodes.node import NodeState
from holdfast.model.names import HealthStatus, Labels

_PASSING_TAINTS: Final = (
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/out-of-service",
    "node.cloudprovider.kubernetes.io/shutdown",
    "node.cloudprovider.kubernetes.io/uninitialized",
)
_SOFT: Final = "PreferNoSchedule"


def capacity(
    groups: Sequence[Group],
    nodes: Iterable[NodeState],
    others: Iterable[PodState],
    labels: Labels,
) -> dict[str, int]:
    """Number of ranks of a job that fit on each node beside the pods of other jobs.

    Args:
        groups: the job's pods; the capacity is that for the most demanding group, and a node must
            fit all. Groups without devices beside groups with devices, such as a launcher, are
            assumed to fit on one node that is in service.
        nodes: candidate nodes.
        others: pods of other jobs, with the devices that they use.
        labels: labels that Holdfast sets.

    """
    total = sum(group.ranks for group in groups)
    required = max((devices(group.pods) for group in groups), key=lambda d: sum(d.values()))
    used: dict[str, dict[str, int]] = {}
    for pod in others:
        if pod.node and not pod.has_ended:
            on_node = used.setdefault(pod.node, {})
            for name, amount in pod.resources.items():
                on_node[name] = on_node.get(name, 0) + amount
    found, out = {}, set()
    for node in nodes:
        if all(fits(group.pods, node, labels) for group in groups):
            free = _free_ranks(required, node.devices, used.get(node.name, {}), total)
            if free:
                found[node.name] = free
            if node.labels.get(labels.node_health_status) != HealthStatus.SCHEDULABLE:
                out.add(node.name)
    if required and found:
        light = sum(group.ranks for group in groups if not devices(group.pods))
        found[min(found, key=lambda name: (name in out, name))] += light
    return found


def unclaimed(
    found: Mapping[str, int],
    groups: Sequence[Group],
    ranks: int,
    nodes: Mapping[str, NodeState],
    labels: Labels,
) -> dict[str, int]:
    """Return ``found`` less the capacity for ``ranks`` ranks of another job."""
    left = dict(found)
    for name in sorted(left):
        node = nodes.get(name)
        if node is None or all(fits(group.pods, node, labels) for group in groups):
            taken = min(left[name], max(ranks, 0))
            left[name] -= taken
            ranks -= taken
    return left


def fits(pods: Json, node: NodeState, labels: Labels) -> bool:
    """Whether a pod with this ``spec`` may be scheduled to a node."""
    own_labels = (
        labels.node_health_status,
        labels.deep_health_check_status,
        labels.deep_health_check,
    )
    selector: Mapping[str, str] = pods.get("nodeSelector") or {}
    if any(
        node.labels.get(key) != value for key, value in selector.items() if key not in own_labels
    ):
        return False
    affinity = (pods.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms")
    if terms is not None and not any(_matches(term, node, own_labels) for term in terms):
        return False
    tolerations: Sequence[Json] = pods.get("tolerations") or ()
    return all(
        any(_tolerates(one, taint) for one in tolerations)
        for taint in map(dict, node.taints)
        if taint.get("effect") != _SOFT and taint.get("key") not in (*own_labels, *_PASSING_TAINTS)
    )


def _free_ranks(
    required: Mapping[str, int], there: Mapping[str, int], used: Mapping[str, int], total: int
) -> int:
    free = (
        (there.get(name, 0) - used.get(name, 0)) // amount
        for name, amount in required.items()
        if amount
    )
    return max(0, min((*free, total)))


def _matches(term: Json, node: NodeState, own_labels: Sequence[str]) -> bool:
    """Whether a selector term matches; as in the scheduler, an empty term matches nothing."""
    expressions = term.get("matchExpressions") or ()
    fields = term.get("matchFields") or ()
    return bool(expressions or fields) and all(
        (*(_holds(e, node.labels) for e in expressions if e.get("key") not in own_labels),
         *(_holds(field, {"metadata.name": node.name}) for field in fields))
    )  # fmt: skip


def _holds(expression: Json, values: Mapping[str, str]) -> bool:
    value = values.get(str(expression.get("key")))
    operands: Sequence[str] = expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return value in operands
        case "NotIn":
            return value not in operands
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            return _compares(operator, value, operands)
    return False


def _compares(operator: str, value: str | None, operands: Sequence[str]) -> bool:
    try:
        number, bound = int(value or ""), int(operands[0])
    except (ValueError, IndexError):
        return False
    return number > bound if operator == "Gt" else number < bound


def _tolerates(toleration: Json, taint: Mapping[str, str]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    is_same = (toleration.get("value") or "") == (taint.get("value") or "")
    return toleration.get("key") == taint.get("key") and is_same
