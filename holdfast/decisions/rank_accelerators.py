"""The accelerator of each rank of a hung job: which it is, and what NVML reports of it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.decisions.kernel_causes import pci_address

QUERY: Final = "index,uuid,pci.bus_id,memory.used,memory.total,utilization.gpu"
"""Fields that nvidia-smi is asked for, which reads them through NVML."""

_CHARS: Final = 100
_DEVICES_LIMIT: Final = 64
_LONGEST_NUMBER: Final = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """State of an accelerator."""

    name: str
    """Index such as ``0``, or the UUID of an instance of a MIG GPU."""

    uuid: str = ""
    bus_id: str = ""
    """PCI address; empty if unknown."""

    used_mib: int | None = None
    """Memory in use; None if unknown, as for a GPU that is lost."""

    total_mib: int | None = None
    utilization: int | None = None
    """Percent of the last sample period, of up to a second, in which a kernel ran; None if unknown,
    as for an instance of a MIG GPU. A kernel of NCCL that waits counts as one that runs."""

    @property
    def label(self) -> str:
        """Return the name for people, such as ``GPU 0``."""
        return f"GPU {self.name}" if self.name.isdecimal() else self.name

    @property
    def text(self) -> str:
        """Return the state, such as ``GPU 0: 512 of 81559 MiB, utilization 100 %``."""
        name = self.label
        if self.used_mib is None:
            return f"{name}: unreadable"
        total = "" if self.total_mib is None else f" of {self.total_mib}"
        use = "" if self.utilization is None else f", utilization {self.utilization} %"
        return f"{name}: {self.used_mib}{total} MiB{use}"


def device_of(
    devices: Sequence[Accelerator], visible: str | None, local_rank: int
) -> Accelerator | None:
    """Return the accelerator of a rank, by the convention of PyTorch; None if it has none.

    A rank uses the device of its local rank among the visible ones, or the only visible one.

    Args:
        devices: those of the node, by index.
        visible: its CUDA_VISIBLE_DEVICES; None if it is not set.
        local_rank: number of the rank on its node.

    """
    if visible is None:
        seen = [one for one in devices if one.name.isdecimal()]
        return next((one for one in seen if int(one.name) == local_rank), None)
    names = [name.strip() for name in visible.split(",")]
    if not (local_rank < len(names) or len(names) == 1):
        return None
    name = names[local_rank if local_rank < len(names) else 0]
    if not name or name.startswith("-"):
        return None
    return next((one for one in devices if name == one.name or one.uuid.startswith(name)), None)


def is_at(device: Accelerator, address: tuple[int, int, int]) -> bool:
    """Return whether a device has a PCI address."""
    return bool(device.bus_id) and pci_address(device.bus_id) == address


def device_of_row(row: str) -> Accelerator | None:
    """Return the device of a row of nvidia-smi with the fields of ``QUERY``; None if invalid."""
    fields = [field.strip()[:_CHARS] for field in row.split(",")]
    if len(fields) != QUERY.count(",") + 1 or not fields[0].isdecimal():
        return None
    index, uuid, bus_id, used, total, use = fields
    return Accelerator(
        name=index,
        uuid=uuid,
        bus_id=bus_id if pci_address(bus_id) else "",
        used_mib=_number(used),
        total_mib=_number(total),
        utilization=_number(use),
    )


def _number(text: str) -> int | None:
    """Return a number; None for a text such as ``[N/A]`` or ``[GPU is lost]``."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER
    return int(text) if is_number else None
