"""Jobs: when an attempt is stopped, whose fault it was, and whether there is another."""

from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.decisions.job_resume import (
    KILL_BACKOFF,
    ResumePolicy,
    decide_job,
    failures_at_step,
)
from holdfast.decisions.policy import JobPolicy, RemediationPolicy
from holdfast.model.actions import (
    Finish,
    KillAttempt,
    Relaunch,
    Retry,
    StartAttempt,
    StopAttempt,
    Wait,
)
from holdfast.model.health import Remedy, Urgency
from holdfast.model.job_views import RankView
from holdfast.model.jobs import Failure, FailureKind, JobPhase
from holdfast.model.names import Condition, Reason
from holdfast.model.nodes import Phase
from tests.ports.builders import (
    LONG_AGO,
    NOW,
    a_fault,
    a_job,
    a_node,
    a_remediation,
    by_name,
    healthy_nodes,
)

POLICY = ResumePolicy(job=JobPolicy(), nodes=RemediationPolicy())
TICK = timedelta(microseconds=1)
TWO = by_name(*healthy_nodes(2))
HARDWARE, APPLICATION, REQUESTED = FailureKind


def decided(job, nodes=TWO, *, now=NOW, policy=POLICY):
    return decide_job(job, nodes, policy, now)


def with_node(**changes):
    """Two nodes, the second of which is changed."""
    return by_name(a_node(), a_node(**{"name": "node-2", **changes}))


def a_failure(kind=HARDWARE, **changes) -> Failure:
    return Failure(**{"kind": kind, "reason": "Cause", "at": LONG_AGO, **changes})


def ended(*codes):
    """Ranks that ended with these codes, one after the other; None for one that runs."""
    return tuple(
        RankView(
            rank=rank,
            node=f"node-{rank + 1}",
            exit_code=code,
            ended_at=None if code is None else NOW - timedelta(seconds=10 - rank),
        )
        for rank, code in enumerate(codes)
    )


# waiting


def test_a_job_starts_when_there_are_enough_nodes() -> None:
    assert decided(a_job(JobPhase.WAITING)) == StartAttempt(
        job="job-1", placement=("node-1", "node-2")
    )


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.SCHEDULABLE])
def test_a_job_never_starts_on_a_node_that_is_not_schedulable(phase) -> None:
    job = a_job(JobPhase.WAITING, record={"phase_since": NOW})
    nodes = by_name(a_node(), a_node(phase, name="node-2"))

    assert decided(job, nodes) == Wait(
        until=NOW + POLICY.job.wait_for_nodes,
        why="waiting for nodes: 2 nodes are needed, 1 of 2 are available",
    )


def test_a_job_that_waits_too_long_for_nodes_fails_and_says_so() -> None:
    job = a_job(JobPhase.WAITING, record={"phase_since": NOW - POLICY.job.wait_for_nodes})

    assert isinstance(decided(job, {}, now=NOW - TICK), Wait)
    assert decided(job, {}) == Finish(
        job="job-1",
        outcome=JobPhase.FAILED,
        reason="no healthy nodes within 2h: 2 nodes are needed, 0 of 0 are available",
    )


def test_a_job_backs_off_and_then_starts() -> None:
    job = a_job(JobPhase.WAITING, record={"start_after": NOW})

    assert decided(job, now=NOW - TICK) == Wait(
        until=NOW, why="backing off for 1m after repeated failures of the application"
    )
    assert isinstance(decided(job), StartAttempt)


def test_the_time_to_wait_for_nodes_begins_after_the_backoff() -> None:
    since = NOW - POLICY.job.wait_for_nodes
    job = a_job(JobPhase.WAITING, record={"phase_since": LONG_AGO, "start_after": since})

    assert isinstance(decided(job, {}, now=NOW - TICK), Wait)
    assert isinstance(decided(job, {}), Finish)


# running


def test_a_job_whose_ranks_and_nodes_are_well_is_left_alone() -> None:
    choice = decided(a_job())

    heard = TWO["node-1"].heartbeat_at
    assert heard is not None
    assert choice == Wait(until=heard + POLICY.nodes.heartbeat_timeout)


