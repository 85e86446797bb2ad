"""Predicts the goodput of a job on a fleet under a policy: the engine in simulated time."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from holdfast.adapters.sim.scenario import (
    Defect,
    Hardware,
    MachineFailure,
    Scenario,
    Training,
    Wear,
)
from holdfast.adapters.sim.simulation import Simulation
from holdfast.adapters.sim.training import SimJob
from holdfast.adapters.sim.world import Observer
from holdfast.decisions.policy import JobPolicy, RemediationPolicy
from holdfast.decisions.spares import advised_spares
from holdfast.model.errors import ConfigError
from holdfast.model.events import BreakerTripped, Event, JobRetried
from holdfast.model.health import Remedy
from holdfast.model.incidents import Incident
from holdfast.model.jobs import JobPhase, JobRecord, JobSpec

LEMON_SHAPE: Final = 0.88
"""Shape of the gamma distribution of the nodes' fault rates, fitted to the public 348-day trace of
400 GPU servers in stepfun-ai/InfiniteHBD-Trace, in which 231 nodes had all of the 584 faults."""

FAULT_KINDS: Final = (
    (Defect(remedy=Remedy.REPLACE, crashes=True), 178),
    (Defect(remedy=Remedy.REBOOT, crashes=True), 175),
    (Defect(remedy=Remedy.RESTART_APP, crashes=True), 56),
    (MachineFailure.HANG, 7),
    (MachineFailure.POWER, 3),
)
"""The 419 interruptions of Llama 3's pre-training (arXiv 2407.21783, table 5), by the remedy that
is assumed for each. Replace: faulty GPUs 148, NICs 7, silent data corruption 6, overheating 6,
SSDs 3, chassis 2, boards 2, CPUs 2, memory 2. Reboot: GPU memory 72 and 19, system processors 17,
switches and cables 35, host maintenance 32. Restart of the job alone: software 54 and 2. A hang:
NCCL timeouts 7. Power lost: power supplies 3."""

PARTS: Final = 100
"""Number of progress reports of a trial."""

_JOB: Final = "job"
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationConfig:
    """The file that ``--config`` names: a table for each field."""

    nodes: RemediationPolicy = field(default_factory=RemediationPolicy)
    jobs: JobPolicy = field(default_factory=JobPolicy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A fleet, a job on it and a policy."""

    nodes: int
    job_nodes: int
    days: float
    faults_per_1000_node_days: float
    reboot_time: timedelta
    """Time from the order of a reboot to the agent's first report."""

    replace_time: timedelta
    """Time from the order of a replacement to its agent's first report."""

    restart_time: timedelta
    """Time from the launch of an attempt to its first step: start, load, warm-up."""

    checkpoint_every: timedelta
    """Training time between two checkpoints."""

    checkpoint_time: timedelta
    """Training pause for a checkpoint."""

    max_retries: int
    has_lemons: bool = False
    seed: int = 0
    config: SimulationConfig = field(default_factory=SimulationConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairTimes:
    """Seconds from the detection of a fault to the release of the node, or its successor."""

    remedy: str
    count: int
    p50_s: float
    p90_s: float
    p99_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """Result of a trial. Nothing in it was measured on a real machine."""

    simulated: bool = True
    trial: Trial
    job_phase: JobPhase
    job_reason: str
    ettr: float
    """Share of the time that made lasting progress: training that no restart undid."""

    closed_form_ettr: float
    """ETTR by Daly's formula, which ignores waits for nodes; see ``daly_ettr``."""

    spares_advised: int
    """Spare nodes with which the job rarely waits; see ``advised_spares``."""

    mean_time_to_failure_s: float | None
    """Of the job; None without faults."""

    restarts: dict[str, int]
    """Attempts after the first, by kind of failure."""

    waited_s: float
    """Time that the job waited for nodes or in backoff."""

    incidents: dict[str, int]
    """Completed repairs by remedy."""

    repairs: tuple[RepairTimes, ...]
    nodes_replaced: int
    repeat_offenders: int
    breaker_trips: int


def daly_ettr(
    *,
    mean_time_to_failure: timedelta,
    restart: timedelta,
    interval: timedelta,
    checkpoint: timedelta,
) -> float:
    """Share of the time that makes lasting progress, with exponential failures.

    J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps",
    Future Generation Computer Systems 22 (2006), complete form: with mean time to failure M,
    restart R, training between checkpoints t and checkpoint cost d, the share is
    ``t / (M exp(R/M) (exp((t + d)/M) - 1))``. Failures may also come during restarts and
    checkpoints; assumes that nodes are always available.
    """
    lead = restart / mean_time_to_failure
    leg = (interval + checkpoint) / mean_time_to_failure
    if lead + leg > 700:  # exp would overflow; nothing is ever completed
        return 0.0
    return (interval / mean_time_to_failure) / (math.exp(lead) * math.expm1(leg))


def run_trial(trial: Trial, progress: Callable[[int], None]) -> TrialResult:
    """Simulate a trial; ``progress`` is called after each of ``PARTS`` parts.

    Raises:
        ConfigError: the trial is invalid.

    """
    if trial.job_nodes > trial.nodes:
        raise ConfigError(
            f"--job-nodes {trial.job_nodes}: expected at most the {trial.nodes} nodes of the fleet"
        )
    tally = _Tally()
    simulation = Simulation(_scenario(trial), tally)
    tally.simulation = simulation
    for part in range(1, PARTS + 1):
        simulation.run(timedelta(days=trial.days * part / PARTS))
        progress(1)
    return _result(trial, simulation, tally)


class _Tally(Observer):
    """Counts events that the final state of the world does not show."""

    def __init__(self) -> None:
        self.simulation: Simulation
        self.restarts: Counter[str] = Counter()
        self.breaker_trips = 0
        self.waited = timedelta(0)

    def reported(self, event: Event) -> None:
        """See ``Observer.reported``."""
        if isinstance(event, JobRetried):
            self.restarts[event.kind] += 1
        self.breaker_trips += isinstance(event, BreakerTripped)

    def job_put(self, job: SimJob, before: JobRecord) -> None:  # noqa: ARG002 - as it is called
        """See ``Observer.job_put``."""
        if before.phase is JobPhase.WAITING:
            self.waited += self.simulation.world.now - before.phase_since


def _scenario(trial: Trial) -> Scenario:
    boot_time = min(trial.reboot_time, trial.replace_time)
    horizon = timedelta(days=trial.days)
    spec = JobSpec(
        name=_JOB,
        nodes=trial.job_nodes,
        max_retries=trial.max_retries,
        max_app_retries=trial.max_retries,
    )
    training = Training(
        spec=spec,
        submitted_at=boot_time,
        steps=horizon // trial.checkpoint_every + 1,  # more than possible
        step_time=trial.checkpoint_every,
        load_time=trial.restart_time,
        checkpoint_steps=1,
        checkpoint_time=trial.checkpoint_time,
    )
    return Scenario(
        nodes=trial.nodes,
        trainings=(training,),
        policy=trial.config.nodes,
        job_policy=trial.config.jobs,
        hardware=Hardware(
            boot_time=boot_time,
            reboot_time=trial.reboot_time,
            replace_time=trial.replace_time - boot_time,
        ),
        wear=Wear(
            per_machine_day=trial.faults_per_1000_node_days / 1000,
            kinds=FAULT_KINDS,
            shape=LEMON_SHAPE if trial.has_lemons else None,
            seed=trial.seed,
        ),
    )


def _result(trial: Trial, simulation: Simulation, tally: _Tally) -> TrialResult:
    world = simulation.world
    job = world.jobs[_JOB]
    incidents = tuple(one for one in world.incidents.values() if one.node)
    rate = trial.job_nodes * trial.faults_per_1000_node_days / 1000
    waits = job.record.phase is JobPhase.WAITING
    still_waiting = world.now - job.record.phase_since if waits else timedelta(0)
    return TrialResult(
        trial=trial,
        job_phase=job.record.phase,
        job_reason=job.record.reason,
        ettr=_lasting(trial, job, simulation)
        / (world.now - world.start - world.hardware.boot_time),
        closed_form_ettr=_closed_form(trial, rate),
        spares_advised=advised_spares(
            trial.job_nodes, trial.faults_per_1000_node_days, trial.replace_time
        ),
        mean_time_to_failure_s=_DAY.total_seconds() / rate if rate else None,
        restarts=dict(tally.restarts),
        waited_s=(tally.waited + still_waiting).total_seconds(),
        incidents=dict(Counter(incident.remedy for incident in incidents)),
        repairs=_repairs(incidents),
        nodes_replaced=world.owner.deliveries,
        repeat_offenders=len(world.offenders),
        breaker_trips=tally.breaker_trips,
    )


def _lasting(trial: Trial, job: SimJob, simulation: Simulation) -> timedelta:
    """Training that is in a checkpoint."""
    return job.saved_by(simulation.world.now) * trial.checkpoint_every


def _closed_form(trial: Trial, rate: float) -> float:
    if not rate:
        return trial.checkpoint_every / (trial.checkpoint_every + trial.checkpoint_time)
    return daly_ettr(
        mean_time_to_failure=_DAY / rate,
        restart=trial.restart_time,
        interval=trial.checkpoint_every,
        checkpoint=trial.checkpoint_time,
    )


def _repairs(incidents: Sequence[Incident]) -> tuple[RepairTimes, ...]:
    times: dict[str, list[float]] = {}
    for incident in incidents:
        if incident.released_at is not None and incident.repaired_at is not None:
            took = incident.released_at - incident.detected_at
            times.setdefault(incident.remedy, []).append(took.total_seconds())
    return tuple(
        RepairTimes(
            remedy=remedy,
            count=len(took),
            p50_s=percentile(took, 50),
            p90_s=percentile(took, 90),
            p99_s=percentile(took, 99),
        )
        for remedy, took in sorted(times.items())
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """Percentile by the nearest-rank method: smallest value >= ``percent`` of all values."""
    rank = math.ceil(percent / 100 * len(values))
    return sorted(values)[max(rank, 1) - 1]
