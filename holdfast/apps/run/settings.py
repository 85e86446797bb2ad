"""Settings of a local run: its options and its configuration file."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from holdfast.decisions.checkpoint_trust import CheckpointPolicy
from holdfast.decisions.log_rules import JobLogRule
from holdfast.decisions.loss_faults import LossLimits
from holdfast.decisions.policy import JobPolicy, RemediationPolicy
from holdfast.decisions.step_times import StallLimits
from holdfast.detectors.contract import Profile
from holdfast.kit.ranges import require_longer_than_zero, require_not_negative
from holdfast.kit.units import format_duration
from holdfast.model.checkpoints import Depth
from holdfast.model.jobs import LossAction


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNodePolicy(RemediationPolicy):
    """``RemediationPolicy`` with timeouts for machines that boot in a second."""

    heartbeat_timeout: timedelta = timedelta(seconds=5)
    """Ten heartbeat intervals: enough for an agent on a busy machine."""

    join_timeout: timedelta = timedelta(minutes=1)
    """Timeout from power-on to the agent's first report, on a busy machine."""

    reboot_timeout: timedelta = timedelta(minutes=1)
    """As ``join_timeout``."""

    replace_timeout: timedelta = timedelta(minutes=1)
    """As ``join_timeout``."""

    drain_timeout: timedelta = timedelta(minutes=1)
    """Should be longer than the grace period between SIGTERM and SIGKILL."""

    breaker_close_after: timedelta = timedelta(minutes=5)
    """As ``breaker_window``."""

    deep_check_timeout: timedelta = timedelta(minutes=5)
    """The check of a local machine takes a few seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalJobPolicy(JobPolicy):
    """``JobPolicy`` with timeouts for one machine."""

    wait_for_nodes: timedelta = timedelta(minutes=10)
    """Longer than ``replace_timeout``, so that a replacement can be ordered again."""

    settle: timedelta = timedelta(milliseconds=100)
    """Ten times the delay of a kernel message on its way to the controller."""

    checkpoint_depth: Depth = Depth.SIZES
    """How checkpoints are verified before each attempt: ``sizes`` compares names and lengths;
    ``hashes`` also compares checksums, which reads the whole checkpoint."""

    stall_factor: float = 10
    """A job seems to hang once no step was reported for this multiple of the usual pause between
    two steps: the 99th percentile of the last 512 pauses, after at least 20. Pauses up to twice the
    longest one are never suspicious. All ranks are then looked at, and the job is not stopped;
    ``--hang-timeout`` does that."""

    stall_floor: timedelta = timedelta(minutes=3)
    """Minimum pause that is suspicious. A checkpoint or an evaluation may take minutes."""

    stall_start: timedelta = timedelta(hours=1)
    """A job also seems to hang if it has not reported a step for this time since the start of an
    attempt. Once an attempt has reported one, five times the longest start counts instead, and at
    least ``stall_floor``. It is only reported. 0 for no limit of the first start, as for jobs that
    report no steps."""

    stall_silence: timedelta = timedelta(minutes=10)
    """While no steps are known, a job also seems to hang if none of its ranks has written output,
    used CPU time, network or an accelerator for this time. It is only reported. Downloads, and
    queues for data and licenses, may take minutes. 0 for no such limit."""

    straggler_factor: float = 1.15
    """A rank is reported as a straggler if its own part of a step takes at least this multiple of
    the median of the other ranks, over at least 4 windows of 40 seconds. 0 turns the samples
    off."""

    loss_action: LossAction = LossAction.ASK
    """What to do when a reported loss is NaN or infinite, or spikes: ``ask`` reports it and lets
    the job run, ``stop`` ends the job, ``rollback`` restarts it from the last checkpoint before
    that step, ``skip`` does so and names the step and the one before in ``HOLDFAST_SKIP_STEPS``. A
    loss may recover by itself, so that a person decides by default."""

    loss_window: int = 10
    """Number of losses whose mean a loss is compared with, as in Lightning's ``SpikeDetection``."""

    loss_tolerance: float = 2.0
    """A loss has spiked if it is above the one before, and differs from the mean by this multiple
    of the mean or more, as in Lightning's ``SpikeDetection``. 0 ignores spikes."""

    def __post_init__(self) -> None:
        JobPolicy.__post_init__(self)
        if self.stall_factor < 1:
            raise ValueError(f"stall_factor must be at least 1, got {self.stall_factor}")
        require_not_negative(self, "stall_floor", "stall_start", "stall_silence", "loss_tolerance")
        if self.straggler_factor and not self.straggler_factor > 1:
            raise ValueError(f"straggler_factor must be 0 or above 1, got {self.straggler_factor}")
        if self.loss_window < 1:
            raise ValueError(f"loss_window must be at least 1, got {self.loss_window}")

    @property
    def stall_limits(self) -> StallLimits:
        """Return when a pause between two steps is suspicious."""
        return StallLimits(
            factor=self.stall_factor,
            floor=self.stall_floor,
            start=self.stall_start,
            silence=self.stall_silence,
        )

    @property
    def loss_limits(self) -> LossLimits:
        """Return when a reported loss is a fault, and what follows."""
        return LossLimits(
            action=self.loss_action, window=self.loss_window, tolerance=self.loss_tolerance
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """Settings of the local machines."""

    boot_time: timedelta = timedelta(milliseconds=500)
    """Time from power-on to the start of the agent; real machines take minutes."""

    heartbeat: timedelta = timedelta(milliseconds=500)
    """Interval of an agent's heartbeats."""

    xid_profile: Profile = Profile.HYPERPOD
    """Classification of XID codes: ``hyperpod`` or ``nvidia``."""

    def __post_init__(self) -> None:
        require_not_negative(self, "boot_time")
        require_longer_than_zero(self, "heartbeat")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCheckpointPolicy(CheckpointPolicy):
    """``CheckpointPolicy`` with what a run does beside the choice."""

    watch: bool = True
    """Whether to verify each checkpoint in the background after its save, as ``holdfast checkpoint
    watch`` does."""

    restore_from: str = ""
    """Location of ``holdfast checkpoint mirror``. If the directory has no good checkpoint left, or
    only one beyond the limit of a rollback, the newest good copy is restored before the next
    attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Content of the file that ``--config`` names: a table for each field."""

    nodes: LocalNodePolicy = field(default_factory=LocalNodePolicy)
    jobs: LocalJobPolicy = field(default_factory=LocalJobPolicy)
    machines: MachineSettings = field(default_factory=MachineSettings)
    checkpoints: LocalCheckpointPolicy = field(default_factory=LocalCheckpointPolicy)

    def __post_init__(self) -> None:
        nodes, machines = self.nodes, self.machines
        silence = nodes.heartbeat_timeout
        if silence <= machines.heartbeat:
            raise ValueError(
                f"machines.heartbeat is {format_duration(machines.heartbeat)}: every node would "
                "count as lost between two heartbeats; expected less than nodes.heartbeat_timeout "
                f"({format_duration(silence)})"
            )
        timeouts = ("join_timeout", "reboot_timeout", "replace_timeout")
        for key in timeouts:
            limit = getattr(nodes, key)
            if machines.boot_time + silence > limit:
                raise ValueError(
                    f"machines.boot_time is {format_duration(machines.boot_time)}: no node would "
                    f"report within nodes.{key} ({format_duration(limit)}); expected a nodes.{key} "
                    f"of {format_duration(machines.boot_time + silence)} or more (boot_time plus "
                    "heartbeat_timeout), or a shorter boot_time"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Validated settings of one run."""

    name: str
    home: Path
    command: Sequence[str]
    nodes: int = 1
    spares: int = 0
    nproc_per_node: int = 1
    checkpoint_dir: Path | None = None
    """None for a new directory of the job's own."""

    resume: bool = False
    """Whether to start from the checkpoints of the last job of this name."""

    max_retries: int = 10
    max_app_retries: int = 3
    grace: timedelta = timedelta(seconds=5)
    hang_timeout: timedelta | None = None
    startup_timeout: timedelta | None = None
    log_rules: tuple[JobLogRule, ...] = ()
    master_port: int | None = None
    config: RunConfig = field(default_factory=RunConfig)

    @property
    def keeps_ranks(self) -> bool:
        """See ``JobSpec.keeps_ranks``: COMMAND is ``holdfast launch`` or ``hyperpodrun``."""
        program, *arguments = [*self.command, ""]
        words = [Path(program).name, *arguments]
        if words[0].startswith("python"):
            words = words[words.index("-m") + 1 :] if "-m" in words else []
        return words[:2] == ["holdfast", "launch"] or words[:1] == ["hyperpodrun"]
