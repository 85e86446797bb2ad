"""Thresholds of deep health checks of a node or a pair of nodes, by instance type.

Complete figures are not published. These find what is broken, not what is a little slow; ``holdfast
check baseline`` derives tighter ones from a fleet's own results.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Minimum of each rate and maximum of each time (``_us``); missing ones are not checked."""

    cpu_ops_per_s: float | None = None
    """Rounds per second of ``stress-ng --cpu`` with the method ``matrixprod`` on all processors."""

    memory_ops_per_s: float | None = None
    """Rounds per second of ``stress-ng --vm`` on all its workers."""

    disk_write_mb_per_s: float | None = None
    """Direct writes of ``stress-ng --hdd``, MB per second."""

    disk_read_mb_per_s: float | None = None
    """Direct reads of ``stress-ng --hdd``, MB per second."""

    nccl_gb_per_s: float | None = None
    """Bus bandwidth of ``all_reduce_perf`` between the GPUs of the node, GB per second, at the
    largest size."""

    nccom_gb_per_s: float | None = None
    """Bus bandwidth of ``nccom-test allr`` between the Neuron cores of the node, GiB per second."""

    efa_loopback_mb_per_s: float | None = None
    """Bandwidth of ``fi_pingpong`` from an EFA device to itself with messages of 1 MiB, MB per
    second: the slowest device."""

    efa_loopback_us: float | None = None
    """Time of a small message from an EFA device to itself, microseconds: the slowest device."""

    pair_tcp_mb_per_s: float | None = None
    """Bandwidth of one TCP connection between two nodes, MB per second: the slower direction."""

    pair_tcp_us: float | None = None
    """Round-trip time of 64 bytes over TCP to the other node, microseconds: the median."""

    pair_fabric_mb_per_s: float | None = None
    """Bandwidth of ``fi_pingpong`` between two nodes with messages of 1 MiB, MB per second: the
    slowest of their devices."""

    pair_fabric_us: float | None = None
    """Time of a small message of ``fi_pingpong`` to the other node, microseconds: the slowest
    device."""

    pair_nccl_gb_per_s: float | None = None
    """Bus bandwidth of ``all_reduce_perf`` between all GPUs of two nodes, GB per second, at the
    largest size."""

    pair_nccom_gb_per_s: float | None = None
    """Bus bandwidth of ``nccom-test allr`` between all Neuron cores of two nodes, GiB per
    second."""

    def __post_init__(self) -> None:
        for name, value in self.given.items():
            if value < 0:
                raise ValueError(f"{name} must not be negative, got {value:g}")

    @property
    def given(self) -> dict[str, float]:
        """Thresholds that are set."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


def is_ceiling(measure: str) -> bool:
    """Return whether a measure is a time, of which less is better."""
    return measure.endswith("_us")


ANY_NODE: Final = Thresholds(
    disk_write_mb_per_s=10,
    disk_read_mb_per_s=10,
    efa_loopback_mb_per_s=200,
    pair_tcp_mb_per_s=10,
    pair_tcp_us=10_000,
    pair_fabric_mb_per_s=10,
    pair_fabric_us=10_000,
)
"""Below a tenth of what the slowest disk of EC2's present generation is given (gp3: 125 MiB/s,
https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html), a disk is stalled. A tenth
of what ``fi_pingpong`` shows with 1 MiB on p3dn, the oldest type with EFA, is 200 MB/s (2,122 in
its users' captures). One TCP connection of two EC2 instances may have 5 Gbit/s, 625 MB/s
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-network-bandwidth.html), and the
zones of a region are milliseconds apart, one digit of them: below 10 MB/s or beyond 10 ms a link is
broken, whatever the network."""

_SWITCHED: Final = Thresholds(nccl_gb_per_s=80, pair_nccl_gb_per_s=80)
"""HyperPod's deep health check asks for 80 GB/s of two nodes (an example of a failure in the
developer guide names it); pairs of p5 reach 380 to 480. GPUs behind NVSwitches reach 200 to 480
within one node; the same GPUs over PCIe reach about 14."""

_FOUR_CARDS: Final = replace(_SWITCHED, pair_nccl_gb_per_s=17)
"""Half of what healthy pairs reach over four EFA devices of 100 Gbit/s: 35 to 45 GB/s. The 80 of
HyperPod's example are more than the network of these types can carry."""

BY_FAMILY: Final = {
    "p4d": _FOUR_CARDS,
    "p4de": _FOUR_CARDS,
    "p5": _SWITCHED,
    "p5e": _SWITCHED,
    "p5en": _SWITCHED,
    "p6-b200": _SWITCHED,
}
"""Thresholds that override ``ANY_NODE`` for the instance types of a family."""

EVERY_TYPE: Final = "default"
"""Key of thresholds for every instance type."""


def thresholds_of(instance_type: str, overrides: Mapping[str, Thresholds]) -> Thresholds:
    """Return the thresholds of a node.

    Args:
        instance_type: of the node, with or without SageMaker's ``ml.``; may be unknown.
        overrides: by instance type or ``EVERY_TYPE``; they take precedence, the type first.

    """
    kind = instance_type.removeprefix("ml.")
    layers = (
        BY_FAMILY.get(kind.partition(".")[0]),
        overrides.get(EVERY_TYPE),
        overrides.get(f"ml.{kind}"),
        overrides.get(kind),
    )
    found = ANY_NODE
    for layer in layers:
        if layer is not None:
            found = replace(found, **layer.given)
    return found


def shortfalls(measured: Mapping[str, float], thresholds: Thresholds) -> list[str]:
    """Return one message for each measured value worse than its threshold; 0 is no threshold."""
    return [
        f"{name} is {measured[name]:.4g}, expected at "
        f"{'most' if is_ceiling(name) else 'least'} {bound:g}"
        for name, bound in thresholds.given.items()
        if name in measured and bound and _is_worse(name, measured[name], bound)
    ]


def _is_worse(name: str, value: float, bound: float) -> bool:
    return value > bound if is_ceiling(name) else value < bound
