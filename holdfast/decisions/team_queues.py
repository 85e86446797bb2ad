"""Queues of teams from their compute quotas and the nodes of the cluster."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final

from holdfast.model.team_queues import (
    CPU,
    MEMORY,
    ComputeQuota,
    FlavorQuota,
    InstanceAmount,
    NodeType,
    Policy,
    PolicyStatus,
    SchedulerConfig,
    TeamQueue,
)

ACCELERATORS: Final = ("nvidia.com/gpu", "aws.amazon.com/neuron", "amd.com/gpu")
"""Resources of whole accelerators; a node has at most one of them."""

_MIG: Final = "nvidia.com/mig-"
_GIB: Final = 1 << 30


def team_queue(
    quota: ComputeQuota,
    types: Mapping[str, NodeType],
    scheduler: SchedulerConfig | None,
    cohort: str,
) -> TeamQueue:
    """Return the queue of a team.

    Args:
        quota: requested quota.
        types: nodes of the cluster by instance type.
        scheduler: scheduler configuration of the cluster, if it has one.
        cohort: name of the teams that share compute.

    Raises:
        ValueError: the nodes have no such compute.

    """
    amounts = {one.instance_type: one for one in quota.amounts}
    limits = {one.instance_type: one for one in quota.borrow_limits}
    flavors = []
    for name in dict.fromkeys((*amounts, *limits)):
        node = _node(types, name)
        nominal = _resources(amounts[name], node) if name in amounts else {}
        borrowing = None
        if quota.lends and quota.borrow_percent is None:
            borrowing = dict.fromkeys(nominal, 0)
        elif quota.lends and name in limits:
            borrowing = _resources(limits[name], node)
        elif quota.lends and quota.borrow_percent is not None:
            borrowing = {key: one * quota.borrow_percent // 100 for key, one in nominal.items()}
        flavors.append(
            FlavorQuota(instance_type=name, label=node.label, nominal=nominal, borrowing=borrowing)
        )
    return TeamQueue(
        team=quota.team,
        flavors=_covering(flavors),
        cohort=cohort if quota.lends else "",
        weight=quota.weight if scheduler is not None and scheduler.fair_share else None,
        preempts=quota.preempts,
        is_enabled=quota.is_enabled,
    )


def idle_flavors(
    types: Mapping[str, NodeType], queues: Sequence[TeamQueue]
) -> tuple[FlavorQuota, ...]:
    """Return the compute that no queue has, of the instance types of queues that share.

    Args:
        types: nodes of the cluster by instance type.
        queues: queues of all teams.

    """
    taken: dict[str, Counter[str]] = {}
    for queue in queues:
        for one in queue.flavors:
            taken.setdefault(one.instance_type, Counter()).update(one.nominal)
    shared = {one.instance_type: one for queue in queues if queue.cohort for one in queue.flavors}
    left = []
    for name, one in sorted(shared.items()):
        node = types.get(name)
        if node is not None:
            nominal = {
                resource: max(0, node.nodes * node.resources[resource] - taken[name][resource])
                for resource in one.nominal
                if resource in node.resources
            }
            left.append(replace(one, nominal=nominal, borrowing=None))
    return _covering(left)


def applied(policy: Policy) -> Policy:
    """Return a policy that was applied."""
    is_new = policy.status in (PolicyStatus.CREATING, PolicyStatus.CREATE_FAILED)
    is_changed = policy.status in (PolicyStatus.UPDATING, PolicyStatus.UPDATE_FAILED)
    status = PolicyStatus.CREATED if is_new else policy.status
    return replace(policy, status=PolicyStatus.UPDATED if is_changed else status, failure="")


def failed(policy: Policy, why: str) -> Policy:
    """Return a policy that could not be applied or removed."""
    if policy.is_going:
        status = PolicyStatus.DELETE_FAILED
    elif policy.status in (PolicyStatus.CREATING, PolicyStatus.CREATE_FAILED):
        status = PolicyStatus.CREATE_FAILED
    else:
        status = PolicyStatus.UPDATE_FAILED
    return replace(policy, status=status, failure=why)


def _node(types: Mapping[str, NodeType], name: str) -> NodeType:
    node = types.get(name)
    if node is None:
        known = ", ".join(sorted(types)) or "none"
        raise ValueError(f"{name}: the cluster has no such nodes; its instance types: {known}")
    return node


def _resources(amount: InstanceAmount, node: NodeType) -> dict[str, int]:
    """Return the resources of an amount; those that it does not name follow in proportion."""
    if amount.instances is not None:
        return {name: one * amount.instances for name, one in node.resources.items()}
    share, is_accelerated = _share(amount, node)
    found = {
        name: int(one * share) if is_accelerated or name in (CPU, MEMORY) else 0
        for name, one in node.resources.items()
    }
    for name in found:
        if name in ACCELERATORS:
            found[name] = amount.accelerators or 0
        elif name.startswith(_MIG):
            found[name] = amount.partitions if name == _partition(amount) else 0
    if amount.cpus is not None:
        found[CPU] = round(amount.cpus * 1000)
    if amount.memory_gib is not None:
        found[MEMORY] = round(amount.memory_gib * _GIB)
    return found


def _share(amount: InstanceAmount, node: NodeType) -> tuple[Fraction, bool]:
    """Return the number of nodes that an amount is, and whether it has accelerators."""
    if amount.accelerators is not None:
        there = next((node.resources[one] for one in ACCELERATORS if node.resources.get(one)), 0)
        if not there and amount.accelerators:
            raise ValueError(f"{amount.instance_type}: its nodes have no accelerators")
        if amount.accelerators:
            return Fraction(amount.accelerators, there), True
    if amount.partition:
        there = node.resources.get(_partition(amount), 0)
        if not there:
            raise ValueError(f"{amount.instance_type}: its nodes have no {_partition(amount)}")
        return Fraction(amount.partitions, there), True
    if amount.cpus is not None:
        return Fraction(round(amount.cpus * 1000), node.resources[CPU]), False
    if amount.memory_gib is not None:
        return Fraction(round(amount.memory_gib * _GIB), node.resources[MEMORY]), False
    return Fraction(0), False


def _partition(amount: InstanceAmount) -> str:
    return f"nvidia.com/{amount.partition}"


def _covering(flavors: Sequence[FlavorQuota]) -> tuple[FlavorQuota, ...]:
    """Return flavors that all have the same resources: all flavors of a Kueue queue must."""
    names = sorted({name for one in flavors for name in (*one.nominal, *(one.borrowing or ()))})
    return tuple(
        replace(
            one,
            nominal={name: one.nominal.get(name, 0) for name in names},
            borrowing=None
            if one.borrowing is None
            else {name: one.borrowing.get(name, 0) for name in names},
        )
        for one in flavors
    )
