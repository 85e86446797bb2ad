from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.decisions.clock_steps import CONFIRMED_AFTER
from holdfast.decisions.job_resume import ResumePolicy
from holdfast.decisions.policy import JobPolicy, RemediationPolicy
from holdfast.engine.job_reconciler import JobPorts, JobReconciler
from holdfast.engine.node_reconciler import RESYNC
from holdfast.engine.repeats import AFTER_ERROR
from holdfast.model.errors import BackendError, StorageFull
from holdfast.model.events import (
    AttemptStopped,
    CallFailed,
    JobFinished,
    JobRetried,
    TimesCorrected,
)
from holdfast.model.health import Remedy
from holdfast.model.incidents import AffectedJob, Incident
from holdfast.model.job_views import RankView
from holdfast.model.jobs import AttemptRecord, Failure, FailureKind, JobPhase, Placing
from holdfast.model.names import Reason
from holdfast.model.nodes import Phase
from holdfast.ports.leadership import Alone
from tests.ports.builders import (
    LONG_AGO,
    NOW,
    a_fault,
    a_job,
    a_node,
    a_remediation,
    healthy_nodes,
)
from tests.ports.fakes import (
    Calls,
    FakeClock,
    FakeCluster,
    FakeEvents,
    FakeIncidents,
    FakeJobs,
    FakeLeadership,
)

POLICY = ResumePolicy(job=JobPolicy(), nodes=RemediationPolicy())


class World:
    """Fakes around one reconciler, which can be replaced as if its process had died."""

    def __init__(self, *jobs, nodes=None, leadership=None) -> None:
        self.calls = Calls()
        self.clock = FakeClock()
        self.cluster = FakeCluster(nodes or healthy_nodes(2), self.calls, self.clock)
        self.jobs = FakeJobs(jobs, self.calls)
        self.incidents = FakeIncidents(self.calls)
        self.events = FakeEvents()
        self.leadership = leadership or Alone()
        self.restart()

    def restart(self) -> None:
        ports = JobPorts(
            jobs=self.jobs,
            cluster=self.cluster,
            incidents=self.incidents,
            events=self.events,
            clock=self.clock,
            leadership=self.leadership,
        )
        self.reconciler = JobReconciler(ports, POLICY)

    def step(self, rounds=1):
        """What these rounds called; the last answer is in ``wake_at``."""
        self.calls.made.clear()
        for _ in range(rounds):
            self.wake_at = self.reconciler.step()
        return list(self.calls.made)

    @property
    def record(self):
        return self.jobs.views["job-1"].record


HARDWARE = Failure(
    kind=FailureKind.HARDWARE, reason=Reason.XID_REBOOT, at=NOW, node="node-1", step=7
)


def stopped(failure=HARDWARE, **changes):
    """A job whose ranks have all ended after a stop that has settled."""
    ranks = tuple(RankView(rank=n, node=f"node-{n + 1}", exit_code=-15) for n in range(2))
    settled = replace(failure, at=NOW - POLICY.job.settle) if failure is not None else None
    return a_job(JobPhase.STOPPING, ranks=ranks, record={"failure": settled, **changes})


def an_incident(**changes) -> Incident:
    return Incident(
        **{
            "id": "incident-1",
            "node": "node-1",
            "provider_id": "i-1",
            "reason": Reason.XID_REBOOT,
            "remedy": "reboot",
            "detected_at": LONG_AGO,
            "quarantined_at": LONG_AGO,
            **changes,
        }
    )


# launching


def test_an_attempt_is_recorded_before_it_is_launched_and_after() -> None:
    world = World(a_job(JobPhase.WAITING))

    assert world.step() == ["put job-1 starting", "launch job-1", "put job-1 running"]
    assert (world.record.attempt, world.record.placement) == (1, ("node-1", "node-2"))
    assert world.events.names() == ["job.attempt_started"]
    assert world.wake_at == NOW


@pytest.mark.parametrize("call", ["launch", "put job-1"])
def test_a_launch_that_failed_is_tried_again(call) -> None:
    world = World(a_job(JobPhase.STARTING))
    world.calls.failing[call] = BackendError("down")
    world.step()
    assert world.wake_at == NOW + AFTER_ERROR
    world.calls.failing.clear()

    assert world.step() == ["launch job-1", "put job-1 running"]
    assert world.record.attempt == 1


