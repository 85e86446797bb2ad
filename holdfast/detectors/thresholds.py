"""The least that a node must reach in a deep health check, by its instance type.

Nobody publishes such numbers in full. What is here finds what is broken, not what is a little slow;
``holdfast check baseline`` makes tighter floors from a fleet's own results.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Floors:
    """The least of each value that is measured; not judged if left out."""

    cpu_ops_per_s: float | None = None
    """Rounds of ``stress-ng --cpu`` with the method ``matrixprod`` on all processors, by second."""

    memory_ops_per_s: float | None = None
    """Rounds of ``stress-ng --vm`` on all its workers, by second."""

    disk_write_mb_per_s: float | None = None
    """Direct writes of ``stress-ng --hdd``, MB by second."""

    disk_read_mb_per_s: float | None = None
    """Direct reads of ``stress-ng --hdd``, MB by second."""

    nccl_gb_per_s: float | None = None
    """Bus bandwidth of ``all_reduce_perf`` between the GPUs of the node, GB by second, at the
    largest size."""

    def __post_init__(self) -> None:
        for name, value in self.given.items():
            if value < 0:
                raise ValueError(f"{name} must not be negative, got {value:g}")

    @property
    def given(self) -> dict[str, float]:
        """Those that are set."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


ANY_NODE: Final = Floors(disk_write_mb_per_s=10, disk_read_mb_per_s=10)
"""Below a tenth of what the slowest disk of EC2's present generation is given (gp3: 125 MiB/s,
https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html), a disk is stalled."""

_SWITCHED: Final = Floors(nccl_gb_per_s=80)
"""HyperPod's deep health check asks for 80 GB/s of two such nodes (an example of a failure in the
developer guide names it), and GPUs behind NVSwitches reach 200 to 480 within one; the same GPUs
over PCIe reach about 14."""

_BY_FAMILY: Final = {
    "p4d": _SWITCHED,
    "p4de": _SWITCHED,
    "p5": _SWITCHED,
    "p5e": _SWITCHED,
    "p5en": _SWITCHED,
    "p6-b200": _SWITCHED,
}

EVERY_TYPE: Final = "default"
"""The key of floors that hold for every instance type."""


def floors_of(instance_type: str, overrides: Mapping[str, Floors]) -> Floors:
    """The floors of a node.

    Args:
        instance_type: of the node, also with SageMaker's ``ml.`` before it; may be unknown.
        overrides: by instance type or ``EVERY_TYPE``; what is given there wins, the type first.

    """
    kind = instance_type.removeprefix("ml.")
    layers = (
        _BY_FAMILY.get(kind.partition(".")[0]),
        overrides.get(EVERY_TYPE),
        overrides.get(f"ml.{kind}"),
        overrides.get(kind),
    )
    floors = ANY_NODE
    for layer in layers:
        if layer is not None:
            floors = replace(floors, **layer.given)
    return floors


def shortfalls(measured: Mapping[str, float], floors: Floors) -> list[str]:
    """One sentence for each measured value that is below its floor."""
    return [
        f"{name} is {measured[name]:.4g}, and should be at least {least:g}"
        for name, least in floors.given.items()
        if name in measured and measured[name] < least
    ]