def test_a_job_has_succeeded_when_all_ranks_have() -> None:
    finish = Finish(job="job-1", outcome=JobPhase.SUCCEEDED, reason="all ranks exited with code 0")

    assert decided(a_job(ranks=ended(0, 0))) == finish
    assert isinstance(decided(a_job(ranks=ended(0, None))), Wait)
    assert isinstance(decided(a_job(ranks=ended(0))), Wait)


@pytest.mark.parametrize("phase", [JobPhase.STARTING, JobPhase.RUNNING])
def test_a_job_that_has_succeeded_is_not_undone(phase) -> None:
    job = a_job(phase, ranks=ended(0, 0), cancel_requested=True)

    choice = decided(job, with_node(faults=(a_fault(),)))

    assert isinstance(choice, Finish)
    assert choice.outcome is JobPhase.SUCCEEDED


def stopped_for(nodes, job=None) -> Failure:
    choice = decided(job or a_job(step=7), nodes)
    assert isinstance(choice, StopAttempt)
    assert choice.failure is not None
    return choice.failure


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"faults": (a_fault(Remedy.REBOOT),)}, Reason.XID_REBOOT),
        ({"faults": (a_fault(Remedy.REPLACE),)}, Reason.XID_REPLACE),
        ({"heartbeat_at": NOW - POLICY.nodes.heartbeat_timeout}, Reason.NODE_SILENT),
        ({"powered_on": False}, Reason.NODE_POWERED_OFF),
        ({"phase": Phase.DRAINING}, Reason.XID_REBOOT),
        ({"phase": Phase.REBOOTING}, Reason.XID_REBOOT),
        ({"phase": Phase.REPLACING}, Reason.XID_REPLACE),
        ({"phase": Phase.JOINING}, Reason.NODE_LOST),
        ({"phase": Phase.CHECKING}, Reason.NODE_LOST),
    ],
    ids=str,
)
def test_an_attempt_is_stopped_when_a_node_cannot_go_on(changes, reason) -> None:
    failure = stopped_for(with_node(**changes))

    assert (failure.kind, failure.reason, failure.node) == (HARDWARE, reason, "node-2")
    assert (failure.at, failure.step) == (NOW, 7)


def test_an_attempt_is_stopped_when_a_node_has_left_the_cluster() -> None:
    failure = stopped_for(by_name(a_node()))

    assert (failure.kind, failure.reason) == (HARDWARE, Reason.NODE_LOST)
    assert failure.evidence == "node-2 has left the cluster"


def test_a_deferred_fault_does_not_stop_the_attempt() -> None:
    fault = a_fault(urgency=Urgency.DEFERRED)

    assert isinstance(decided(a_job(), with_node(faults=(fault,))), Wait)
    marked = with_node(phase=Phase.QUARANTINED, faults=(fault,))
    assert isinstance(decided(a_job(), marked), Wait)


@pytest.mark.parametrize(
    "changes",
    [
        {"ranks": ended(1, None)},
        {"ranks": ended(None, -9)},
        {"ranks": (RankView(rank=0, node="node-1", exit_code=1, is_evicted=True),)},
        {"ranks": (RankView(rank=1, node="node-2", exit_code=1, is_lost=True),)},
        {"hung_since": LONG_AGO},
    ],
    ids=["exits", "is-killed", "is-evicted", "is-lost", "hangs"],
)
@pytest.mark.parametrize("phase", [Phase.SCHEDULABLE, Phase.QUARANTINED])
def test_an_attempt_that_fails_under_a_deferred_fault_has_failed_by_that_fault(
    changes, phase
) -> None:
    nodes = with_node(phase=phase, faults=(a_fault(urgency=Urgency.DEFERRED),))

    failure = stopped_for(nodes, a_job(**changes))

    assert (failure.kind, failure.reason, failure.node) == (HARDWARE, Reason.XID_REBOOT, "node-2")
    assert failure.evidence.startswith("evidence for reboot (")


def test_a_fault_that_was_forgiven_or_calls_for_nothing_explains_no_failure() -> None:
    deferred = a_fault(urgency=Urgency.DEFERRED)
    forgiven = with_node(faults=(deferred,), record={"cleared_at": NOW})
    warned = with_node(faults=(a_fault(Remedy.NONE, urgency=Urgency.DEFERRED),))

    for nodes in (forgiven, warned):
        assert stopped_for(nodes, a_job(ranks=ended(1, None))).kind is APPLICATION