def test_an_attempt_that_could_not_be_recorded_is_not_launched() -> None:
    world = World(a_job(JobPhase.WAITING))
    world.calls.failing["put job-1"] = BackendError("down")

    assert world.step() == []


def test_two_jobs_never_get_the_same_node_in_one_round() -> None:
    first, second = (a_job(JobPhase.WAITING, spec={"name": name}) for name in ("a", "b"))
    world = World(first, second, nodes=healthy_nodes(3))

    world.step()

    phases = {name: job.record.phase for name, job in world.jobs.views.items()}
    assert phases == {"a": JobPhase.RUNNING, "b": JobPhase.WAITING}


@pytest.mark.parametrize("phase", [JobPhase.STARTING, JobPhase.RUNNING, JobPhase.STOPPING])
def test_the_nodes_of_a_job_are_its_own_before_and_after_it_runs_on_them(phase) -> None:
    first = replace(a_job(phase, spec={"name": "a"}), ranks=())
    second = a_job(JobPhase.WAITING, spec={"name": "b"})
    world = World(first, second, nodes=healthy_nodes(3))
    world.calls.failing["launch"] = BackendError("down")

    world.step()

    assert world.jobs.views["b"].record.phase is JobPhase.WAITING


# stopping


def test_a_stop_is_recorded_before_it_is_sent() -> None:
    world = World(a_job(step=7), nodes=(a_node(), a_node(name="node-2", powered_on=False)))

    assert world.step() == ["put job-1 stopping", "stop job-1"]
    assert world.events.reported == [
        AttemptStopped(
            job="job-1",
            attempt=1,
            kind="hardware",
            reason=Reason.NODE_POWERED_OFF,
            node="node-2",
            evidence="the machine is powered off",
        )
    ]


def test_a_stop_is_sent_once() -> None:
    world = World(a_job(cancel_requested=True))

    assert world.step(rounds=4) == ["put job-1 stopping", "stop job-1"]


def test_a_stop_is_sent_to_a_job_that_was_submitted_anew_under_its_name() -> None:
    world = World(a_job(cancel_requested=True))
    world.step()
    world.jobs.views["job-1"] = a_job(cancel_requested=True)  # its first attempt, as it was before

    assert world.step(rounds=4) == ["put job-1 stopping", "stop job-1"]


def test_a_stop_that_was_not_sent_is_sent_later() -> None:
    world = World(a_job(cancel_requested=True))
    world.calls.failing["stop"] = BackendError("down")
    world.step(rounds=2)
    assert world.wake_at == NOW + AFTER_ERROR
    world.calls.failing.clear()

    assert world.step(rounds=3) == ["stop job-1"]


def test_a_stop_is_sent_again_by_a_controller_that_cannot_know() -> None:
    world = World(a_job(cancel_requested=True))
    world.step()
    world.restart()

    assert world.step(rounds=3) == ["stop job-1"]


def test_after_its_grace_an_attempt_is_killed_and_that_is_reported_once() -> None:
    world = World(a_job(JobPhase.STOPPING, record={"phase_since": LONG_AGO, "failure": HARDWARE}))

    assert world.step() == ["kill job-1", "put job-1 stopping"]
    world.clock.time += timedelta(minutes=5)
    assert world.step() == ["kill job-1", "put job-1 stopping"]
    assert world.events.names() == ["job.attempt_killed"]
    assert world.record.kills == 2


def test_what_does_not_die_is_reported() -> None:
    record = {"phase_since": NOW, "failure": HARDWARE, "kills": 1}
    world = World(a_job(JobPhase.STOPPING, record=record))

    world.step(rounds=2)

    assert [event.why for event in world.events.reported] == [
        "ranks on node-1, node-2 did not terminate after SIGKILL; check that these nodes respond"
    ]


# verdicts


def test_a_retry_says_whose_budget_it_spent() -> None:
    world = World(stopped())

    assert world.step() == ["put job-1 waiting"]
    assert world.events.reported == [
        JobRetried(
            job="job-1",
            kind="hardware",
            reason=Reason.XID_REBOOT,
            node="node-1",
            hardware_retries=1,
            app_retries=0,
            max_retries=10,
            max_app_retries=3,
        )
    ]


