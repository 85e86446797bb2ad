"""Registry of the parts of a deep health check, in the order in which they run.

Fast parts come first, so that a missing GPU is reported at once.
"""

from dataclasses import dataclass
from typing import Final

from holdfast.adapters.host.deep_checks import aws, efa_loopback, nvidia, stress
from holdfast.adapters.host.deep_checks.contract import Part
from holdfast.model.names import DeepCheck


@dataclass(frozen=True, slots=True)
class PartRow:
    """One part of the deep health check."""

    name: str
    what: str
    """Description of what the part verifies."""

    part: Part
    kind: DeepCheck = DeepCheck.STRESS


ROWS: Final = (
    PartRow("gpu", "all GPUs are present and healthy", nvidia.gpus),
    PartRow("nvlink", "all NVLinks of each GPU are active", nvidia.nvlinks),
    PartRow("neuron", "all Neuron devices and cores are present", aws.neuron),
    PartRow("efa", "all EFA devices are present", aws.efa),
    PartRow("cpu", "all processors compute correctly under load", stress.processors),
    PartRow("memory", "memory retains data", stress.memory),
    PartRow("disk", "the disk retains data and does not stall", stress.disk),
    PartRow(
        "efa-loopback",
        "every EFA device passes a loopback test",
        efa_loopback.efa_loopback,
        DeepCheck.CONNECTIVITY,
    ),
    PartRow(
        "nccl",
        "collectives between the GPUs are correct and fast",
        nvidia.collectives,
        DeepCheck.CONNECTIVITY,
    ),
    PartRow(
        "nccom",
        "collectives between the Neuron cores are correct and fast",
        aws.collectives,
        DeepCheck.CONNECTIVITY,
    ),
    PartRow("dcgm", "DCGM diagnostics find no fault", nvidia.diagnosis),
)
