"""Settings of node checks: the file that ``--config`` of ``holdfast check`` names."""

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.host.deep_checks.contract import PAIR_TIME
from holdfast.apps.agent.config import ExpectedDevices
from holdfast.detectors.instance_types import equipment_of
from holdfast.detectors.thresholds import Thresholds

SHORTEST_PAIR_TIME: Final = timedelta(milliseconds=50)
LARGEST_REPLAY: Final = 10_000
SHORTEST_REPLAY: Final = timedelta(seconds=1)
LONGEST_REPLAY: Final = timedelta(hours=1)
LONGEST_PAIR_TIME: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckConfig:
    """Settings of a node check. Command-line options override the file."""

    root: Path = Path("/")
    """Directory above the machine's ``/proc`` and ``/sys``, such as ``"/host"`` in a container."""

    command_path: str | None = None
    """Directories of commands such as ``dcgmi``, separated by colons; if left out, ``PATH`` and the
    directories in which AWS installs its own."""

    instance_type: str | None = None
    """Instance type, such as ``"p5.48xlarge"``; detected on Amazon EC2 if left out."""

    disk: Path = Path("/var/tmp")  # noqa: S108 - a folder of its own is made in it
    """Directory on the disk to test."""

    fabric_provider: str = "efa"
    """Libfabric provider of ``fi_pingpong`` between nodes, such as ``"tcp"``."""

    pair_time: timedelta = PAIR_TIME
    """Duration of each of the three TCP measurements between nodes: latency, and bandwidth in both
    directions."""

    replay_command: tuple[str, ...] = ()
    """Command of the test ``replay`` that does the steps of a job in replay mode, such as
    ``["python", "train.py"]``; if left out, a built-in transformer block is trained."""

    replay_steps: int = 20
    """Number of steps of the test ``replay``."""

    replay_timeout: timedelta = timedelta(minutes=10)
    """Time limit of the steps of the test ``replay``."""

    expected: ExpectedDevices = field(default_factory=ExpectedDevices)
    thresholds: dict[str, Thresholds] = field(default_factory=dict)
    """Minimum of each rate and maximum of each time: a table per instance type, and ``default`` for
    all. Omitted values keep their defaults; 0 removes a threshold."""

    def __post_init__(self) -> None:
        if not SHORTEST_PAIR_TIME <= self.pair_time <= LONGEST_PAIR_TIME:
            raise ValueError(f"pair_time must be from 50ms to 10s, got {self.pair_time}")
        if not 1 <= self.replay_steps <= LARGEST_REPLAY:
            raise ValueError(
                f"replay_steps must be from 1 to {LARGEST_REPLAY}, got {self.replay_steps}"
            )
        if not SHORTEST_REPLAY <= self.replay_timeout <= LONGEST_REPLAY:
            raise ValueError(f"replay_timeout must be from 1s to 1h, got {self.replay_timeout}")
        kind = self.instance_type
        if kind is not None and equipment_of(kind) is None and kind not in self.thresholds:
            raise ValueError(
                f"instance_type: unknown instance type {kind!r}; omit it and list the expected "
                "devices under [expected]"
            )