def test_the_end_of_a_job_is_reported() -> None:
    world = World(stopped(failure=None))

    world.step()

    assert world.events.reported == [
        JobFinished(job="job-1", outcome="cancelled", reason="cancelled by request")
    ]
    assert world.record.phase is JobPhase.CANCELLED
    assert world.step() == []


# incidents


def touching(world, **changes):
    """The job's touch in the incident that a verdict adds, or None."""
    incident = an_incident(**changes)
    world.incidents.stored[incident.id] = incident
    world.step()
    return next(iter(world.incidents.stored["incident-1"].jobs), None)


def test_the_open_incident_of_the_node_notes_the_job() -> None:
    node = a_node(Phase.REBOOTING, record={"remediation": a_remediation(ordered_at=NOW)})
    world = World(stopped(), nodes=(node, a_node(name="node-2")))

    touch = touching(world)

    assert touch == AffectedJob(job="job-1", attempt=1, stopped_at=NOW - POLICY.job.settle, step=7)
    assert world.record.failure.incident_id == "incident-1"
    assert world.record.attempts[-1].failure.incident_id == "incident-1"


def test_the_incident_of_a_node_that_was_replaced_meanwhile_notes_the_job() -> None:
    world = World(stopped(), nodes=healthy_nodes(2, first=2))

    assert touching(world) is not None


def test_the_newest_incident_of_a_node_is_the_right_one() -> None:
    world = World(stopped(), nodes=healthy_nodes(2, first=2))
    world.incidents.stored["older"] = an_incident(
        id="older", quarantined_at=LONG_AGO - timedelta(days=1)
    )

    assert touching(world) is not None
    assert world.incidents.stored["older"].jobs == ()


@pytest.mark.parametrize(
    ("changes", "notes"),
    [
        ({"released_at": NOW}, True),  # the fault cleared while the job was stopped
        ({"released_at": NOW - POLICY.job.settle}, True),
        ({"released_at": LONG_AGO}, False),  # it was over before
        ({"node": "node-2"}, False),
    ],
)
def test_only_an_incident_that_was_open_at_the_stop_notes_the_job(changes, notes) -> None:
    assert (touching(World(stopped()), **changes) is not None) is notes


def test_a_fault_that_was_detected_after_the_crash_explains_it_all_the_same() -> None:
    node = a_node(Phase.QUARANTINED, faults=(a_fault(since=NOW),))
    crash = replace(HARDWARE, kind=FailureKind.APPLICATION, reason=Reason.RANK_EXITED)
    world = World(stopped(crash), nodes=(node, a_node(name="node-2")))

    assert touching(world, detected_at=NOW, quarantined_at=NOW) is not None


def test_a_failure_of_the_application_is_no_incident_of_its_node() -> None:
    crash = replace(HARDWARE, kind=FailureKind.APPLICATION, reason=Reason.RANK_EXITED)

    assert touching(World(stopped(crash))) is None


def waiting_again(**failure):
    over = AttemptRecord(
        attempt=1,
        placement=("node-1", "node-2"),
        started_at=LONG_AGO,
        stopped_at=NOW,
        failure=replace(HARDWARE, **failure),
    )
    return a_job(JobPhase.WAITING, record={"attempt": 1, "attempts": (over,)})


def test_the_incident_notes_when_the_job_runs_again() -> None:
    world = World(waiting_again(incident_id="incident-1"))
    world.incidents.stored["incident-1"] = an_incident(released_at=LONG_AGO)

    made = world.step()

    assert made == [
        "put job-1 starting",
        "launch job-1",
        "incident incident-1",
        "put job-1 running",
    ]
    assert world.incidents.stored["incident-1"].jobs == (
        AffectedJob(job="job-1", attempt=1, stopped_at=NOW, resumed_at=NOW, step=7),
    )


def test_an_incident_that_was_opened_after_the_verdict_is_found_at_the_next_start() -> None:
    world = World(waiting_again())
    world.incidents.stored["incident-1"] = an_incident(quarantined_at=NOW)

    world.step()

    (touch,) = world.incidents.stored["incident-1"].jobs
    assert touch.resumed_at == NOW


