"""Settings of the agent on Slurm: the table ``slurm`` of its configuration."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from holdfast.kit.ranges import require_longer_than_zero


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSlurm:
    """Writes the agent's reports for the controller to a file ``NODE.json``.

    The name of the node is ``node``, or the host name up to its first dot.
    """

    report_dir: Path
    """Directory that all nodes share with the controller."""

    heartbeat: timedelta = timedelta(seconds=10)
    """Interval of the heartbeats in that directory. Many nodes write to one file system, so it is
    longer than the agent's own interval; a fault is written at once."""

    def __post_init__(self) -> None:
        require_longer_than_zero(self, "heartbeat")
