"""Random scenarios, each from a seed, in which everything that can go wrong may."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any, Final, TypeVar

from holdfast.adapters.sim.scenario import (
    BadCheckpoint,
    Cancels,
    CheckpointFault,
    ControllerFaults,
    Crash,
    Defect,
    DefectAppears,
    Delivery,
    Evicts,
    FallsSilent,
    Hangs,
    Hardware,
    LosesPower,
    Outage,
    ProviderReply,
    RemedyRequest,
    ResetsBreaker,
    RunsOut,
    Scenario,
    ScenarioEvent,
    Training,
    Vanishes,
)
from holdfast.decisions.policy import (
    JobPolicy,
    RecoveryMode,
    RemediationPolicy,
    SilentAgentAction,
    StragglerAction,
)
from holdfast.kit.quota import Quota
from holdfast.model.health import Remedy, Urgency
from holdfast.model.jobs import JobSpec, Placing
from holdfast.model.requests import Verb

T = TypeVar("T")

SPAN: Final = timedelta(minutes=40)
"""Time in which all faults occur: short, so that faults coincide."""

EDGES: Final = tuple(timedelta(seconds=seconds) for seconds in (0, 1, 20, 40, 60, 90, 120))
"""Delays as long as those of the policy below, so that events fall on its deadlines."""


def random_scenario(seed: int) -> Scenario:
    """The scenario of a seed; the same for ever."""
    random = Random(seed)
    nodes = random.randint(2, 8)
    return Scenario(
        nodes=nodes,
        trainings=tuple(_training(random, number, nodes) for number in range(random.randint(0, 2))),
        scenario_events=_scenario_events(random, nodes),
        policy=_with_later_settings(random_policy(random), Random(f"policy {seed}")),
        job_policy=_job_policy(Random(f"jobs {seed}")),
        hardware=_hardware(random),
        controller_faults=_mishaps(random),
    )


def _with_later_settings(policy: RemediationPolicy, random: Random) -> RemediationPolicy:
    """The policy with settings that are drawn apart, so that the seeds of old findings still hold.

    A new setting is drawn here.
    """
    return replace(
        policy,
        breaker_close_after=random.choice([timedelta(0), timedelta(minutes=1), timedelta(hours=1)]),
        silent_agent_action=random.choice(list(SilentAgentAction)),
        incident_retention=random.choice([timedelta(minutes=5), timedelta(days=90)]),
        incidents_kept=random.choice([1, 2000]),
        offender_window=random.choice([timedelta(minutes=10), timedelta(days=7)]),
        breaker_window=timedelta(minutes=random.choice([1, 5])),
        provider_retry_max=random.choice([policy.provider_retry, timedelta(minutes=10)]),
        max_checking=random.choice([Quota(count=1), Quota(percent=50.0), Quota(percent=100.0)]),
        deep_check_pairs=random.random() < 0.25,
        pair_timeout=timedelta(minutes=random.choice([1, 15])),
        deep_check_groups=("other",)
        if policy.deep_check_on_start and random.random() < 0.25
        else (),
        **(_other_deadlines(random) if random.random() < 0.25 else {}),
    )


def _other_deadlines(random: Random) -> dict[str, Any]:
    """Deadlines other than those by which the times of the scenario's events were chosen."""
    return {
        "heartbeat_timeout": timedelta(seconds=random.choice([20, 90])),
        "join_timeout": timedelta(minutes=random.choice([1, 5])),
        "reboot_timeout": timedelta(minutes=random.choice([1, 5])),
        "replace_timeout": timedelta(minutes=random.choice([3, 10])),
        "provider_retry": timedelta(seconds=random.choice([1, 15])),
        "deep_check_timeout": timedelta(minutes=random.choice([2, 10])),
        "deep_check_every": random.choice([None, timedelta(hours=12)]),
    }


def with_pairs(scenario: Scenario, seed: int) -> Scenario:
    """A scenario with tests between nodes as well, some of which find something."""
    random = Random(f"pairs {seed}")
    flawed = random.sample(range(2 * scenario.nodes), random.choice([0, 0, 1, 2]))
    return replace(
        scenario,
        policy=replace(
            scenario.policy,
            deep_check_on_start=random.random() < 0.5,
            deep_check_timeout=timedelta(minutes=random.choice([3, 10])),
            deep_check_pairs=True,
            deep_check_groups=(),
            pair_timeout=timedelta(minutes=1),
            max_checking=random.choice([Quota(count=1), Quota(count=2), Quota(percent=100.0)]),
        ),
        hardware=replace(
            scenario.hardware,
            pair_time=random.choice(EDGES[:4]),
            silent_pairs=_some(random, [False, True, None]),
            flawed=tuple(flawed),
            flawed_links=((0, 1),) if random.random() < 0.2 else (),
            flaws_show=random.choice([0.5, 1.0]),
        ),
    )