def test_a_job_that_starts_for_the_first_time_resumes_nothing() -> None:
    world = World(a_job(JobPhase.WAITING))
    world.incidents.stored["incident-1"] = an_incident()

    world.step()

    assert world.incidents.stored["incident-1"].jobs == ()


# rounds


def test_why_a_job_waits_is_reported_once_and_again_if_it_changes() -> None:
    world = World(a_job(JobPhase.WAITING, nodes=3))
    world.step(rounds=3)
    world.cluster.change("node-2", faults=(a_fault(Remedy.REPLACE),))
    world.step(rounds=2)

    assert [event.why for event in world.events.reported] == [
        "waiting for nodes: 3 nodes are needed, 2 of 2 are available",
        "waiting for nodes: 3 nodes are needed, 1 of 2 are available",
    ]


def test_why_a_job_waits_is_reported_of_the_next_one_of_its_name_too() -> None:
    world = World(a_job(JobPhase.WAITING), nodes=healthy_nodes(1))
    world.step(rounds=2)
    gone = world.jobs.views.pop("job-1")
    world.step()
    world.jobs.views["job-1"] = gone
    world.step(rounds=2)

    assert world.events.names() == ["job.waits", "job.waits"]


def test_a_job_in_good_health_is_looked_at_when_its_nodes_could_be_silent() -> None:
    world = World(a_job())

    assert world.step() == []
    assert world.wake_at == NOW + timedelta(seconds=39)


def test_a_round_is_made_every_minute_at_least() -> None:
    world = World(a_job(JobPhase.WAITING, nodes=3))

    world.step()

    assert world.wake_at == NOW + RESYNC


@pytest.mark.parametrize("call", ["jobs", "snapshot"])
def test_what_cannot_be_read_is_read_again_soon(call) -> None:
    world = World(a_job(JobPhase.WAITING))
    world.calls.failing[call] = BackendError("down")

    assert world.step() == []
    assert world.wake_at == NOW + AFTER_ERROR
    assert world.events.names() == ["engine.call_failed"]


def test_what_fails_for_one_job_does_not_keep_the_others_waiting() -> None:
    first, second = (a_job(JobPhase.WAITING, nodes=1, spec={"name": name}) for name in ("a", "b"))
    world = World(first, second)
    world.calls.failing["put a"] = BackendError("down")

    assert world.step() == ["put b starting", "launch b", "put b running"]


class SlowJobs(FakeJobs):
    """Writes of job a fail, after ten seconds."""

    takes = timedelta(seconds=10)
    clock: FakeClock

    def put(self, job, record) -> None:
        if job == "a":
            self.clock.time += self.takes
            raise BackendError("a webhook does not answer")
        super().put(job, record)


def two_that_wait() -> World:
    jobs = (a_job(JobPhase.WAITING, nodes=1, spec={"name": name}) for name in ("a", "b"))
    return World(*jobs)


def test_a_job_whose_calls_take_long_to_fail_rests_as_long_and_then_comes_last() -> None:
    world = two_that_wait()
    world.jobs = SlowJobs(world.jobs.views.values(), world.calls)
    world.jobs.clock = world.clock
    world.restart()
    took = SlowJobs.takes

    assert "put b starting" in world.step()
    assert world.clock.time == NOW + took

    world.step()
    assert world.clock.time == NOW + took, "a was not tried again"
    assert world.wake_at <= NOW + 2 * took

    world.clock.time = NOW + 2 * took
    world.jobs.change("b", record=replace(world.jobs.views["b"].record, phase=JobPhase.WAITING))
    assert "put b starting" in world.step()
    assert world.clock.time == NOW + 3 * took, "a was tried after b"


@pytest.mark.parametrize("then", [timedelta(minutes=1), timedelta(seconds=10, hours=-3)])
def test_a_clock_that_jumps_during_a_call_delays_no_job_for_hours(then) -> None:
    world = two_that_wait()
    world.jobs = SlowJobs(world.jobs.views.values(), world.calls)
    world.jobs.clock = world.clock
    world.jobs.takes = timedelta(hours=3)
    world.restart()
    world.step()
    world.jobs.takes = timedelta(seconds=10)

    world.clock.time += then
    began = world.clock.time
    world.step()

    assert world.clock.time == began + world.jobs.takes, "a was tried again"


