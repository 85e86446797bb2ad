"""How the agent reports on Slurm: the table ``slurm`` of its configuration."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSlurm:
    """Reports to the controller in a file ``NODE.json``.

    The node is that of ``node``, or the host name up to its first dot.
    """

    report_dir: Path
    """A directory that all nodes share with the controller."""

    heartbeat: timedelta = timedelta(seconds=10)
    """Time between two signs of life there. Many nodes write to one file system, so it is longer
    than that of the agent itself; a fault is written at once."""

    def __post_init__(self) -> None:
        if self.heartbeat <= timedelta(0):
            raise ValueError(f"heartbeat must be longer than 0s, got {self.heartbeat}")
