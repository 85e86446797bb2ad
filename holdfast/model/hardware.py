"""Devices of a node with their last readings, for display: nothing decides by them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

DEVICES_LIMIT: Final = 64
"""Maximum number of devices of a group; an instance has at most 32 network devices."""

VALUES_LIMIT: Final = 20
"""Maximum number of readings of a device."""

VALUE_CHARS: Final = 60
"""Maximum length of a text that a tool or the driver wrote."""


class DeviceKind(StrEnum):
    """Kind of devices that are read together."""

    GPU = "gpu"
    NVLINK = "nvlink"
    NEURON = "neuron"
    NETWORK = "network"
    MEMORY = "memory"
    """Memory controllers of the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device."""

    name: str
    """As in findings and in the kernel log, such as ``PCI:0000:b9:00`` or ``mlx5_0/1``."""

    model: str = ""
    """Product name; empty if the source does not report it."""

    values: Mapping[str, str] = field(default_factory=dict)
    """Readings by name, with units as the source writes them; unavailable ones are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGroup:
    """Devices of one kind, from one reading."""

    kind: DeviceKind
    read_at: datetime
    """Time of the last successful reading."""

    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions that apply to all devices, such as ``driver``."""

    devices: tuple[Device, ...] = ()
    left_out: int = 0
    """Number of devices beyond ``DEVICES_LIMIT``."""

    error: str = ""
    """Why a later reading failed; empty while readings succeed."""