def test_a_job_whose_calls_fail_at_once_is_tried_in_every_round() -> None:
    world = two_that_wait()
    world.calls.failing["put a"] = BackendError("down")

    world.step(rounds=2)
    failed = [event for event in world.events.reported if isinstance(event, CallFailed)]
    assert [event.times for event in failed] == [1], "the second was counted, not reported"

    del world.calls.failing["put a"]
    assert "put a starting" in world.step()


@pytest.mark.parametrize("call", ["jobs", "snapshot", "put job-1", "launch"])
def test_when_nothing_can_be_recorded_nothing_is_done(call) -> None:
    world = World(a_job(JobPhase.WAITING))
    world.calls.failing[call] = StorageFull("no space left")

    with pytest.raises(StorageFull):
        world.step()


# jobs that a scheduler places


def scheduled(phase, **changes):
    return a_job(phase, **{"spec": {"placing": Placing.SCHEDULER}, **changes})


def test_a_scheduled_attempt_counts_as_started_when_all_its_ranks_run() -> None:
    world = World(scheduled(JobPhase.WAITING, capacity={"node-1": 1, "node-2": 1}))

    assert world.step() == ["put job-1 starting", "launch job-1"]
    assert world.step() == ["launch job-1"]
    assert world.events.names() == []

    world.jobs.change("job-1", ranks=scheduled(JobPhase.RUNNING).ranks)
    assert world.step() == ["put job-1 running"]
    assert world.events.names() == ["job.attempt_started"]
    assert world.record.attempt == 1


def test_the_incident_of_a_scheduled_job_ends_when_its_ranks_run() -> None:
    over = AttemptRecord(
        attempt=1, placement=(), started_at=LONG_AGO, stopped_at=LONG_AGO, failure=HARDWARE
    )
    failure = replace(HARDWARE, incident_id="incident-1")
    job = scheduled(
        JobPhase.STARTING,
        ranks=scheduled(JobPhase.RUNNING).ranks,
        record={"attempt": 2, "attempts": (replace(over, failure=failure),)},
    )
    world = World(job)
    world.incidents.stored["incident-1"] = an_incident()

    world.step()

    (touch,) = world.incidents.stored["incident-1"].jobs
    assert (touch.attempt, touch.resumed_at) == (1, NOW)


def test_two_scheduled_jobs_do_not_start_into_the_same_room() -> None:
    capacity = {"node-1": 1, "node-2": 1}
    other = scheduled(JobPhase.WAITING, spec={"placing": Placing.SCHEDULER, "name": "job-2"})
    world = World(scheduled(JobPhase.WAITING, capacity=capacity), replace(other, capacity=capacity))

    assert world.step() == ["put job-1 starting", "launch job-1"]
    assert world.wake_at == NOW


def restarting(failure: Failure | None = HARDWARE, **record):
    """A job whose next attempt was ordered 4 s ago, with all its ranks there."""
    over = AttemptRecord(
        attempt=1,
        placement=("node-1", "node-2"),
        started_at=NOW - timedelta(hours=1),
        stopped_at=NOW - timedelta(seconds=34),
        failure=failure and replace(failure, at=NOW - timedelta(seconds=35)),
    )
    ranks = tuple(RankView(rank=n, node=f"node-{n + 1}") for n in range(2))
    ordered_at = NOW - timedelta(seconds=4)
    fields = {"attempt": 2, "attempts": (over,), "started_at": ordered_at, **record}
    return scheduled(JobPhase.STARTING, ranks=ranks, record=fields)


def test_a_restart_reports_how_long_each_part_of_it_took() -> None:
    world = World(restarting())

    world.step()

    (event,) = world.events.reported
    took = (event.stopped_in, event.waited, event.started_in)
    assert [part.total_seconds() for part in took] == [1, 30, 4]
    assert world.record.running_at == NOW
    assert world.record.started_at == NOW - timedelta(seconds=4)


@pytest.mark.parametrize("job", [restarting(failure=None), restarting(attempts=())])
def test_a_start_after_no_failure_reports_no_times(job) -> None:
    world = World(job)

    world.step()

    assert [event.stopped_in for event in world.events.reported] == [None]