def with_bad_checkpoints(scenario: Scenario, seed: int) -> Scenario:
    """A scenario in which some checkpoints are damaged or poisoned."""
    random = Random(f"checkpoints {seed}")
    return replace(
        scenario,
        trainings=tuple(
            replace(
                training,
                bad_checkpoints=tuple(
                    BadCheckpoint(
                        step=random.randint(1, 60), fault=random.choice(list(CheckpointFault))
                    )
                    for _ in range(random.randint(1, 3))
                ),
            )
            for training in scenario.trainings
        ),
    )


def scheduled_scenario(seed: int) -> Scenario:
    """The scenario of a seed, with jobs that a scheduler places, of which ranks are evicted."""
    random, scenario = Random(f"scheduler {seed}"), random_scenario(seed)
    return replace(
        scenario,
        trainings=tuple(
            replace(
                training,
                spec=replace(training.spec, placing=Placing.SCHEDULER),
                operator_time=random.choice(EDGES[:3]),
            )
            for training in scenario.trainings
        ),
        scenario_events=tuple(
            sorted((*scenario.scenario_events, *_evictions(random)), key=lambda one: one.at)
        ),
    )


def _evictions(random: Random) -> Iterator[Evicts]:
    for _ in range(random.choice([0, 0, 1, 3])):
        at = random.choice([SPAN * random.random(), *(SPAN / 4 + edge for edge in EDGES)])
        yield Evicts(at=at, job=random.randrange(2), rank=random.randrange(8))


def _job_policy(random: Random) -> JobPolicy:
    """Draw a policy; a new setting is drawn last, so that the seeds of old findings still hold."""
    return JobPolicy(
        failure_margin=random.choice([timedelta(0), timedelta(seconds=2), timedelta(seconds=20)]),
        app_backoff=random.choice([timedelta(0), timedelta(seconds=10), timedelta(seconds=40)]),
        app_backoff_max=timedelta(minutes=random.choice([1, 5])),
        app_backoff_reset=timedelta(minutes=random.choice([1, 10])),
        suspect_failures=random.choice([0, 2, 3]),
        suspect_window=random.choice([timedelta(minutes=10), timedelta(hours=24)]),
        settle=random.choice([timedelta(0), timedelta(milliseconds=200), timedelta(seconds=2)]),
        wait_for_nodes=timedelta(minutes=random.choice([5, 30, 30])),
        launch_timeout=timedelta(minutes=random.choice([1, 2])),
        report_timeout=random.choice([timedelta(0), timedelta(seconds=15), timedelta(minutes=1)]),
        stop_on_permanent_cause=random.random() < 0.75,
        fault_grace=random.choice([timedelta(0), timedelta(seconds=5), timedelta(minutes=1)]),
        straggler_action=random.choice(list(StragglerAction)),
    )


def random_policy(random: Random) -> RemediationPolicy:
    """A policy with short deadlines, so that a simulation stays short."""
    later = Random(random.getstate()[1][0])  # for fields added later: the seeds keep their meaning
    return RemediationPolicy(
        node_recovery=_rarely(random, RecoveryMode.NONE) or RecoveryMode.AUTOMATIC,
        max_unavailable=random.choice(
            [
                Quota(count=0),
                Quota(count=1),
                Quota(count=1),
                Quota(count=2),
                Quota(percent=20.0),
                Quota(percent=34.0),
                Quota(percent=100.0),
            ]
        ),
        replacements_per_hour=later.choice([None, Quota(count=40)]),
        replacements_per_day=later.choice([None, Quota(count=200), Quota(percent=100.0)]),
        drain_timeout=random.choice([timedelta(0), timedelta(minutes=1)]),
        heartbeat_timeout=timedelta(seconds=40),
        silent_remedy=random.choice([Remedy.REPLACE, Remedy.REPLACE, Remedy.REBOOT]),
        join_timeout=timedelta(minutes=2),
        reboot_timeout=timedelta(minutes=2),
        reboot_window=random.choice([timedelta(0), timedelta(minutes=5), timedelta(hours=1)]),
        replace_timeout=timedelta(minutes=4),
        offender_faults=random.randint(1, 4),
        breaker_share=random.choice([30.0, 50.0, 50.0, 100.0]),
        breaker_min_nodes=random.randint(1, 5),
        provider_retry=timedelta(seconds=15),
        deep_check_on_start=random.random() < 0.25,
        deep_check_timeout=timedelta(minutes=3),
    )


