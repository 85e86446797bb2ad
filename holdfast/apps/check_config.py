"""What a node is checked against: the file that ``holdfast check node --config`` names."""

from dataclasses import dataclass, field
from pathlib import Path

from holdfast.apps.agent_config import ExpectedDevices
from holdfast.detectors.instance_types import equipment_of
from holdfast.detectors.thresholds import Floors


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

    expected: ExpectedDevices = field(default_factory=ExpectedDevices)
    thresholds: dict[str, Floors] = field(default_factory=dict)
    """The least of what is measured: a table for each instance type, and ``default`` for all. What
    is left out is as delivered; 0 takes a threshold away."""

    def __post_init__(self) -> None:
        kind = self.instance_type
        if kind is not None and equipment_of(kind) is None and kind not in self.thresholds:
            raise ValueError(
                f"instance_type: nothing is known of {kind!r}; leave it out and say under "
                "[expected] what the node should have"
            )