def test_when_the_ranks_of_an_attempt_ran_is_kept_with_it_and_not_for_the_next() -> None:
    world = World(stopped(running_at=NOW - timedelta(hours=1)))

    world.step(rounds=2)

    assert world.record.attempts[-1].running_at == NOW - timedelta(hours=1)
    assert world.record.phase is JobPhase.RUNNING
    assert world.record.running_at == NOW


# who acts


def test_nothing_is_done_without_the_lead() -> None:
    world = World(a_job(JobPhase.WAITING), leadership=FakeLeadership(0))

    assert world.step() == []
    assert world.wake_at == NOW + AFTER_ERROR


def test_a_round_ends_when_the_lead_is_lost() -> None:
    stops = [
        a_job(nodes=1, spec={"name": name}, record={"placement": (node,)}, ranks=())
        for name, node in (("job-1", "node-1"), ("job-2", "node-2"))
    ]
    faulty = [replace(node, faults=(a_fault(),)) for node in healthy_nodes(2)]
    world = World(*stops, nodes=faulty, leadership=FakeLeadership(1))

    assert world.step() == ["put job-1 stopping", "stop job-1"]


def test_the_cluster_is_not_read_for_no_jobs() -> None:
    world = World()
    world.calls.failing["snapshot"] = BackendError("down")

    world.step()

    assert world.wake_at == NOW + RESYNC


class SetBackMeanwhile(FakeCluster):
    """Its clock is set back by an hour before each snapshot, as after a jump forward."""

    def snapshot(self, peer_pools=()):
        self._clock.time -= timedelta(hours=1)
        return super().snapshot(peer_pools)


class SetBackWhileRead(FakeCluster):
    """Dates its heartbeats while the clock is an hour behind for a moment."""

    def snapshot(self, peer_pools=()):
        return replace(super().snapshot(peer_pools), read_at=self._clock.time - timedelta(hours=1))


@pytest.mark.parametrize("kind", [SetBackMeanwhile, SetBackWhileRead])
def test_a_clock_that_is_set_back_while_the_nodes_are_read_stops_no_job(kind) -> None:
    world = World(a_job())
    nodes = [replace(one, heartbeat_at=NOW - timedelta(hours=1)) for one in healthy_nodes(2)]
    world.cluster = kind(nodes, world.calls, world.clock)
    world.restart()

    world.step()

    [job] = world.jobs.jobs()
    assert job.record.phase is JobPhase.RUNNING


# exchange of a node


def exchanging(**changes):
    """A job of launchers whose second node has failed, and a spare."""
    ranks = tuple(RankView(rank=n, node=f"node-{n + 1}") for n in range(2))
    job = a_job(JobPhase.RUNNING, ranks=ranks, spec={"keeps_ranks": True}, **changes)
    return World(
        job, nodes=(a_node(), a_node(Phase.DRAINING, name="node-2"), a_node(name="node-3"))
    )


def test_an_exchange_is_recorded_before_ranks_are_launched() -> None:
    world = exchanging()

    assert world.step() == ["put job-1 starting", "launch job-1"]
    assert world.record.placement == ("node-1", "node-3")
    assert [event.exchanged for event in world.events.reported] == ["node-2"]


def test_ranks_left_on_an_exchanged_node_are_ended_before_others_count_as_running() -> None:
    world = exchanging()
    world.step()
    left = (RankView(rank=1, node="node-2"),)
    world.jobs.change("job-1", ranks=world.jobs.views["job-1"].ranks[:1], leaving=left)

    assert world.step() == ["launch job-1"]
    world.clock.time += timedelta(seconds=5)
    assert world.step() == ["kill job-1 node-2", "put job-1 starting"]
    assert world.events.reported[-1].nodes == ("node-2",)
    world.jobs.change("job-1", leaving=())
    assert world.step()[-1] == "put job-1 running"
    assert world.events.reported[-1].nodes == ("node-1", "node-3")


