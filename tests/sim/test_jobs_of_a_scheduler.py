"""Random worlds under all laws, in which a scheduler places the jobs, and what such a job sees."""

from dataclasses import replace
from datetime import timedelta

import pytest
from effort import examples

from holdfast.adapters.sim.scenario import (
    ControllerFaults,
    Evicts,
    Hangs,
    Hardware,
    LosesPower,
    Scenario,
    Training,
)
from holdfast.adapters.sim.simulation import Simulation
from holdfast.model.jobs import FailureKind, JobPhase, JobSpec, Placing
from holdfast.model.names import Reason
from tests.simulation.fuzz import judge_seeds
from tests.simulation.schedules import scheduled_scenario
from tests.simulation.trial import judge

SECOND = timedelta(seconds=1)
SCHEDULES = examples(300)
CHUNK = min(100, SCHEDULES)
TRAINING = Training(
    spec=JobSpec(name="job", nodes=2, max_retries=2, placing=Placing.SCHEDULER),
    steps=100,
    step_time=10 * SECOND,
    checkpoint_steps=5,
    operator_time=2 * SECOND,
)


@pytest.mark.parametrize("first", range(0, SCHEDULES, CHUNK))
def test_every_law_holds_in_every_schedule_of_jobs_that_a_scheduler_places(first: int) -> None:
    assert judge_seeds(range(first, first + CHUNK), Placing.SCHEDULER) == CHUNK


def test_schedules_are_the_same_but_for_who_places_the_jobs() -> None:
    scenario = scheduled_scenario(6)

    assert {one.spec.placing for one in scenario.trainings} == {Placing.SCHEDULER}
    assert scenario == scheduled_scenario(6)


def judged(*scenario_events, nodes: int = 3, hardware: Hardware | None = None) -> Simulation:
    return judge(
        Scenario(
            nodes=nodes,
            trainings=(TRAINING,),
            scenario_events=scenario_events,
            hardware=hardware or Hardware(),
        )
    )


def test_a_rank_that_is_evicted_restarts_the_job_at_nobodys_expense() -> None:
    job = judged(Evicts(at=200 * SECOND, job=0, rank=0)).world.jobs["job"]

    assert job.record.phase is JobPhase.SUCCEEDED
    assert (job.record.hardware_retries, job.record.app_retries) == (0, 0)
    assert [one.failure.reason for one in job.record.attempts[:-1]] == [Reason.RANK_EVICTED]


def test_a_rank_whose_machine_is_off_is_removed_before_the_next_attempt() -> None:
    job = judged(LosesPower(at=200 * SECOND, node=0), LosesPower(at=200 * SECOND, node=1))

    record = job.world.jobs["job"].record
    assert record.phase is JobPhase.SUCCEEDED
    assert record.attempts[0].failure.kind is FailureKind.HARDWARE
    assert record.attempts[0].stopped_at - record.attempts[0].failure.at < 60 * SECOND


def test_a_job_waits_for_its_scheduler_as_long_as_there_is_no_room() -> None:
    simulation = judged(nodes=1)

    job = simulation.world.jobs["job"]
    assert job.record.phase is JobPhase.STARTING
    assert len(job.places()) == 1


def test_a_rank_that_is_bound_to_a_node_that_hangs_is_started_elsewhere() -> None:
    boot = Hardware(boot_time=0 * SECOND)
    simulation = Simulation(
        Scenario(
            nodes=3,
            trainings=(replace(TRAINING, submitted_at=100 * SECOND),),
            scenario_events=(Hangs(at=99 * SECOND, node=0), Hangs(at=99 * SECOND, node=1)),
            hardware=boot,
            controller_faults=ControllerFaults(),
        )
    )
    simulation.run(timedelta(seconds=101))
    assert simulation.world.jobs["job"].bound != {}

    simulation.run(timedelta(hours=2))
    assert simulation.world.jobs["job"].record.phase is JobPhase.SUCCEEDED