def test_the_loss_of_one_node_is_not_explained_by_a_deferred_fault_of_another() -> None:
    lost = RankView(rank=0, node="node-1", exit_code=1, is_lost=True)

    failure = stopped_for(
        with_node(faults=(a_fault(urgency=Urgency.DEFERRED),)), a_job(ranks=(lost,))
    )

    assert (failure.reason, failure.node) == (Reason.NODE_LOST, "node-1")


def test_a_failure_is_dated_from_the_end_of_the_first_rank() -> None:
    job = a_job(ranks=ended(1, 1))
    (first, _) = job.ranks

    for nodes in (TWO, with_node(faults=(a_fault(),))):
        failure = stopped_for(nodes, job)
        assert (failure.at, failure.since) == (NOW, first.ended_at)
        assert failure.began_at == first.ended_at
    started_later = a_job(ranks=ended(1, 1), record={"started_at": NOW - timedelta(seconds=3)})
    assert stopped_for(TWO, started_later).began_at == NOW - timedelta(seconds=3)
    undated = a_job(ranks=(RankView(rank=0, node="node-1", exit_code=1),))
    assert stopped_for(TWO, undated).began_at == NOW


def test_a_node_that_a_person_wants_spends_nobodys_budget() -> None:
    remediation = a_remediation(condition=Condition.REQUESTED, reason=Reason.REQUESTED_REBOOT)

    failure = stopped_for(with_node(phase=Phase.DRAINING, record={"remediation": remediation}))

    assert (failure.kind, failure.reason) == (REQUESTED, Reason.REQUESTED_REBOOT)


@pytest.mark.parametrize("phase", [JobPhase.STARTING, JobPhase.RUNNING])
@pytest.mark.parametrize("faults", [(), (a_fault(),)])
def test_a_node_that_is_removed_on_request_spends_nobodys_budget(phase, faults) -> None:
    nodes = with_node(leaving="removed from the cluster on request", faults=faults)

    stop = decided(a_job(phase), nodes)

    assert isinstance(stop, StopAttempt)
    assert (stop.failure.kind, stop.failure.reason) == (REQUESTED, Reason.NODE_REMOVED)
    assert stop.failure.node == "node-2"


def test_a_fault_on_a_node_that_a_person_wants_is_a_failure_of_hardware() -> None:
    remediation = a_remediation(condition=Condition.REQUESTED, reason=Reason.REQUESTED_REBOOT)
    nodes = with_node(
        phase=Phase.DRAINING, faults=(a_fault(),), record={"remediation": remediation}
    )

    assert stopped_for(nodes).kind is HARDWARE


def test_the_node_of_the_lowest_rank_gives_the_reason() -> None:
    nodes = by_name(
        a_node(faults=(a_fault(Remedy.REPLACE),)), a_node(name="node-2", powered_on=False)
    )

    assert stopped_for(nodes).node == "node-1"
    turned = a_job(record={"placement": ("node-2", "node-1")})
    assert stopped_for(nodes, turned).node == "node-2"


@pytest.mark.parametrize(("since", "stops"), [(NOW - TICK, False), (NOW, True), (NOW + TICK, True)])
def test_a_fault_of_the_application_restarts_the_attempt_that_it_hit(since, stops) -> None:
    restart = a_fault(Remedy.RESTART_APP, reason=Reason.XID_RESTART_APP, since=since)
    job = a_job(record={"started_at": NOW})

    choice = decided(job, with_node(faults=(restart,)), now=NOW + 2 * TICK)

    assert isinstance(choice, StopAttempt) is stops
    if isinstance(choice, StopAttempt):
        assert choice.failure is not None
        assert (choice.failure.kind, choice.failure.reason) == (HARDWARE, Reason.XID_RESTART_APP)


def test_the_rank_that_ended_first_gives_the_reason() -> None:
    early = RankView(rank=1, node="node-2", exit_code=-11, ended_at=NOW - timedelta(seconds=2))
    late = RankView(rank=0, node="node-1", exit_code=1, ended_at=NOW - timedelta(seconds=1))

    failure = stopped_for(TWO, a_job(ranks=(late, early), step=7))

    assert (failure.kind, failure.reason, failure.node, failure.step) == (
        APPLICATION,
        Reason.RANK_EXITED,
        "node-2",
        7,
    )
    assert failure.evidence == "node rank 1 was killed by signal 11"


