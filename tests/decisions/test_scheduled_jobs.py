"""Jobs whose nodes the platform's scheduler chooses."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.job_lifecycle import after_job
from holdfast.decisions.job_resume import KILL_BACKOFF, ResumePolicy, decide_job
from holdfast.decisions.policy import JobPolicy, RecoveryMode, RemediationPolicy
from holdfast.model.actions import (
    ConfirmStart,
    ExchangeNode,
    Finish,
    KillAttempt,
    Retry,
    StartAttempt,
    StopAttempt,
    Wait,
)
from holdfast.model.health import Remedy
from holdfast.model.job_views import RankView
from holdfast.model.jobs import Ending, Failure, FailureKind, JobPhase, Placing
from holdfast.model.names import Reason
from holdfast.model.nodes import Phase
from holdfast.model.requests import Verb
from tests.ports.builders import (
    NOW,
    a_fault,
    a_job,
    a_node,
    a_remediation,
    a_request,
    by_name,
    healthy_nodes,
)

POLICY = ResumePolicy(job=JobPolicy(), nodes=RemediationPolicy())
TICK = timedelta(microseconds=1)
TWO = by_name(*healthy_nodes(2))
ROOM = {"node-1": 1, "node-2": 1}
STARTED = StartAttempt(job="job-1", placement=())


def scheduled(phase=JobPhase.RUNNING, **changes):
    return a_job(phase, **{"spec": {"placing": Placing.SCHEDULER}, **changes})


def waiting(**changes):
    return scheduled(
        JobPhase.WAITING, **{"capacity": ROOM, "record": {"phase_since": NOW}, **changes}
    )


def decided(job, nodes=TWO, *, now=NOW, policy=POLICY):
    return decide_job(job, nodes, policy, now)


# waiting


def test_it_starts_without_a_placement_when_there_is_room() -> None:
    assert decided(waiting()) == STARTED


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.SCHEDULABLE])
def test_it_stays_down_while_the_room_it_needs_is_under_repair(phase) -> None:
    nodes = by_name(a_node(), a_node(phase, name="node-2"))

    assert decided(waiting(), nodes) == Wait(
        until=NOW + POLICY.job.wait_for_nodes,
        why="waiting for nodes: capacity for 1 of 2 ranks until nodes are back in service",
    )


@pytest.mark.parametrize("changes", [{"faults": (a_fault(),)}, {"request": a_request(Verb.REBOOT)}])
def test_a_node_that_is_about_to_leave_has_no_room(changes) -> None:
    nodes = by_name(a_node(), a_node(**{"name": "node-2", **changes}))

    assert isinstance(decided(waiting(), nodes), Wait)


def test_it_starts_when_no_repair_can_make_enough_room() -> None:
    nodes = by_name(a_node(), a_node(Phase.REPLACING, name="node-2"))

    assert decided(waiting(capacity={"node-1": 1}), nodes) == STARTED
    assert decided(waiting(capacity={}), {}) == STARTED


@pytest.mark.parametrize(
    ("policy", "changes"),
    [
        (RemediationPolicy(node_recovery=RecoveryMode.NONE), {}),
        (RemediationPolicy(), {"pause_reason": "somebody looks at it"}),
    ],
)
def test_it_does_not_wait_for_a_repair_that_does_not_begin(policy, changes) -> None:
    nodes = by_name(a_node(), a_node(Phase.QUARANTINED, name="node-2", **changes))
    without = ResumePolicy(job=JobPolicy(), nodes=policy)

    assert decided(waiting(), nodes, policy=without) == STARTED


def test_it_waits_for_a_repair_that_a_person_has_asked_for() -> None:
    none = RemediationPolicy(node_recovery=RecoveryMode.NONE)
    node = a_node(Phase.QUARANTINED, name="node-2", request=a_request(Verb.REBOOT))

    policy = ResumePolicy(job=JobPolicy(), nodes=none)
    assert isinstance(decided(waiting(), by_name(a_node(), node), policy=policy), Wait)


def test_it_is_never_down_for_longer_than_it_may_wait() -> None:
    nodes = by_name(a_node(), a_node(Phase.REPLACING, name="node-2"))
    deadline = NOW + POLICY.job.wait_for_nodes

    assert isinstance(decided(waiting(), nodes, now=deadline - TICK), Wait)
    assert decided(waiting(), nodes, now=deadline) == STARTED


def test_a_node_that_nobody_looks_after_has_room() -> None:
    assert decided(waiting(), by_name(a_node())) == STARTED


def test_room_that_nobody_looks_after_is_added_to_what_a_repair_makes() -> None:
    nodes = by_name(a_node(Phase.REPLACING))

    assert isinstance(decided(waiting(), nodes), Wait)


def test_no_attempt_starts_beside_ranks_of_the_one_before() -> None:
    ranks = (RankView(rank=0, node="node-1"),)

    assert isinstance(decided(waiting(ranks=ranks)), Wait)
    assert isinstance(decided(waiting(is_stop_seen=False)), Wait)


# starting and running


def test_a_start_is_confirmed_when_all_ranks_run() -> None:
    job = scheduled(JobPhase.STARTING, ranks=scheduled().ranks)

    assert decided(job) == ConfirmStart(job="job-1")
    record = after_job(job, ConfirmStart(job="job-1"), NOW)
    assert (record.phase, record.placement) == (JobPhase.RUNNING, ("node-1", "node-2"))
    assert record.started_at == job.record.started_at


@pytest.mark.parametrize("phase", [JobPhase.STARTING, JobPhase.RUNNING])
def test_ranks_may_wait_for_the_scheduler_as_long_as_it_takes(phase) -> None:
    job = scheduled(phase, ranks=scheduled().ranks[:1])
    later = NOW + 100 * POLICY.job.launch_timeout
    heard = by_name(a_node(heartbeat_at=later), a_node(name="node-2", heartbeat_at=later))

    assert isinstance(decided(job, heard, now=later), Wait)


@pytest.mark.parametrize("phase", [JobPhase.STARTING, JobPhase.RUNNING])
def test_a_fault_of_a_node_stops_all_ranks(phase) -> None:
    nodes = by_name(a_node(), a_node(name="node-2", faults=(a_fault(Remedy.REPLACE),)))

    choice = decided(scheduled(phase), nodes)

    assert isinstance(choice, StopAttempt)
    assert choice.failure is not None
    assert (choice.failure.kind, choice.failure.node) == (FailureKind.HARDWARE, "node-2")


@pytest.mark.parametrize("phase", [Phase.JOINING, Phase.CHECKING])
def test_a_node_that_is_looked_after_since_just_now_keeps_its_ranks(phase) -> None:
    new = by_name(a_node(), a_node(phase, name="node-2"))
    back = by_name(a_node(), a_node(phase, name="node-2", record={"remediation": a_remediation()}))

    assert isinstance(decided(scheduled(), new), Wait)
    assert isinstance(decided(a_job(), new), StopAttempt)
    assert isinstance(decided(scheduled(), back), StopAttempt)


def test_an_evicted_rank_costs_no_retry_and_restarts_the_job() -> None:
    gone = RankView(rank=0, node="node-1", exit_code=1, is_evicted=True, reason="Preempted")
    job = scheduled(ranks=(gone, RankView(rank=1, node="node-2")))

    choice = decided(job)

    assert isinstance(choice, StopAttempt)
    failure = choice.failure
    assert failure is not None
    assert (failure.kind, failure.reason) == (FailureKind.REQUESTED, Reason.RANK_EVICTED)
    assert failure.evidence == "node rank 0 was evicted from its node (Preempted)"


def test_a_rank_that_was_lost_with_its_node_costs_a_retry_whatever_became_of_the_others() -> None:
    lost = RankView(rank=1, node="node-2", exit_code=1, is_lost=True, ended_at=NOW)
    other = RankView(rank=0, node="node-1", exit_code=7, ended_at=NOW - timedelta(seconds=1))

    choice = decided(scheduled(ranks=(other, lost)))

    assert isinstance(choice, StopAttempt)
    failure = choice.failure
    assert failure is not None
    assert (failure.kind, failure.reason) == (FailureKind.HARDWARE, Reason.NODE_LOST)
    assert (failure.node, failure.evidence) == ("node-2", "node rank 1 was lost with its node")


def test_the_fault_behind_an_eviction_pays_for_it() -> None:
    failure = Failure(kind=FailureKind.REQUESTED, reason=Reason.RANK_EVICTED, at=NOW, node="node-1")
    job = scheduled(JobPhase.STOPPING, ranks=(), record={"failure": failure})
    nodes = by_name(a_node(faults=(a_fault(),)), a_node(name="node-2"))

    for found, kind in ((TWO, FailureKind.REQUESTED), (nodes, FailureKind.HARDWARE)):
        choice = decided(job, found, now=NOW + POLICY.job.settle)
        assert isinstance(choice, Retry)
        assert choice.failure.kind is kind


@pytest.mark.parametrize("phase", [phase for phase in JobPhase if not phase.is_final])
def test_what_the_platform_calls_the_end_is_the_end(phase) -> None:
    job = scheduled(phase, ending=Ending(outcome=JobPhase.FAILED, reason="it says so"))

    assert decided(job) == Finish(job="job-1", outcome=JobPhase.FAILED, reason="it says so")


@pytest.mark.parametrize("outcome", [JobPhase.FAILED, JobPhase.SUCCEEDED])
def test_a_job_that_fails_while_it_is_stopped_has_failed_by_what_it_was_stopped_for(
    outcome,
) -> None:
    failure = Failure(kind=FailureKind.HARDWARE, reason=Reason.NODE_LOST, at=NOW, node="node-1")
    ending = Ending(outcome=outcome, reason="it says so")
    choices = [
        decided(scheduled(phase, record={"failure": failure}, ending=ending))
        for phase in (JobPhase.STOPPING, JobPhase.RUNNING)
    ]

    is_by_that = outcome is JobPhase.FAILED
    assert [choice.failure for choice in choices] == [failure if is_by_that else None, None]


def test_a_job_that_is_over_is_left_alone() -> None:
    ending = Ending(outcome=JobPhase.FAILED, reason="it says so")

    assert decided(scheduled(JobPhase.SUCCEEDED, ending=ending)) == Wait(until=None)


# stopping

GRACE = timedelta(seconds=30)


def stopping(*ranks, kills=0, **changes):
    failure = Failure(kind=FailureKind.HARDWARE, reason="Cause", at=NOW, node="node-1")
    record = {"failure": failure, "phase_since": NOW, "kills": kills}
    return scheduled(JobPhase.STOPPING, ranks=ranks, record=record, **changes)


def test_a_rank_on_a_node_where_nothing_runs_is_removed_at_once_and_every_second() -> None:
    fenced = RankView(rank=0, node="node-1", is_fenced=True)
    alive = RankView(rank=1, node="node-2")

    assert decided(stopping(fenced, alive)) == KillAttempt(job="job-1")
    again = stopping(fenced, alive, kills=9)
    assert isinstance(decided(again, now=NOW + KILL_BACKOFF.first - TICK), Wait)
    assert decided(again, now=NOW + KILL_BACKOFF.first) == KillAttempt(job="job-1")


def test_nothing_is_retried_before_the_stop_was_seen() -> None:
    later = NOW + POLICY.job.settle

    assert isinstance(decided(stopping(is_stop_seen=False), now=later), Wait)
    assert isinstance(decided(stopping(), now=later), Retry)
    lingers = decided(stopping(is_stop_seen=False, kills=1), now=NOW)
    assert isinstance(lingers, Wait)
    assert lingers.why == (
        "all ranks have ended, but the platform has not confirmed that the job is stopped"
    )


@pytest.mark.parametrize(
    ("own", "kind", "grace"),
    [
        (None, FailureKind.HARDWARE, POLICY.job.fault_grace),
        (None, FailureKind.APPLICATION, GRACE),
        (None, FailureKind.REQUESTED, GRACE),
        (timedelta(seconds=20), FailureKind.HARDWARE, timedelta(seconds=20)),
        (timedelta(seconds=20), FailureKind.APPLICATION, GRACE),
        (timedelta(minutes=5), FailureKind.HARDWARE, GRACE),
    ],
)
def test_a_fault_of_hardware_alone_shortens_the_grace_period(own, kind, grace) -> None:
    job = stopping(RankView(rank=0, node="node-1"))
    failure = replace(job.record.failure, kind=kind)
    spec = replace(job.spec, grace=GRACE, fault_grace=own)
    job = replace(job, spec=spec, record=replace(job.record, failure=failure))

    assert decided(job, now=NOW + grace - TICK) == Wait(until=NOW + grace)
    assert decided(job, now=NOW + grace) == KillAttempt(job="job-1")


# exchange of one node


def kept(**record):
    spec = {"placing": Placing.SCHEDULER, "keeps_ranks": True, "max_retries": 2}
    return a_job(spec=spec, record={"placement": ("node-1", "node-2"), **record})


def draining():
    return by_name(a_node(), a_node(Phase.DRAINING, name="node-2"))


def test_a_failed_node_is_exchanged_and_the_other_ranks_stay() -> None:
    job = kept()
    action = decided(job, draining())

    assert isinstance(action, ExchangeNode)
    assert action.failure.node == "node-2"
    record = after_job(job, action, NOW)
    assert (record.phase, record.attempt) == (JobPhase.STARTING, job.record.attempt + 1)
    assert record.placement == ("node-1",)
    assert [(one.node, one.at) for one in record.exchanged] == [("node-2", NOW)]
    assert record.hardware_retries == 1
    restarted = after_job(replace(job, record=record), STARTED, NOW)
    assert restarted.exchanged == ()


@pytest.mark.parametrize(
    "job",
    [scheduled(record={"placement": ("node-1", "node-2")}), kept(hardware_retries=2)],
    ids=["without launchers", "retries exhausted"],
)
def test_else_the_whole_job_stops(job) -> None:
    assert isinstance(decided(job, draining()), StopAttempt)


def test_a_rank_that_fails_on_a_good_node_stops_the_whole_job() -> None:
    failed = RankView(rank=0, node="node-1", exit_code=1)

    assert isinstance(decided(replace(kept(), ranks=(failed,))), StopAttempt)


@given(
    retries=st.integers(0, 3),
    most=st.integers(0, 3),
    keeps=st.booleans(),
    phases=st.lists(st.sampled_from(Phase), min_size=2, max_size=2),
    steps=st.integers(1, 10),
)
def test_exchanges_keep_the_budget_of_retries(retries, most, keeps, phases, steps) -> None:
    job = kept(hardware_retries=retries)
    job = replace(job, spec=replace(job.spec, max_retries=most, keeps_ranks=keeps))
    nodes = by_name(*(a_node(one, name=f"node-{i}") for i, one in enumerate(phases, 1)))
    for _ in range(steps):
        action = decided(job, nodes)
        if not isinstance(action, ExchangeNode):
            break
        assert keeps
        assert action.failure.node in nodes
        assert nodes[action.failure.node].record.phase is not Phase.SCHEDULABLE
        job = replace(job, record=after_job(job, action, NOW))
        if action.failure.kind is FailureKind.HARDWARE:
            assert job.record.hardware_retries <= most


@given(
    capacity=st.dictionaries(st.sampled_from(["node-1", "node-2", "node-3"]), st.integers(0, 4)),
    phases=st.lists(st.sampled_from(Phase), min_size=3, max_size=3),
    blocked_nodes=st.frozensets(st.sampled_from(["node-1", "node-2", "node-3"])),
    waited=st.timedeltas(timedelta(0), timedelta(hours=4)),
)
def test_a_job_waits_only_for_room_that_comes_back(capacity, phases, blocked_nodes, waited) -> None:
    nodes = by_name(*(a_node(phase, name=f"node-{n}") for n, phase in enumerate(phases, 1)))
    job = waiting(
        capacity=capacity, blocked_nodes=blocked_nodes, record={"phase_since": NOW - waited}
    )
    at_hand = sum(
        ranks
        for name, ranks in capacity.items()
        if nodes[name].record.phase is Phase.SCHEDULABLE and name not in blocked_nodes
    )
    is_worth_it = at_hand < 2 <= sum(capacity.values()) and waited < POLICY.job.wait_for_nodes

    assert isinstance(decided(job, nodes), Wait) == is_worth_it
