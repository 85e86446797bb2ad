"""Nodes on which jobs keep dying or are slow, through the job loop and the node loop."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.job_resume import ResumePolicy
from holdfast.decisions.policy import JobPolicy, RemediationPolicy, StragglerAction
from holdfast.engine.job_reconciler import JobPorts, JobReconciler
from holdfast.engine.node_reconciler import AFTER_ERROR, NodePorts, NodeReconciler
from holdfast.engine.wording import sentence
from holdfast.model.errors import BackendError
from holdfast.model.events import (
    JobStragglerFound,
    NodeDraining,
    NodeSuspected,
    StragglerSuspected,
)
from holdfast.model.job_views import SlowRank
from holdfast.model.jobs import AttemptRecord, Failure, FailureKind, JobPhase
from holdfast.model.names import Reason
from holdfast.model.nodes import CheckResult, Phase
from tests.ports.builders import NOW, a_job, a_node
from tests.ports.fakes import (
    Calls,
    FakeClock,
    FakeCluster,
    FakeEvents,
    FakeIncidents,
    FakeJobs,
    FakeLeadership,
    FakeProvider,
)

POLICY = ResumePolicy(job=JobPolicy(), nodes=RemediationPolicy())
LONG_AGO = {"phase_since": NOW - timedelta(days=9)}


def died(number: int, node: str = "node-1") -> AttemptRecord:
    at = NOW - timedelta(hours=9 - number)
    exited = Reason.RANK_EXITED
    return AttemptRecord(
        attempt=number,
        placement=("node-2", "node-1"),
        started_at=at,
        stopped_at=at,
        failure=Failure(
            kind=FailureKind.APPLICATION, reason=exited, at=at, node=node, is_alone=True
        ),
    )


def dying(phase: JobPhase = JobPhase.WAITING, attempts: int = 3, **changes):
    record = {"attempt": attempts, "attempts": tuple(died(n + 1) for n in range(attempts))}
    return a_job(phase, record={**record, **changes})


class World:
    """Both loops over fakes; four nodes."""

    def __init__(self, *jobs, leadership=None, policy=POLICY) -> None:
        self.policy = policy
        self.calls, self.clock = Calls(), FakeClock()
        nodes = [
            a_node(name=f"node-{n}", provider_id=f"i-{n}", record=LONG_AGO) for n in range(1, 5)
        ]
        self.cluster = FakeCluster(nodes, self.calls, self.clock)
        self.jobs = FakeJobs(jobs, self.calls)
        self.events = FakeEvents()
        ports = {
            "cluster": self.cluster,
            "incidents": FakeIncidents(self.calls),
            "events": self.events,
            "clock": self.clock,
            **({"leadership": leadership} if leadership else {}),
        }
        self.node_loop = NodeReconciler(
            NodePorts(provider=FakeProvider(self.calls), **ports), POLICY.nodes
        )
        self.job_ports = JobPorts(jobs=self.jobs, **ports)
        self.restart()

    def restart(self) -> None:
        self.job_loop = JobReconciler(self.job_ports, self.policy)

    def requested(self) -> list[str]:
        return [line for line in self.calls.made if line.startswith("request_check")]

    def suspected(self) -> list[NodeSuspected]:
        return [event for event in self.events.reported if isinstance(event, NodeSuspected)]


def test_the_job_that_dies_there_starts_elsewhere_while_the_node_is_checked_and_released() -> None:
    world = World(dying())

    assert world.job_loop.step() == NOW
    assert len(world.requested()) == 1
    assert "put job-1 starting" not in world.calls.made
    world.job_loop.step()
    assert "node-1" not in world.jobs.views["job-1"].record.placement
    for _ in range(3):
        world.node_loop.step()
    node = world.cluster.nodes["node-1"]
    assert (node.record.phase, node.request) == (Phase.CHECKING, None)
    assert node.record.remediation.reason == Reason.JOBS_KEEP_FAILING

    world.cluster.change("node-1", check=CheckResult(passed=True, ended_at=NOW))
    world.node_loop.step()
    world.restart()
    world.job_loop.step()

    assert world.cluster.nodes["node-1"].record.phase is Phase.SCHEDULABLE
    assert len(world.requested()) == 1
    (event,) = world.suspected()
    assert (event.node, event.failures, event.is_checked) == ("node-1", 3, True)
    assert sentence(event) == (
        "node-1 is suspect: 3 job failures within 1d began on this node and on no "
        "other: job-1 attempt 3, job-1 attempt 2, job-1 attempt 1; running deep health check"
    )


def test_where_there_are_no_checks_a_person_is_notified_once_and_jobs_go_on() -> None:
    world = World(dying())
    world.cluster.can_check = False

    for _ in range(3):
        world.job_loop.step()

    assert world.cluster.nodes["node-1"].request is None
    assert world.jobs.views["job-1"].record.phase is JobPhase.RUNNING
    (event,) = world.suspected()
    assert sentence(event).endswith("; no deep health check configured, inspect the node")


def test_failures_of_a_job_that_has_failed_for_good_count_on() -> None:
    last = Failure(kind=FailureKind.APPLICATION, reason=Reason.RANK_EXITED, at=NOW, node="node-1")
    spec = {"max_app_retries": 0}
    first = a_job(JobPhase.STOPPING, spec=spec, record={"failure": last}, ranks=())
    second = dying(JobPhase.RUNNING, attempts=2)
    second = replace(second, spec=replace(second.spec, name="job-2"))
    world = World(first, second)
    world.clock.time = NOW + timedelta(seconds=1)

    world.job_loop.step()
    assert world.jobs.views["job-1"].record.phase is JobPhase.FAILED
    world.job_loop.step()

    (event,) = world.suspected()
    assert (event.node, event.failures) == ("node-1", 3)
    world.job_loop.step()
    assert world.jobs.views["job-2"].record.phase is JobPhase.RUNNING


def test_a_request_that_cannot_be_written_is_tried_again_and_stops_no_job() -> None:
    world = World(dying())
    world.calls.failing["request_check"] = BackendError("away")

    assert world.job_loop.step() <= NOW + AFTER_ERROR
    assert world.suspected() == []
    world.calls.failing.clear()
    world.job_loop.step()

    assert len(world.suspected()) == 1


def test_who_has_lost_the_lead_asks_for_nothing() -> None:
    world = World(dying(), leadership=FakeLeadership(requested=0))

    world.job_loop.step()

    assert world.requested() == []


@given(st.lists(st.sampled_from(["jobs", "nodes", "restart"]), max_size=12))
def test_in_whatever_order_the_loops_run_the_same_failures_are_asked_about_once(turns) -> None:
    world = World(dying())
    for turn in turns:
        match turn:
            case "jobs":
                world.job_loop.step()
            case "nodes":
                world.node_loop.step()
            case "restart":
                world.restart()

    assert len(world.requested()) <= 1
    assert {name for name, node in world.cluster.nodes.items() if node.record.remediation} <= {
        "node-1"
    }


@pytest.mark.parametrize("phase", [JobPhase.RUNNING, JobPhase.WAITING])
def test_a_job_that_dies_everywhere_sends_no_node_to_a_check(phase) -> None:
    job = dying(phase)
    job = replace(
        job, record=replace(job.record, attempts=(*job.record.attempts, died(4, "node-2")))
    )
    world = World(job)

    world.job_loop.step()

    assert world.requested() == []


TESTS = replace(POLICY, job=replace(POLICY.job, straggler_action=StragglerAction.PAIR_TEST))
SLOW = SlowRank(text="rank 3 on node-2 is slow", node="node-2")


class Slow(World):
    """``job-1`` runs on two of four nodes; the others wait for a rank on ``node-2``."""

    def __init__(self, policy=TESTS) -> None:
        super().__init__(a_job(straggler=SLOW), policy=policy)
        self.cluster.change("node-2", running_jobs=("job-1",))

    def events_of(self, kind: type) -> list:
        return [event for event in self.events.reported if isinstance(event, kind)]

    def phase(self) -> Phase:
        return self.cluster.nodes["node-2"].record.phase

    def stop_attempt(self) -> None:
        job = self.jobs.views["job-1"]
        record = replace(job.record, phase=JobPhase.WAITING, phase_since=NOW)
        self.jobs.views["job-1"] = replace(job, record=record, ranks=(), straggler=None)
        self.cluster.change("node-2", running_jobs=())


def test_the_next_attempt_starts_without_the_node_which_is_checked_then() -> None:
    world = Slow()
    for _ in range(3):
        world.job_loop.step()
        world.node_loop.step()

    assert world.jobs.views["job-1"].record.phase is JobPhase.RUNNING
    assert world.phase() is Phase.QUARANTINED, "it is cordoned, and its check waits for the job"
    assert world.events_of(NodeDraining) == []
    [event] = world.events_of(StragglerSuspected)
    assert sentence(event) == (
        "node-2 is suspect: job-1 attempt 1 reports: rank 3 on node-2 is slow; deep health check "
        "with tests between nodes once its jobs end"
    )

    world.stop_attempt()
    world.job_loop.step()
    assert "node-2" not in world.jobs.views["job-1"].record.placement
    for _ in range(3):
        world.node_loop.step()
    assert world.phase() is Phase.CHECKING
    assert len(world.requested()) == 1


def test_by_default_a_straggler_is_only_reported() -> None:
    world = Slow(POLICY)

    world.job_loop.step()
    world.node_loop.step()

    assert len(world.events_of(JobStragglerFound)) == 1
    assert (world.requested(), world.phase()) == ([], Phase.SCHEDULABLE)


def test_a_job_that_others_restart_has_a_straggler_too() -> None:
    world = Slow()
    own = world.jobs.views.pop("job-1")
    world.job_ports = replace(world.job_ports, stragglers=lambda: [own])
    world.restart()

    for _ in range(3):
        world.job_loop.step()
        world.node_loop.step()

    assert world.phase() is Phase.QUARANTINED
    assert len(world.events_of(StragglerSuspected)) == 1
    assert not [call for call in world.calls.made if "job-1 " in call and "put" in call]


def test_where_there_are_no_checks_a_person_is_notified_once() -> None:
    world = Slow()
    world.cluster.can_check = False

    for _ in range(3):
        world.job_loop.step()

    [event] = world.events_of(StragglerSuspected)
    assert sentence(event).endswith("; no deep health check configured, inspect the node")
    assert world.phase() is Phase.SCHEDULABLE


@given(st.lists(st.sampled_from(["jobs", "nodes", "restart"]), max_size=12))
def test_in_whatever_order_the_loops_run_the_check_is_requested_once(turns) -> None:
    world = Slow()
    for turn in turns:
        match turn:
            case "jobs":
                world.job_loop.step()
            case "nodes":
                world.node_loop.step()
            case "restart":
                world.restart()

    assert len(world.requested()) <= 1
    assert len(world.cluster.nodes["node-2"].record.straggler_checks) <= 1