def test_two_jobs_do_not_get_the_same_spare_in_one_round() -> None:
    ranks = (RankView(rank=0, node="node-1"), RankView(rank=1, node="node-2"))
    others = (RankView(rank=0, node="node-3"), RankView(rank=1, node="node-4"))
    spec = {"keeps_ranks": True}
    world = World(
        a_job(JobPhase.RUNNING, ranks=ranks, spec=spec),
        a_job(
            JobPhase.RUNNING,
            ranks=others,
            spec={**spec, "name": "job-2"},
            record={"placement": ("node-3", "node-4")},
        ),
        nodes=(
            a_node(), a_node(Phase.DRAINING, name="node-2"),
            a_node(name="node-3"), a_node(Phase.DRAINING, name="node-4"), a_node(name="node-5"),
        ),
    )  # fmt: skip

    world.step()

    assert world.record.placement == ("node-1", "node-5")
    assert world.jobs.views["job-2"].record.phase is JobPhase.STOPPING


# a clock that was ahead


AHEAD = timedelta(hours=3)


def test_a_job_that_was_stopped_while_the_clock_was_ahead_is_resumed() -> None:
    view, at = stopped(), NOW + AHEAD
    record = replace(view.record, phase_since=at, failure=replace(HARDWARE, at=at))
    world = World(replace(view, record=record), nodes=healthy_nodes(3))

    assert world.step() == ["stop job-1"]
    assert world.wake_at == NOW + CONFIRMED_AFTER
    world.clock.time = world.wake_at
    assert "put job-1 stopping" in world.step()
    assert world.record.phase_since == world.record.failure.at == world.clock.time
    assert world.events.reported[-1] == TimesCorrected(what="job-1", ahead=AHEAD - CONFIRMED_AFTER)
    world.clock.time += POLICY.job.settle
    world.step(rounds=2)

    assert world.record.phase is JobPhase.RUNNING


def test_a_clock_that_is_behind_for_a_moment_dates_no_record_back() -> None:
    world = World(a_job(JobPhase.WAITING, nodes=3))
    before = world.record

    for second in range(30):
        is_behind = second % 10 != 9
        world.clock.time = NOW + timedelta(seconds=second) - (AHEAD if is_behind else timedelta())
        world.step()

    assert world.record == before


def test_a_clock_that_is_set_forward_shortens_no_stop() -> None:
    record = {"failure": HARDWARE, "phase_since": NOW}
    world = World(a_job(JobPhase.STOPPING, record=record), nodes=healthy_nodes(3))
    world.step()
    world.clock.set_forward(AHEAD)

    assert world.step() == ["put job-1 stopping"]
    assert world.events.reported[-1] == TimesCorrected(what="job-1", ahead=-AHEAD)
    assert world.record.phase_since == world.clock.time


def test_only_the_leader_moves_times_forward() -> None:
    world = World(stopped(), nodes=healthy_nodes(3), leadership=FakeLeadership(0))
    world.step()
    world.clock.set_forward(AHEAD)

    assert world.step() == []


def test_only_the_leader_dates_records_back_and_others_do_not_spin() -> None:
    view = a_job(JobPhase.WAITING, nodes=3, record={"phase_since": NOW + AHEAD})
    world = World(view, leadership=FakeLeadership(0))

    world.step()
    world.clock.time += CONFIRMED_AFTER

    assert world.step() == []
    assert world.wake_at > world.clock.time


def test_one_record_that_cannot_be_stored_is_tried_after_the_others() -> None:
    ahead = {"phase_since": NOW + AHEAD}
    views = [
        a_job(JobPhase.WAITING, nodes=3, spec={"name": name}, record=ahead) for name in ("a", "b")
    ]
    world = World(*views)
    world.step()
    world.clock.time += CONFIRMED_AFTER
    world.calls.failing["put a"] = BackendError("down")
    assert world.step() == ["put b waiting"]
    assert [one.what for one in world.events.reported if isinstance(one, TimesCorrected)] == ["b"]
    world.calls.failing.clear()
    world.step()
    world.clock.time = world.wake_at

    assert world.step() == ["put a waiting"]


def test_leadership_that_is_lost_ends_corrections() -> None:
    ahead = {"phase_since": NOW + AHEAD}
    views = [
        a_job(JobPhase.WAITING, nodes=3, spec={"name": name}, record=ahead) for name in ("a", "b")
    ]
    world = World(*views, leadership=FakeLeadership(2))
    world.step()
    world.clock.time += CONFIRMED_AFTER
    world.leadership._left = 1

    assert world.step() == ["put a waiting"]
