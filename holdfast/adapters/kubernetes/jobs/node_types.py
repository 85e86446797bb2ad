"""Resources of nodes by instance type, from Node objects."""

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.model.team_queues import CPU, MEMORY, NodeType

TYPE_LABEL: Final = "node.kubernetes.io/instance-type"

_ML: Final = "ml."
"""Prefix of SageMaker's instance types; nodes outside SageMaker are labeled without it."""

_QUANTITY: Final = re.compile(r"([0-9]{1,20})(?:\.([0-9]{1,9}))?(m|k|[MGTPE]i?|Ki)?", re.ASCII)
_UNITS: Final[Mapping[str, Fraction]] = {
    "": Fraction(1),
    "m": Fraction(1, 1000),
    "k": Fraction(1000),
    "Ki": Fraction(1 << 10),
    **{unit: Fraction(1000**power) for power, unit in enumerate("MGTPE", 2)},
    **{f"{unit}i": Fraction(1 << 10 * power) for power, unit in enumerate("MGTPE", 2)},
}


def quantity(text: str) -> Fraction | None:
    """Return a quantity of Kubernetes; None if it is not one of a resource of a node."""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return None
    whole, part, unit = found.groups()
    return Fraction(f"{whole}.{part or 0}") * _UNITS[unit or ""]


def node_types(nodes: Iterable[Json]) -> dict[str, NodeType]:
    """Return the nodes by SageMaker's instance type.

    Nodes with and without the prefix ``ml.`` in their label are of two types of one name: those
    with it count.
    """
    found: dict[str, NodeType] = {}
    for node in nodes:
        label = (node["metadata"].get("labels") or {}).get(TYPE_LABEL, "")
        if not label:
            continue
        name = label if label.startswith(_ML) else f"{_ML}{label}"
        resources = _resources((node.get("status") or {}).get("allocatable") or {})
        known = found.get(name)
        if known is None or (known.label != label and label.startswith(_ML)):
            found[name] = NodeType(label=label, nodes=1, resources=resources)
        elif known.label == label:
            found[name] = _joined(known, resources)
    return found


def _joined(known: NodeType, more: Mapping[str, int]) -> NodeType:
    names = known.resources.keys() | more.keys()
    largest = {name: max(known.resources.get(name, 0), more.get(name, 0)) for name in names}
    return NodeType(label=known.label, nodes=known.nodes + 1, resources=largest)


def _resources(allocatable: Mapping[str, str]) -> dict[str, int]:
    """Return CPUs in thousandths, memory in bytes, and counts of extended resources."""
    found = {}
    for name, text in allocatable.items():
        amount = quantity(str(text))
        if amount is None or not (name in (CPU, MEMORY) or "/" in name):
            continue
        found[name] = int(amount * 1000) if name == CPU else int(amount)
    return {CPU: 0, MEMORY: 0, **found}
