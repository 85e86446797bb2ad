"""Which rank failed first, and whether it failed alone."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.job_resume import ResumePolicy, decide_job
from holdfast.decisions.policy import JobPolicy, RemediationPolicy
from holdfast.decisions.rank_failures import after_stop, application_failure, watched_until
from holdfast.model.actions import Finish, Retry, StopAttempt, Wait
from holdfast.model.health import Urgency
from holdfast.model.job_views import JobView, RankView
from holdfast.model.jobs import AttemptRecord, Failure, FailureKind, JobPhase
from holdfast.model.names import Cause, Reason
from tests.ports.builders import NOW, a_fault, a_job, a_node, by_name, healthy_nodes

MARGIN = JobPolicy().failure_margin
TICK = timedelta(microseconds=1)
PEER = "torch.distributed.DistBackendError: Connection closed by peer [127.0.0.1]:4711"
POLICY = ResumePolicy(job=JobPolicy(), nodes=RemediationPolicy())
THREE = by_name(*healthy_nodes(3))


def rank(number: int, after: timedelta | None = None, code: int = 1, reason: str = "", **more):
    """A rank that ended so long after the first failure; None for one that runs."""
    return RankView(
        rank=number,
        node=f"node-{number + 1}",
        exit_code=None if after is None else code,
        ended_at=None if after is None else NOW + after,
        reason=reason,
        **more,
    )


def failed_before(*ranks: RankView) -> JobView:
    """A job of three nodes in its second attempt: the first failed by itself."""
    earlier = Failure(
        kind=FailureKind.APPLICATION, reason=Reason.RANK_EXITED, at=NOW, node="node-2", evidence="x"
    )
    over = AttemptRecord(
        attempt=1,
        placement=("node-1", "node-2", "node-3"),
        started_at=NOW,
        stopped_at=NOW,
        failure=earlier,
    )
    job = a_job(nodes=3, ranks=ranks)
    return replace(job, record=replace(job.record, attempts=(over,)))


def failure(*ranks: RankView, policy: JobPolicy | None = None, now: datetime = NOW + MARGIN):
    job = failed_before(*ranks)
    return application_failure(job, policy or JobPolicy(), now)


def decided(job: JobView, now: datetime, nodes=THREE):
    return decide_job(job, nodes, POLICY, now)


ZERO = timedelta(0)


@pytest.mark.parametrize(
    ("others", "is_alone"),
    [
        ((rank(0), rank(2)), True),
        ((rank(0, ZERO, 0), rank(2)), True),
        ((rank(0, MARGIN), rank(2)), True),
        ((rank(0, MARGIN - TICK), rank(2)), False),
        ((rank(0), rank(2, ZERO)), False),
        ((rank(0, TICK, reason=PEER), rank(2, TICK, reason=PEER)), True),
        ((rank(0, TICK, reason=PEER), rank(2, TICK, reason="KeyError: 'x'")), False),
        ((rank(0, TICK, -15), rank(2)), False),
        ((rank(0),), None),
    ],
    ids=str,
)
def test_a_rank_failed_alone_if_the_others_ran_on_or_ended_because_of_it(others, is_alone) -> None:
    found = failure(rank(1, ZERO), *others)

    assert (found.node, found.is_alone) == ("node-2", is_alone)


def test_without_a_margin_nobody_knows_whether_a_rank_failed_alone() -> None:
    found = failure(rank(0), rank(1, ZERO), rank(2), policy=JobPolicy(failure_margin=ZERO))

    assert found.is_alone is None


def test_a_rank_that_noticed_the_end_of_another_one_is_not_the_first() -> None:
    found = failure(rank(0, -TICK, reason=PEER), rank(1, ZERO, reason="ValueError: no"), rank(2))

    assert found.node == "node-2"
    assert found.evidence == "node rank 1 exited with code 1 (ValueError: no)"
    assert failure(rank(0, ZERO, reason=PEER), rank(1), rank(2)).is_alone is False


RANKS = st.lists(
    st.tuples(
        st.none() | st.timedeltas(ZERO, 2 * MARGIN),
        st.sampled_from([0, 1, -9]),
        st.sampled_from(["", PEER, "KeyError: 'x'"]),
    ),
    min_size=3,
    max_size=3,
)


@given(RANKS)
def test_a_job_whose_ranks_all_fail_by_themselves_at_once_never_failed_alone(given_ranks) -> None:
    ranks = [
        rank(number, (after or ZERO) % MARGIN, 1, "KeyError: 'x'")
        for number, (after, _, _) in enumerate(given_ranks)
    ]

    assert failure(*ranks).is_alone is False


@given(RANKS, st.timedeltas(ZERO, 3 * MARGIN))
def test_an_attempt_of_which_a_rank_failed_is_stopped_within_the_margin(given_ranks, late) -> None:
    ranks = [
        rank(number, after, code, reason)
        for number, (after, code, reason) in enumerate(given_ranks)
    ]
    now = NOW + late
    seen = [one if one.ended_at and one.ended_at <= now else rank(one.rank) for one in ranks]
    job = failed_before(*seen)
    failed = [one.ended_at for one in seen if one.exit_code]
    until = watched_until(job, POLICY.job, now)

    assert until is None or (failed and now < until == min(failed) + MARGIN)
    choice = decided(job, now)
    assert isinstance(choice, StopAttempt) == bool(failed and until is None)


def test_a_job_that_fails_for_the_first_time_is_stopped_at_once() -> None:
    first = a_job(nodes=3, ranks=(rank(0), rank(1, ZERO), rank(2)))

    choice = decided(first, NOW)

    assert isinstance(choice, StopAttempt)
    assert choice.failure.is_alone is None


def test_the_cause_of_a_peers_failure_is_waited_for_also_the_first_time() -> None:
    first = a_job(nodes=3, ranks=(rank(0, ZERO, reason=PEER), rank(1), rank(2)))

    assert decided(first, NOW) == Wait(until=NOW + MARGIN)


def test_where_no_node_is_ever_accused_nothing_is_waited_for() -> None:
    job = failed_before(rank(0), rank(1, ZERO), rank(2))

    assert watched_until(job, JobPolicy(suspect_failures=0), NOW) is None


def test_the_others_run_on_for_the_margin_and_no_longer() -> None:
    job = failed_before(rank(0), rank(1, ZERO), rank(2))

    assert decided(job, NOW) == Wait(until=NOW + MARGIN)
    assert decided(job, NOW + MARGIN - TICK) == Wait(until=NOW + MARGIN)
    assert isinstance(decided(job, NOW + MARGIN), StopAttempt)


@pytest.mark.parametrize(
    "changed",
    [
        {"is_lost": True},
        {"is_evicted": True},
        {"ended_at": None},
        {"ended_at": NOW + timedelta(hours=1)},
    ],
    ids=str,
)
def test_what_needs_no_evidence_or_gives_none_is_not_waited_for(changed) -> None:
    values = {"rank": 1, "node": "node-2", "exit_code": 1, "ended_at": NOW, **changed}
    job = failed_before(rank(0), RankView(**values), rank(2))

    assert isinstance(decided(job, NOW), StopAttempt)


@pytest.mark.parametrize("urgency", list(Urgency))
def test_a_fault_of_a_node_stops_the_attempt_at_once(urgency) -> None:
    job = failed_before(rank(0), rank(1, ZERO), rank(2))
    nodes = by_name(
        a_node(), a_node(name="node-2", faults=(a_fault(urgency=urgency),)), a_node(name="node-3")
    )

    choice = decided(job, NOW, nodes)

    assert isinstance(choice, StopAttempt)
    assert choice.failure.reason == Reason.XID_REBOOT


def test_where_no_rank_runs_any_more_nothing_is_waited_for() -> None:
    job = failed_before(*(rank(number, ZERO) for number in range(3)))

    choice = decided(job, NOW)

    assert isinstance(choice, StopAttempt)
    assert choice.failure.is_alone is False


FULL = "OSError: [Errno 28] No space left on device"


def after_peer(*ranks: RankView, **changes) -> tuple[JobView, Failure]:
    """A job that is being stopped because a rank has lost its peer, and that failure."""
    lost_peer = Failure(
        kind=FailureKind.APPLICATION,
        reason=Reason.RANK_EXITED,
        at=NOW,
        node="node-2",
        evidence="node rank 1 exited with code 1 (Connection closed by peer)",
        cause=Cause.PEER_LOST,
        is_alone=False,
    )
    failure = replace(lost_peer, **changes)
    record = {"failure": failure, "phase_since": NOW}
    job = a_job(JobPhase.STOPPING, nodes=3, ranks=ranks, record=record)
    return job, failure


@pytest.mark.parametrize(
    ("others", "node", "cause", "is_alone"),
    [
        ((rank(0, MARGIN, -15, FULL), rank(2, MARGIN, -15)), "node-1", Cause.DISK_FULL, True),
        ((rank(0, MARGIN, -15, FULL), rank(2, TICK, 1, FULL)), "node-3", Cause.DISK_FULL, False),
        ((rank(0, MARGIN, -9, FULL), rank(2, TICK, 1, PEER)), "node-1", Cause.DISK_FULL, True),
        ((rank(0, MARGIN, -15), rank(2, MARGIN, -9)), "node-2", Cause.PEER_LOST, False),
        ((rank(0, MARGIN, 0), rank(2, TICK, 1, PEER)), "node-2", Cause.PEER_LOST, False),
        ((rank(0, MARGIN, 1, "ValueError: no"), rank(2)), "node-2", Cause.PEER_LOST, False),
        ((rank(0, MARGIN, -15, FULL, is_lost=True), rank(2)), "node-2", Cause.PEER_LOST, False),
    ],
    ids=str,
)
def test_a_rank_that_was_slow_to_end_is_the_cause_once_its_log_shows_it(
    others, node, cause, is_alone
) -> None:
    job, failure = after_peer(rank(1, ZERO, reason=PEER), *others)

    found = after_stop(failure, job)

    assert (found.node, found.cause, found.is_alone) == (node, cause, is_alone)
    assert found.evidence.endswith(failure.evidence)
    assert ("ended later" in found.evidence) == (cause is Cause.DISK_FULL)


@pytest.mark.parametrize(
    "changes",
    [{"cause": Cause.DISK_FULL}, {"cause": ""}, {"reason": Reason.JOB_HUNG}],
    ids=str,
)
def test_only_a_lost_peer_leaves_the_cause_open_until_the_stop(changes) -> None:
    job, failure = after_peer(rank(0, MARGIN, -15, FULL), rank(1, ZERO, reason=PEER), **changes)

    assert after_stop(failure, job) == failure


def test_the_cause_that_the_stop_reveals_decides_about_a_restart() -> None:
    ranks = (rank(0, MARGIN, -15, FULL), rank(1, ZERO, reason=PEER), rank(2, MARGIN, 1, FULL))
    job, _ = after_peer(*ranks)
    alone, _ = after_peer(*ranks[:2], rank(2, MARGIN, -15))

    choice = decided(job, NOW + POLICY.job.settle)
    again = decided(alone, NOW + POLICY.job.settle)

    assert isinstance(choice, Finish)
    assert "(DiskFull)" in choice.reason
    assert isinstance(again, Retry)
    assert (again.failure.cause, again.failure.is_alone) == (Cause.DISK_FULL, True)
