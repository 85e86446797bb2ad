"""What nodes are checked against: the file that ``--config`` of ``holdfast check`` names."""

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.host.deep_checks.contract import PAIR_TIME
from holdfast.apps.agent.config import ExpectedDevices
from holdfast.detectors.instance_types import equipment_of
from holdfast.detectors.thresholds import Thresholds

SHORTEST_PAIR_TIME: Final = timedelta(milliseconds=50)
LONGEST_PAIR_TIME: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckConfig:
    """How a node is checked. The options of the command line win over the file."""

    root: Path = Path("/")
    """Where the machine's own ``/proc`` and ``/sys`` are below, such as ``"/host"`` in a
    container."""

    command_path: str | None = None
    """Folders with commands such as ``dcgmi``, separated by colons; ``PATH`` and the places where
    AWS installs its own if left out."""

    instance_type: str | None = None
    """Such as ``"p5.48xlarge"``; on Amazon EC2 the machine knows, if left out."""

    disk: Path = Path("/var/tmp")  # noqa: S108 - a folder of its own is made in it
    """A directory on the disk that is to be written to."""

    fabric_provider: str = "efa"
    """Libfabric's provider for ``fi_pingpong`` between nodes, such as ``"tcp"``."""

    pair_time: timedelta = PAIR_TIME
    """How long each of three things is measured over TCP between nodes: latency, and bandwidth in
    both directions."""

    expected: ExpectedDevices = field(default_factory=ExpectedDevices)
    thresholds: dict[str, Thresholds] = field(default_factory=dict)
    """The least of each rate and the most of each time: a table for each instance type, and
    ``default`` for all. What is left out is as delivered; 0 takes a threshold away."""

    def __post_init__(self) -> None:
        if not SHORTEST_PAIR_TIME <= self.pair_time <= LONGEST_PAIR_TIME:
            raise ValueError(f"pair_time must be from 50ms to 10s, got {self.pair_time}")
        kind = self.instance_type
        if kind is not None and equipment_of(kind) is None and kind not in self.thresholds:
            raise ValueError(
                f"instance_type: unknown instance type {kind!r}; omit it and list the expected "
                "devices under [expected]"
            )