def test_an_exit_code_is_reported() -> None:
    failure = stopped_for(TWO, a_job(ranks=ended(None, 3)))

    assert failure.evidence == "node rank 1 exited with code 3"


def test_hardware_explains_a_crash_better_than_the_crash_itself() -> None:
    failure = stopped_for(with_node(faults=(a_fault(),)), a_job(ranks=ended(1, None)))

    assert failure.kind is HARDWARE


def test_a_job_that_hangs_is_stopped() -> None:
    failure = stopped_for(TWO, a_job(hung_since=LONG_AGO))

    assert (failure.kind, failure.reason) == (APPLICATION, Reason.JOB_HUNG)
    assert failure.evidence == "no progress since 2025-12-02T12:00:00+00:00"


def test_what_found_a_hang_is_the_reason_and_the_evidence() -> None:
    hung = a_job(hung_since=LONG_AGO, hung_reason="LogStateHanging_Steps", hung_evidence="silent")

    failure = stopped_for(TWO, hung)

    assert (failure.reason, failure.evidence) == ("LogStateHanging_Steps", "silent")
    assert failure.kind is APPLICATION


@pytest.mark.parametrize("phase", [JobPhase.STARTING, JobPhase.RUNNING])
def test_a_cancelled_job_is_stopped_for_no_failure(phase) -> None:
    choice = decided(a_job(phase, cancel_requested=True), with_node(powered_on=False))

    assert choice == StopAttempt(job="job-1", failure=None)


# starting


def starting(*codes, since=NOW):
    return a_job(
        JobPhase.STARTING,
        ranks=ended(*codes),
        record={"phase_since": since, "started_at": since},
    )


def test_a_launch_that_was_interrupted_is_repeated() -> None:
    assert decided(starting()) == Relaunch(job="job-1")
    assert decided(starting(None)) == Relaunch(job="job-1")
    assert decided(starting(None, None)) == Relaunch(job="job-1")


@pytest.mark.parametrize("phase", [JobPhase.STARTING, JobPhase.RUNNING])
def test_a_launch_that_never_succeeds_fails_at_its_deadline(phase) -> None:
    job = a_job(
        phase,
        ranks=ended(None),
        record={"phase_since": NOW - POLICY.job.launch_timeout},
    )

    assert not isinstance(decided(job, now=NOW - TICK), StopAttempt)
    failure = stopped_for(TWO, job)
    assert (failure.kind, failure.reason) == (APPLICATION, Reason.LAUNCH_FAILED)
    assert failure.evidence == "1 of 2 ranks were launched within 10m"


def test_a_rank_that_never_appears_is_waited_for_no_longer_than_a_launch() -> None:
    job = a_job(ranks=ended(None), record={"phase_since": NOW - POLICY.job.launch_timeout + TICK})

    assert decided(job) == Wait(until=NOW + TICK)


@pytest.mark.parametrize(
    "changes",
    [
        {"faults": (a_fault(urgency=Urgency.DEFERRED),)},
        {"phase": Phase.QUARANTINED, "faults": (a_fault(urgency=Urgency.DEFERRED),)},
    ],
)
def test_no_rank_is_launched_on_a_node_that_turned_faulty_meanwhile(changes) -> None:
    assert stopped_for(with_node(**changes), starting(None)).kind is HARDWARE
    assert isinstance(decided(starting(None, None), with_node(**changes)), Relaunch)


def test_no_rank_is_launched_on_a_node_that_a_person_wants() -> None:
    remediation = a_remediation(condition=Condition.REQUESTED, urgency=Urgency.DEFERRED)
    nodes = with_node(phase=Phase.QUARANTINED, record={"remediation": remediation})

    assert stopped_for(nodes, starting(None)).kind is REQUESTED


# stopping


def stopping(*codes, kind=HARDWARE, spec=None, record=None, **failure):
    """A job whose attempt was stopped long ago."""
    return a_job(
        JobPhase.STOPPING,
        spec=spec,
        ranks=ended(*codes),
        record={
            "phase_since": NOW,
            "failure": a_failure(kind, **failure),
            **(record or {}),
        },
    )


