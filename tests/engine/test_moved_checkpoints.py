"""The job loop records an incident for each checkpoint that was moved."""

from datetime import timedelta

import pytest

from holdfast.decisions.checkpoint_incidents import quarantine_id
from holdfast.decisions.job_resume import ResumePolicy
from holdfast.decisions.policy import JobPolicy, RemediationPolicy
from holdfast.engine.job_reconciler import JobPorts, JobReconciler
from holdfast.model.errors import BackendError, StorageFull
from holdfast.model.events import CallFailed
from holdfast.model.incidents import Incident
from holdfast.model.jobs import JobPhase
from holdfast.model.set_aside import SetAside
from holdfast.ports.leadership import Alone, Leadership
from tests.ports.builders import NOW, a_job, healthy_nodes
from tests.ports.fakes import (
    Calls,
    FakeClock,
    FakeCluster,
    FakeEvents,
    FakeIncidents,
    FakeJobs,
    FakeLeadership,
)

MOVED = SetAside(
    name="step_3",
    path="/ckpt.set-aside/step_3",
    why="damaged: too short",
    at=NOW - timedelta(seconds=1),
    state="damaged",
)


class CountedIncidents(FakeIncidents):
    """Counts how often all incidents are read; a write may fail."""

    reads = 0
    failure: BackendError | None = None
    failing = ""
    """The only job whose incidents cannot be written; empty for all."""

    def list_incidents(self) -> tuple[Incident, ...]:
        self.reads += 1
        return super().list_incidents()

    def put(self, incident: Incident) -> None:
        if self.failure is not None and self.failing in ("", incident.job):
            raise self.failure
        super().put(incident)


class World:
    """A loop with fakes around it; ``jobs`` may be empty, as where supervisors restart jobs."""

    def __init__(self, *jobs) -> None:
        self.calls = Calls()
        self.jobs = FakeJobs(jobs, self.calls)
        self.jobs.moved = {"job-1": (MOVED,)}
        self.incidents = CountedIncidents(self.calls)
        self.events = FakeEvents()
        self.leadership: Leadership = Alone()
        self.restart()

    def restart(self) -> None:
        clock = FakeClock()
        ports = JobPorts(
            jobs=self.jobs,
            cluster=FakeCluster(healthy_nodes(2), self.calls, clock),
            incidents=self.incidents,
            events=self.events,
            clock=clock,
            leadership=self.leadership,
        )
        policy = ResumePolicy(job=JobPolicy(), nodes=RemediationPolicy())
        self.step = JobReconciler(ports, policy).step

    @property
    def recorded(self) -> list[tuple[str, str]]:
        return [(one.job, one.id) for one in self.incidents.stored.values()]


@pytest.fixture
def world() -> World:
    return World()


def test_a_move_is_recorded_once_also_after_a_restart(world: World) -> None:
    for _ in range(3):
        world.step()

    assert world.recorded == [("job-1", quarantine_id(MOVED))]
    assert world.incidents.reads == 1  # not in each round
    world.incidents.stored[quarantine_id(MOVED)] = kept = world.incidents.stored.popitem()[1]
    world.restart()
    world.step()
    assert list(world.incidents.stored.values()) == [kept]


@pytest.mark.attack
def test_an_incident_that_cannot_be_stored_delays_no_other(world: World) -> None:
    world.jobs.moved = {
        name: (SetAside(**{**fields(MOVED), "name": name}),) for name in ("job-1", "job-2", "job-3")
    }
    world.incidents.failing, world.incidents.failure = "job-1", BackendError("invalid name")

    world.step()

    assert [job for job, _ in world.recorded] == ["job-2", "job-3"]
    assert [one.error for one in world.events.reported if isinstance(one, CallFailed)] == [
        "invalid name"
    ]
    world.incidents.failure = None
    world.step()
    assert sorted(job for job, _ in world.recorded) == ["job-1", "job-2", "job-3"]


def test_a_later_move_is_recorded_beside_the_first(world: World) -> None:
    world.step()
    world.jobs.moved["job-1"] += (SetAside(**{**fields(MOVED), "name": "step_4"}),)
    world.step()
    world.jobs.moved = {}
    world.step()

    assert [one.subject for one in world.incidents.stored.values()] == ["step_3", "step_4"]


def fields(one: SetAside) -> dict[str, object]:
    return {name: getattr(one, name) for name in one.__slots__}


def test_only_the_leader_records(world: World) -> None:
    world.leadership = FakeLeadership(0)
    world.restart()
    world.step()
    assert world.recorded == []

    world.leadership = Alone()
    world.restart()
    world.step()
    assert len(world.recorded) == 1


@pytest.mark.parametrize("where", ["moves", "incidents"])
def test_an_error_delays_no_job_and_the_next_round_records(where: str) -> None:
    world = World(a_job(JobPhase.WAITING))
    error = BackendError("away")
    if where == "moves":
        world.calls.failing["moved_checkpoints"] = error
    else:
        world.incidents.failure = error

    world.step()

    assert world.jobs.views["job-1"].record.phase is not JobPhase.WAITING
    assert world.recorded == []
    [failed] = [one for one in world.events.reported if isinstance(one, CallFailed)]
    assert failed.what == "recording moved checkpoints"
    world.calls.failing.clear()
    world.incidents.failure = None
    world.step()
    assert len(world.recorded) == 1


def test_a_full_disk_ends_the_round() -> None:
    world = World(a_job(JobPhase.WAITING))
    world.incidents.failure = StorageFull("no space is left")

    with pytest.raises(StorageFull):
        world.step()

    assert world.jobs.views["job-1"].record.phase is JobPhase.WAITING
