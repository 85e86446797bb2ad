"""Number of nodes that waiting pods need beyond the empty ones: first fit, largest pod first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.model.pod_demand import WaitingPod


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A node without pods, present or expected."""

    key: str
    """Its key in ``WaitingPod.fits``."""

    resources: Mapping[str, int] | None
    """As ``NodeShape.resources``: without them, every pod is assumed to fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """Nodes that may be added to a group."""

    group: str
    """Name of the group, its key in ``WaitingPod.fits``."""

    resources: Mapping[str, int] | None
    """Those of one node, as in ``Place``."""

    room: int
    """Maximum number of further nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Where waiting pods would be placed."""

    used: frozenset[str]
    """Keys of the places that some pod would use."""

    added: Mapping[str, tuple[WaitingPod, ...]]
    """By group, the first pod of each node to add."""


@dataclass(slots=True)
class _Node:
    key: str
    free: dict[str, int] | None

    def takes(self, pod: WaitingPod) -> bool:
        """Place a pod if it fits."""
        if self.key not in pod.fits or not holds(self.free, pod):
            return False
        if self.free is not None:
            for name, amount in pod.resources.items():
                self.free[name] = self.free.get(name, 0) - amount
        return True


def holds(resources: Mapping[str, int] | None, pod: WaitingPod) -> bool:
    """Return whether a node with these free resources has enough for a pod."""
    return resources is None or all(
        amount <= resources.get(name, 0) for name, amount in pod.resources.items() if amount
    )


def packed(
    pods: Sequence[WaitingPod], places: Sequence[Place], extensions: Sequence[Extension]
) -> Packing:
    """Place pods on empty nodes in their order, then on nodes to add.

    A pod for which there is neither is left out.

    Args:
        pods: in any order.
        places: empty nodes, preferred ones first.
        extensions: groups in the order of preference.

    """
    nodes = [_Node(one.key, _copied(one.resources)) for one in places]
    added: dict[str, list[WaitingPod]] = {}
    used = set()
    for pod in sorted(pods, key=_largest_first):
        there = next((one for one in nodes if one.takes(pod)), None)
        if there is not None:
            used.add(there.key)
            continue
        for one in extensions:
            first = added.setdefault(one.group, [])
            node = _Node(one.group, _copied(one.resources))
            if len(first) < one.room and node.takes(pod):
                nodes.append(node)
                first.append(pod)
                break
    return Packing(
        used=frozenset(used), added={group: tuple(pods) for group, pods in added.items() if pods}
    )


def _copied(resources: Mapping[str, int] | None) -> dict[str, int] | None:
    return None if resources is None else dict(resources)


def _largest_first(pod: WaitingPod) -> tuple[int, list[tuple[str, int]], str]:
    """Sort key: pods with most devices first, since they are the hardest to place."""
    devices = sum(amount for name, amount in pod.resources.items() if "/" in name)
    return (-devices, sorted((name, -amount) for name, amount in pod.resources.items()), pod.name)