def test_ranks_have_their_grace_and_are_then_killed() -> None:
    job = stopping(-15, None)
    deadline = NOW + job.spec.grace

    assert decided(job, now=deadline - TICK) == Wait(until=deadline)
    assert decided(job, now=deadline) == KillAttempt(job="job-1")


LINGER = "did not terminate after SIGKILL; check that these nodes respond"


@pytest.mark.parametrize(
    ("kills", "pause"),
    [
        (1, KILL_BACKOFF.first),
        (2, 2 * KILL_BACKOFF.first),
        (5, 16 * KILL_BACKOFF.first),
        (7, KILL_BACKOFF.longest),
        (10_000, KILL_BACKOFF.longest),
    ],
)
def test_what_outlives_sigkill_is_killed_again_and_ever_more_rarely(kills, pause) -> None:
    job = stopping(None, None, record={"kills": kills})

    assert decided(job, now=NOW + pause - TICK) == Wait(
        until=NOW + pause, why=f"ranks on node-1, node-2 {LINGER}"
    )
    assert decided(job, now=NOW + pause) == KillAttempt(job="job-1")


def test_a_cancelled_job_ends_when_its_ranks_have() -> None:
    job = stopping(-15, -15, record={"failure": None})

    assert decided(job) == Finish(
        job="job-1", outcome=JobPhase.CANCELLED, reason="cancelled by request"
    )


def test_a_job_that_was_never_launched_stops_at_once() -> None:
    assert isinstance(decided(stopping()), Retry)


def test_late_evidence_is_waited_for() -> None:
    job = stopping(1, 1, kind=APPLICATION, at=NOW)
    settled = NOW + POLICY.job.settle

    assert decided(job, now=settled - TICK) == Wait(until=settled)
    assert isinstance(decided(job, now=settled), Retry)


def test_late_evidence_turns_a_failure_of_the_application_into_one_of_hardware() -> None:
    job = stopping(1, 1, kind=APPLICATION, evidence="rank 0 died", step=7, node="node-1")

    choice = decided(job, with_node(faults=(a_fault(),)))

    assert isinstance(choice, Retry)
    assert choice.failure == a_failure(
        HARDWARE,
        reason=Reason.XID_REBOOT,
        node="node-2",
        evidence="evidence for reboot (rank 0 died)",
        step=7,
    )


def test_a_deferred_fault_that_is_known_late_turns_a_failure_into_one_of_hardware_too() -> None:
    job = stopping(1, 1, kind=APPLICATION)

    choice = decided(job, with_node(faults=(a_fault(urgency=Urgency.DEFERRED),)))

    assert isinstance(choice, Retry)
    assert (choice.failure.kind, choice.failure.node) == (HARDWARE, "node-2")


@pytest.mark.parametrize("kind", [HARDWARE, REQUESTED])
def test_late_evidence_does_not_change_what_is_known(kind) -> None:
    job = stopping(1, 1, kind=kind)

    choice = decided(job, with_node(faults=(a_fault(),)))

    assert isinstance(choice, Retry)
    assert choice.failure == job.record.failure


# budgets


@pytest.mark.parametrize(
    ("spent", "choice"), [(0, Retry), (8, Retry), (9, Retry), (10, Finish), (11, Finish)]
)
def test_hardware_spends_its_own_budget(spent, choice) -> None:
    record = {"hardware_retries": spent, "app_retries": 99}

    assert type(decided(stopping(-15, -15, record=record))) is choice


@pytest.mark.parametrize(("spent", "choice"), [(0, Retry), (2, Retry), (3, Finish), (4, Finish)])
def test_the_application_spends_its_own_budget(spent, choice) -> None:
    record = {"app_retries": spent, "hardware_retries": 99}

    assert type(decided(stopping(1, 1, kind=APPLICATION, record=record))) is choice


@pytest.mark.parametrize("kind", [HARDWARE, APPLICATION])
@pytest.mark.parametrize(("hardware", "app", "choice"), [(2, 1, Retry), (2, 2, Finish)])
def test_a_budget_of_both_kinds_counts_their_sum(kind, hardware, app, choice) -> None:
    spent = {"hardware_retries": hardware, "app_retries": app}
    job = stopping(-15, -15, kind=kind, record=spent)
    job = replace(job, spec=replace(job.spec, max_all_retries=4))

    found = decided(job)

    assert type(found) is choice
    if choice is Finish:
        assert found.reason.startswith("hardware and application retries exhausted (4 of 4)")
    requested = stopping(-15, -15, kind=REQUESTED, record=spent)
    assert isinstance(decided(replace(requested, spec=job.spec)), Retry)


