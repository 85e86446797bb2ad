"""Damaged and poisoned checkpoints in simulated worlds: jobs resume from those before."""

from datetime import timedelta

import pytest
from effort import examples

from holdfast.adapters.sim.scenario import (
    BadCheckpoint,
    CheckpointFault,
    Crash,
    Scenario,
    Training,
)
from holdfast.adapters.sim.world import World
from holdfast.model.jobs import JobPhase, JobRecord, JobSpec
from tests.simulation.laws import LawBroken
from tests.simulation.schedules import random_scenario, with_bad_checkpoints
from tests.simulation.trial import judge

SECOND = timedelta(seconds=1)
SCHEDULES = examples(200)
CHUNK = min(100, SCHEDULES)


@pytest.mark.parametrize("first", range(0, SCHEDULES, CHUNK))
def test_every_law_holds_in_every_schedule_with_bad_checkpoints(first: int) -> None:
    for seed in range(first, first + CHUNK):
        try:
            judge(with_bad_checkpoints(random_scenario(seed), seed))
        except LawBroken as error:
            error.add_note(f"seed {seed}, with bad checkpoints")
            raise


def world_of(*bad: BadCheckpoint, crash: int = 55) -> World:
    """The world after a job that crashes at a step, and saves a checkpoint every 20 steps."""
    training = Training(
        spec=JobSpec(name="job", nodes=1, same_step_limit=4),
        steps=200,
        step_time=SECOND,
        checkpoint_steps=20,
        crashes=(Crash(step=crash, times=1),),
        bad_checkpoints=bad,
    )
    return judge(Scenario(nodes=1, trainings=(training,))).world


def ended(*bad: BadCheckpoint, crash: int = 55) -> JobRecord:
    return world_of(*bad, crash=crash).jobs["job"].record


def test_a_moved_checkpoint_has_one_incident_which_is_over() -> None:
    world = world_of(BadCheckpoint(step=40, fault=CheckpointFault.POISONED))

    [incident] = [one for one in world.incidents.values() if one.checkpoint is not None]
    assert incident.job == "job"
    assert incident.checkpoint is not None
    assert (incident.checkpoint.state, incident.checkpoint.resumed) == ("suspected", "step-20")
    assert incident.ended_at == incident.quarantined_at


def first_steps(record: JobRecord) -> list[int | None]:
    return [one.first_step for one in record.attempts]


def test_a_job_resumes_from_the_checkpoint_before_a_poisoned_one() -> None:
    record = ended(BadCheckpoint(step=40, fault=CheckpointFault.POISONED))

    assert first_steps(record) == [0, 40, 40, 20]
    assert record.phase is JobPhase.SUCCEEDED


def test_a_job_resumes_from_the_checkpoint_before_a_damaged_one_at_once() -> None:
    record = ended(BadCheckpoint(step=40, fault=CheckpointFault.DAMAGED))

    assert first_steps(record) == [0, 20]
    assert record.phase is JobPhase.SUCCEEDED


def test_a_bad_checkpoint_that_no_attempt_resumes_from_costs_nothing() -> None:
    record = ended(BadCheckpoint(step=20, fault=CheckpointFault.POISONED))

    assert first_steps(record) == [0, 40]
    assert record.phase is JobPhase.SUCCEEDED


def test_the_failure_of_the_attempt_that_saved_it_counts() -> None:
    record = ended(BadCheckpoint(step=40, fault=CheckpointFault.POISONED), crash=45)

    assert first_steps(record) == [0, 40, 20]
    assert record.phase is JobPhase.SUCCEEDED


def test_a_job_whose_only_checkpoint_is_poisoned_ends_with_its_retries() -> None:
    record = ended(BadCheckpoint(step=20, fault=CheckpointFault.POISONED), crash=35)

    assert first_steps(record) == [0, 20, 20, 20]
    assert record.phase is JobPhase.FAILED