def _training(random: Random, number: int, nodes: int) -> Training:
    crashes = [Crash(step=random.randint(0, 60), times=random.randint(1, 5))]
    return Training(
        spec=JobSpec(
            name=f"job-{number}",
            nodes=random.randint(1, max(1, nodes - random.randint(0, 2))),
            max_retries=random.choice([0, 2, 10]),
            max_app_retries=random.choice([0, 1, 3]),
            same_step_limit=random.randint(2, 4),
            grace=timedelta(seconds=5),
        ),
        submitted_at=timedelta(seconds=random.choice([0, 0, 30, 600])),
        steps=random.randint(1, 80),
        step_time=timedelta(seconds=random.choice([5, 20, 30])),
        load_time=random.choice(EDGES),
        checkpoint_steps=random.choice([1, 5, 20]),
        crashes=tuple(crashes) if random.random() < 0.4 else (),
        stop_time=timedelta(seconds=random.choice([0, 1, 5, 8])),
        handles_sigterm=random.random() < 0.8,
    )


def _scenario_events(random: Random, nodes: int) -> tuple[ScenarioEvent, ...]:
    scenario_events = [_scenario_event(random, nodes) for _ in range(random.randint(1, 7))]
    if random.random() < 0.1:  # a storm, as from a wrong check
        at, defect = random.choice(scenario_events).at, _defect(random)
        scenario_events += [DefectAppears(at=at, node=node, defect=defect) for node in range(nodes)]
    return tuple(sorted(scenario_events, key=lambda one: one.at))


def _scenario_event(random: Random, nodes: int) -> ScenarioEvent:
    at = random.choice([SPAN * random.random(), *(SPAN / 4 + edge for edge in EDGES)])
    node = random.randrange(nodes)
    lasts = random.choice([*EDGES[1:], timedelta(seconds=30), timedelta(minutes=10)])
    match random.choices(range(10), weights=(10, 2, 1, 2, 3, 6, 1, 1, 1, 1))[0]:
        case 0:
            return DefectAppears(at=at, node=node, defect=_defect(random))
        case 1:
            return LosesPower(at=at, node=node)
        case 2:
            return Vanishes(at=at, node=node)
        case 3:
            return Hangs(at=at, node=node, lasts=random.choice([None, lasts]))
        case 4:
            return FallsSilent(at=at, node=node, lasts=lasts)
        case 5:
            return RemedyRequest(
                at=at, node=node, verb=random.choice(list(Verb)), urgency=_urgency(random)
            )
        case 6:
            return ResetsBreaker(at=at)
        case 7:
            return Cancels(at=at, job=random.randrange(2))
        case 8:
            return RunsOut(at=at, lasts=lasts)
        case _:
            return Outage(at=at, lasts=lasts)


def _defect(random: Random) -> Defect:
    return Defect(
        remedy=random.choice(list(Remedy)),
        urgency=_urgency(random),
        crashes=random.random() < 0.4,
        seen_after=random.choice([timedelta(0), timedelta(0), timedelta(milliseconds=100), *EDGES]),
        lasts=_rarely(random, random.choice(EDGES)),
        relapses=random.choice([0, 0, 1, 3]),
        relapse_after=random.choice(EDGES),
    )


def _hardware(random: Random) -> Hardware:
    return Hardware(
        boot_time=timedelta(seconds=random.choice([0, 10, 30])),
        reboot_time=timedelta(seconds=random.choice([0, 20, 60])),
        replace_time=timedelta(seconds=random.choice([0, 30, 120])),
        keeps_names=random.random() < 0.3,
        answers=_some(random, list(ProviderReply)),
        deliveries=_some(random, list(Delivery)),
        lost_reboots=_some(random, [False, True]),
        failed_checks=_some(random, [False, True, None]),
    )


def _mishaps(random: Random) -> ControllerFaults:
    def calls(most: int) -> tuple[tuple[int, bool], ...]:
        count = random.randint(0, most)
        return tuple((random.randint(1, 400), random.random() < 0.5) for _ in range(count))

    return ControllerFaults(
        kills=calls(3),
        failures=calls(6),
        downtime=random.choice([timedelta(milliseconds=1), *EDGES[1:]]),
        misses_events=random.random() < 0.15,
        jobs_first=random.random() < 0.3,
    )


def _urgency(random: Random) -> Urgency:
    return random.choice([Urgency.IMMEDIATE, Urgency.IMMEDIATE, Urgency.DEFERRED])


def _rarely(random: Random, value: T) -> T | None:
    return value if random.random() < 0.1 else None


def _some(random: Random, outcomes: list[T]) -> tuple[T, ...]:
    return tuple(random.choice(outcomes) for _ in range(random.choice([0, 0, 1, 3])))