def test_requests_spend_no_budget() -> None:
    record = {"app_retries": 99, "hardware_retries": 99}

    assert isinstance(decided(stopping(-15, -15, kind=REQUESTED, record=record)), Retry)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (
            HARDWARE,
            "hardware retries exhausted (10 of 10); last failure: Cause on node-1: it broke",
        ),
        (
            APPLICATION,
            "application retries exhausted (3 of 3); last failure: Cause on node-1: it broke",
        ),
    ],
)
def test_a_job_that_failed_says_why(kind, reason) -> None:
    job = stopping(
        1,
        1,
        kind=kind,
        node="node-1",
        evidence="it broke",
        record={"hardware_retries": 10, "app_retries": 3},
    )

    assert decided(job) == Finish(
        job="job-1", outcome=JobPhase.FAILED, reason=reason, failure=job.record.failure
    )


def test_no_retry_at_all_is_a_budget_too() -> None:
    job = stopping(1, 1)

    choice = decided(replace(job, spec=replace(job.spec, max_retries=0)))

    assert isinstance(choice, Finish)


def test_a_job_that_is_cancelled_while_it_stops_is_not_retried() -> None:
    choice = decided(replace(stopping(1, 1), cancel_requested=True))

    assert isinstance(choice, Finish)
    assert choice.outcome is JobPhase.CANCELLED


@pytest.mark.parametrize("kind", [HARDWARE, REQUESTED])
def test_only_failures_of_the_application_back_off(kind) -> None:
    choice = decided(stopping(-15, -15, kind=kind, record={"app_retries": 2}))

    assert isinstance(choice, Retry)
    assert choice.start_after is None


# progress


@pytest.mark.parametrize(
    ("kind", "step", "count"),
    [
        (APPLICATION, None, 2),  # nothing is known about progress
        (APPLICATION, 99, 3),
        (APPLICATION, 100, 3),
        (APPLICATION, 101, 1),
        (HARDWARE, None, 2),
        (HARDWARE, 100, 2),
        (HARDWARE, 101, 0),
        (REQUESTED, 100, 2),
        (REQUESTED, 101, 0),
    ],
)
def test_failures_without_progress_are_counted(kind, step, count) -> None:
    job = a_job(record={"best_step": 100, "same_step_failures": 2})

    assert failures_at_step(job, a_failure(kind, step=step)) == count


def test_the_first_failure_counts_as_one() -> None:
    assert failures_at_step(a_job(), a_failure(APPLICATION, step=0)) == 1


def test_a_job_that_makes_no_progress_is_stopped_whatever_its_budget() -> None:
    job = stopping(
        1,
        1,
        kind=APPLICATION,
        step=100,
        record={"best_step": 100, "same_step_failures": 2},
    )

    choice = decided(job)

    assert isinstance(choice, Finish)
    assert choice.outcome is JobPhase.FAILED
    assert choice.reason.startswith(
        "no progress: 3 failures in a row at step 100; last failure: Cause"
    )


@pytest.mark.parametrize(
    ("kind", "needs_progress", "is_over"),
    [
        (FailureKind.HARDWARE, True, True),
        (FailureKind.HARDWARE, False, False),
        (FailureKind.REQUESTED, True, False),
    ],
)
def test_failures_of_nodes_stop_a_job_without_progress_only_where_it_says_so(
    kind, needs_progress, is_over
) -> None:
    job = stopping(
        1,
        1,
        kind=kind,
        step=100,
        spec={"needs_progress": needs_progress},
        record={"best_step": 100, "same_step_failures": 2},
    )

    assert isinstance(decided(job), Finish) is is_over


@pytest.mark.parametrize("phase", [JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.CANCELLED])
def test_nothing_happens_to_a_job_that_has_ended(phase) -> None:
    assert decided(a_job(phase)) == Wait(until=None)


def test_a_waiting_job_can_be_cancelled() -> None:
    choice = decided(a_job(JobPhase.WAITING, cancel_requested=True))

    assert choice == Finish(job="job-1", outcome=JobPhase.CANCELLED, reason="cancelled by request")
