"""How the controller uses a Slurm cluster: the table ``slurm`` of its configuration."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

STATE_DIR: Final = Path("/var/lib/holdfast")
"""Where the controller keeps its state if nothing else is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings:
    """One Slurm cluster."""

    report_dir: Path
    """Where the agents of all nodes write their reports: a directory that they share with the
    controller, the ``report_dir`` of their own table ``slurm``."""

    state_dir: Path = STATE_DIR
    """Where the controller keeps what it must not forget; on a disk that outlives the machine if
    another is to take over. Of several controllers of one directory, one acts."""

    conf: Path | None = None
    """``slurm.conf``; where Slurm's commands look for it if left out. Providers get it, too."""

    poll: timedelta = timedelta(seconds=2)
    """Time between two looks at the nodes. A changed report is heard of at once."""

    timeout: timedelta = timedelta(seconds=15)
    """For one of Slurm's commands, before it is killed. While slurmctld is away, one takes 4 s."""

    def __post_init__(self) -> None:
        for key in ("poll", "timeout"):
            if getattr(self, key) <= timedelta(0):
                raise ValueError(f"{key} must be longer than 0s, got {getattr(self, key)}")
