"""Expected devices of a node by its instance type on Amazon EC2.

Sources: the specifications of EC2's accelerated computing instances
(https://aws.amazon.com/ec2/instance-types/accelerated-computing/); for Neuron devices the "Neuron
Instances" table of the Neuron SDK's guide, for EFA the table of network cards in EC2's guide, for
NVLinks NVIDIA's data sheets: V100 300 GB/s over 6 links, A100 600 over 12, H100 and H200 900 over
18, B200 1,800 over 18.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """Expected devices of a node, and other facts that its detectors need."""

    gpus: int | None = None
    efa: int | None = None
    """Number of EFA devices that it certainly has."""

    possible_efa: int | None = None
    """Number of EFA devices that its type can have; a node may be launched with fewer."""

    neuron_devices: int | None = None
    neuron_cores: int | None = None
    """Number of cores that programs see by default: on trn2 two physical cores are one."""

    nvlinks: int | None = None
    """Number of active NVLinks of each GPU."""

    driver: int | None = None
    """Major version of NVIDIA's driver, such as 570."""

    neuron_counters: frozenset[str] = frozenset()
    """Neuron devices, such as ``nd3``, whose errors the driver counts."""

    at_once: bool = False
    """Whether a single sample is evidence. Right after a boot devices may appear late."""

    @property
    def sources(self) -> frozenset[str]:
        """Samples that are needed to check these devices."""
        counts = {
            "nvidia-smi": self.gpus,
            "infiniband": self.efa,
            "neuron": self.neuron_devices,
        }
        return frozenset(name for name, count in counts.items() if count)


UNKNOWN_EQUIPMENT: Final = Equipment()


def _sizes(
    family: str,
    *,
    gpus: dict[str, int] | None = None,
    neuron_devices: dict[str, int] | None = None,
    cores_each: int | None = None,
    efa: int | None = None,
    nvlinks: int | None = None,
) -> dict[str, Equipment]:
    found = {
        f"{family}.{size}": Equipment(gpus=count, possible_efa=efa, nvlinks=nvlinks)
        for size, count in (gpus or {}).items()
    }
    return found | {
        f"{family}.{size}": Equipment(
            neuron_devices=count,
            neuron_cores=count * cores_each if cores_each else None,
            possible_efa=efa,
        )
        for size, count in (neuron_devices or {}).items()
    }


_ONE: Final = dict.fromkeys(("xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge"), 1)
_G_SIZES: Final = _ONE | {"12xlarge": 4, "24xlarge": 4, "48xlarge": 8}

INSTANCE_TYPES: Final = {
    **_sizes("p3", gpus={"2xlarge": 1, "8xlarge": 4, "16xlarge": 8}),
    **_sizes("p3dn", gpus={"24xlarge": 8}, nvlinks=6),
    **_sizes("p4d", gpus={"24xlarge": 8}, efa=4, nvlinks=12),
    **_sizes("p4de", gpus={"24xlarge": 8}, efa=4, nvlinks=12),
    **_sizes("p5", gpus={"4xlarge": 1}),
    **_sizes("p5", gpus={"48xlarge": 8}, efa=32, nvlinks=18),
    **_sizes("p5e", gpus={"48xlarge": 8}, efa=32, nvlinks=18),
    **_sizes("p5en", gpus={"48xlarge": 8}, efa=16, nvlinks=18),
    **_sizes("p6-b200", gpus={"48xlarge": 8}, efa=8, nvlinks=18),
    **_sizes("g4dn", gpus=_ONE | {"12xlarge": 4, "metal": 8}),
    **_sizes("g5", gpus=_G_SIZES),
    **_sizes("g6", gpus=_G_SIZES),
    **_sizes("g6e", gpus=_G_SIZES),
    **_sizes("gr6", gpus={"4xlarge": 1, "8xlarge": 1}),
    **_sizes("trn1", neuron_devices={"2xlarge": 1}, cores_each=2),
    **_sizes("trn1", neuron_devices={"32xlarge": 16}, cores_each=2, efa=8),
    **_sizes("trn1n", neuron_devices={"32xlarge": 16}, cores_each=2, efa=16),
    **_sizes("trn2", neuron_devices={"48xlarge": 16}, cores_each=4, efa=16),
    **_sizes("inf1", neuron_devices={"xlarge": 1, "2xlarge": 1, "6xlarge": 4, "24xlarge": 16}),
    **_sizes("inf2", neuron_devices={"xlarge": 1, "8xlarge": 1}, cores_each=2),
    **_sizes("inf2", neuron_devices={"24xlarge": 6, "48xlarge": 12}, cores_each=2),
}


def equipment_of(instance_type: str) -> Equipment | None:
    """Return the devices of an instance type, also with SageMaker's ``ml.``; None if unknown."""
    return INSTANCE_TYPES.get(instance_type.removeprefix("ml."))
