"""How the controller uses a Slurm cluster: the table ``slurm`` of its configuration."""

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final

from holdfast.adapters.slurm.commands.comment import MAX_RETRY_LIMIT

STATE_DIR: Final = Path("/var/lib/holdfast")
"""Where the controller keeps its state if nothing else is said."""


class RequeueJobs(StrEnum):
    """Which batch jobs are resumed that do not say what they want."""

    NONE = "none"
    """Only those that ask for it."""

    ALL = "all"
    """All that Slurm may requeue, as AWS ParallelCluster does with ``#SBATCH --requeue``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """The deep health check of a node: a job that has its node for itself."""

    command: tuple[str, ...] = ("holdfast", "check", "node")
    """What the job runs, found on the node as on the machine of the controller. The node passes if
    it ends with 0. With 2, 126, 127 or by a signal it says nothing, and is run again."""

    pair_command: tuple[str, ...] = (
        "srun", "--nodes=2", "--ntasks-per-node=1",
        "holdfast", "check", "pair", "--rank-from", "slurm", "--wait", "2m",
    )  # fmt: skip
    """What a job over two nodes runs to test them with each other. It passes if it ends with 0 and
    fails with 1; anything else says nothing, and counts for nothing."""

    options: tuple[str, ...] = ()
    """More options of ``sbatch``, such as ``"--account=admin"`` or ``"--time=3:00:00"``."""

    def __post_init__(self) -> None:
        for key in ("command", "pair_command"):
            if not getattr(self, key):
                raise ValueError(f"{key}: there is nothing to run")


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

    requeue_jobs: RequeueJobs = RequeueJobs.NONE
    """Which batch jobs are resumed that do not say what they want."""

    max_retries: int = 10
    """Restarts that faults of nodes may cost a job that does not say ``max-retry``."""

    spares: dict[str, int] = field(default_factory=dict)
    """How many idle nodes of each partition are kept for jobs that are resumed."""

    after_replacement: tuple[str, ...] = ()
    """A command for a machine that has replaced another, such as ``["/etc/holdfast/renewed"]``; it
    gets the name of the node as its last argument. Until it ends with 0, no job gets the node. It
    runs beside the controller, and again if that ended meanwhile."""

    after_replacement_timeout: timedelta = timedelta(minutes=10)
    """For that command, before it is killed. One that failed is run again every minute."""

    check: CheckSettings = field(default_factory=CheckSettings)

    off_after: timedelta = timedelta(minutes=2)
    """How long after its owner took the order to reboot or replace it a machine that does not
    answer counts as off. EC2 powers an instance off that does not shut down by itself within
    minutes. Until then, no job starts anew that may still run there."""

    def __post_init__(self) -> None:
        for key in ("poll", "timeout", "after_replacement_timeout"):
            if getattr(self, key) <= timedelta(0):
                raise ValueError(f"{key} must be longer than 0s, got {getattr(self, key)}")
        if self.off_after < timedelta(0):
            raise ValueError(f"off_after must not be negative, got {self.off_after}")
        if not 0 <= self.max_retries <= MAX_RETRY_LIMIT:
            raise ValueError(
                f"max_retries must be from 0 to {MAX_RETRY_LIMIT}, got {self.max_retries}"
            )
        for partition, count in self.spares.items():
            if count < 1:
                raise ValueError(f"spares of {partition} must be 1 or more, got {count}")
