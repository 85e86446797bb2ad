"""Settings of the controller on Slurm: the table ``slurm`` of its configuration."""

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final

from holdfast.adapters.slurm.commands.comment import MAX_RETRY_LIMIT
from holdfast.kit.ranges import require_longer_than_zero, require_not_negative

STATE_DIR: Final = Path("/var/lib/holdfast")
"""Default directory of the controller's state."""


class RequeueJobs(StrEnum):
    """Batch jobs without ``auto-resume`` in their Comment that are resumed."""

    NONE = "none"
    """Only jobs that request auto-resume."""

    ALL = "all"
    """All jobs that Slurm may requeue, as AWS ParallelCluster does with ``#SBATCH --requeue``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """The deep health check of a node: an exclusive job on that node."""

    command: tuple[str, ...] = ("holdfast", "check", "node")
    """Command of the job, at the same path on the node as on the controller's machine. The node
    passes if it exits with 0. Exit codes 2, 126 and 127, or a signal, are no verdict: the check is
    repeated."""

    pair_command: tuple[str, ...] = (
        "srun", "--nodes=2", "--ntasks-per-node=1",
        "holdfast", "check", "pair", "--rank-from", "slurm", "--wait", "2m",
    )  # fmt: skip
    """Command of a job on two nodes that tests them with each other. The pair passes if it exits
    with 0 and fails with 1; other exit codes are no verdict, and are ignored."""

    options: tuple[str, ...] = ()
    """More options of ``sbatch``, such as ``"--account=admin"`` or ``"--time=3:00:00"``."""

    def __post_init__(self) -> None:
        for key in ("command", "pair_command"):
            if not getattr(self, key):
                raise ValueError(f"{key}: empty, expected a command")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings:
    """Settings of one Slurm cluster."""

    report_dir: Path
    """Directory of the reports of all agents, which the nodes share with the controller: the
    ``report_dir`` of the agents' own table ``slurm``."""

    state_dir: Path = STATE_DIR
    """Directory of the controller's state; for failover, on a disk that outlives the machine. Of
    several controllers of one directory, one acts."""

    conf: Path | None = None
    """Path of ``slurm.conf``, also for providers; if left out, the default of Slurm's commands."""

    poll: timedelta = timedelta(seconds=2)
    """Poll interval of the nodes. A changed report is noticed at once."""

    timeout: timedelta = timedelta(seconds=15)
    """Timeout of one Slurm command. While slurmctld is down, a command takes 4 s."""

    requeue_jobs: RequeueJobs = RequeueJobs.NONE
    """Batch jobs without ``auto-resume`` in their Comment that are resumed."""

    max_retries: int = 10
    """Restarts after node faults, for a job without ``max-retry``."""

    spares: dict[str, int] = field(default_factory=dict)
    """Number of idle nodes to reserve in each partition for jobs that are resumed."""

    after_replacement: tuple[str, ...] = ()
    """Command to run for a machine that has replaced another, such as
    ``["/etc/holdfast/renewed"]``; the node name is its last argument. Until it exits with 0, no job
    gets the node. It runs on the controller's machine, and again if the controller ended
    meanwhile."""

    after_replacement_timeout: timedelta = timedelta(minutes=10)
    """Timeout of that command. A failed command is run again every minute."""

    check: CheckSettings = field(default_factory=CheckSettings)

    off_after: timedelta = timedelta(minutes=2)
    """Time after which a machine that does not respond counts as off, once its provider has
    accepted the order to reboot or replace it. EC2 powers off an instance that does not shut down
    by itself within minutes. Until then, no job restarts that may still run there."""

    def __post_init__(self) -> None:
        require_longer_than_zero(self, "poll", "timeout", "after_replacement_timeout")
        require_not_negative(self, "off_after")
        if not 0 <= self.max_retries <= MAX_RETRY_LIMIT:
            raise ValueError(
                f"max_retries must be from 0 to {MAX_RETRY_LIMIT}, got {self.max_retries}"
            )
        for partition, count in self.spares.items():
            if count < 1:
                raise ValueError(f"spares of {partition} must be 1 or more, got {count}")
