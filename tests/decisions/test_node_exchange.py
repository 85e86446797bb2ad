"""Exchange of failed nodes of a job that Holdfast places: the launchers on the others stay."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.job_lifecycle import after_job
from holdfast.decisions.job_resume import KILL_BACKOFF, ResumePolicy, decide_job
from holdfast.decisions.policy import JobPolicy, RemediationPolicy
from holdfast.model.actions import ExchangeNode, KillAttempt, Relaunch, StopAttempt, Wait
from holdfast.model.job_views import RankView
from holdfast.model.jobs import FailureKind, JobPhase
from holdfast.model.nodes import Phase
from tests.ports.builders import NOW, a_job, a_node, by_name

POLICY = ResumePolicy(job=JobPolicy(), nodes=RemediationPolicy())
TICK = timedelta(microseconds=1)
GRACE = timedelta(seconds=3)


def decided(job, nodes, *, now=NOW):
    return decide_job(job, nodes, POLICY, now)


def a_run(nodes=2, phase=JobPhase.RUNNING, *, codes=(), record=None, **spec):
    """A job of launchers on node-1, node-2 and so on; ``codes`` of those that have ended."""
    names = tuple(f"node-{number}" for number in range(1, nodes + 1))
    job = a_job(
        phase,
        spec={"nodes": nodes, "keeps_ranks": True, "grace": GRACE, "fault_grace": GRACE, **spec},
        record={"placement": names, **(record or {})},
    )
    ends = dict(enumerate(codes))
    ranks = [
        RankView(rank=rank, node=name, exit_code=ends.get(rank)) for rank, name in enumerate(names)
    ]
    return replace(job, ranks=tuple(ranks))


def a_cluster(*phases):
    return by_name(*(a_node(phase, name=f"node-{i}") for i, phase in enumerate(phases, 1)))


GOOD, BAD = Phase.SCHEDULABLE, Phase.DRAINING


def test_a_spare_takes_over_the_rank_of_a_failed_node() -> None:
    job = a_run()
    action = decided(job, a_cluster(GOOD, BAD, GOOD))

    assert isinstance(action, ExchangeNode)
    assert action.placement == ("node-1", "node-3")
    record = after_job(job, action, NOW)
    assert (record.phase, record.attempt) == (JobPhase.STARTING, job.record.attempt + 1)
    assert record.placement == ("node-1", "node-3")
    assert [one.node for one in record.exchanged] == ["node-2"]
    assert record.hardware_retries == 1


@pytest.mark.parametrize(
    ("job", "nodes"),
    [
        (a_run(), (GOOD, BAD)),
        (a_run(), (GOOD, BAD, Phase.CHECKING)),
        (a_run(), (BAD, BAD, GOOD, GOOD)),
        (a_run(3), (GOOD, BAD, BAD, GOOD)),
        (a_run(codes=(1, -9)), (GOOD, BAD, GOOD)),
        (replace(a_run(), ranks=()), (GOOD, BAD, GOOD)),
        (a_run(keeps_ranks=False), (GOOD, BAD, GOOD)),
        (a_run(record={"hardware_retries": 10}), (GOOD, BAD, GOOD)),
        (a_run(1), (BAD, GOOD)),
    ],
    ids=[
        "no spare", "spare not ready", "no node left", "too few spares", "other launcher ended",
        "launchers gone", "no launchers", "retries used up", "one node",
    ],
)  # fmt: skip
def test_else_the_whole_attempt_stops(job, nodes) -> None:
    assert isinstance(decided(job, a_cluster(*nodes)), StopAttempt)


def test_no_rank_moves_to_a_node_that_one_is_still_leaving() -> None:
    job = replace(a_run(), leaving=(RankView(rank=1, node="node-3"),))

    assert isinstance(decided(job, a_cluster(GOOD, BAD, GOOD)), StopAttempt)
    action = decided(job, a_cluster(GOOD, BAD, GOOD, GOOD))
    assert isinstance(action, ExchangeNode)
    assert action.placement == ("node-1", "node-4")


def starting(*leaving, kills=0):
    job = a_run(phase=JobPhase.STARTING, record={"phase_since": NOW, "kills": kills})
    left = tuple(RankView(rank=1, node=name) for name in leaving)
    return replace(job, ranks=job.ranks[:1], leaving=left)


def test_the_new_rank_is_launched_when_the_old_one_has_ended() -> None:
    nodes = a_cluster(GOOD, GOOD, BAD)

    assert decided(starting("node-3"), nodes) == Wait(until=NOW + GRACE)
    assert decided(starting(), nodes) == Relaunch(job="job-1")


def test_a_rank_that_does_not_end_on_an_exchanged_node_is_killed_there_alone() -> None:
    nodes = a_cluster(GOOD, GOOD, BAD)
    job = starting("node-3")

    assert isinstance(decided(job, nodes, now=NOW + GRACE - TICK), Wait)
    action = decided(job, nodes, now=NOW + GRACE)
    assert action == KillAttempt(job="job-1", nodes=("node-3",))
    later = decided(starting("node-3", kills=1), nodes)
    assert isinstance(later, Wait)
    assert later.until == NOW + KILL_BACKOFF.delay(1)
    assert "ranks on node-3 did not terminate" in later.why


def test_an_attempt_that_stops_during_an_exchange_awaits_the_ranks_on_exchanged_nodes() -> None:
    job = replace(
        a_run(phase=JobPhase.STOPPING, codes=(0, 0), record={"phase_since": NOW}),
        leaving=(RankView(rank=1, node="node-3"),),
    )

    assert isinstance(decided(job, a_cluster(GOOD, GOOD, BAD), now=NOW + GRACE), KillAttempt)


@given(
    phases=st.lists(st.sampled_from([GOOD, GOOD, BAD, Phase.CHECKING]), min_size=2, max_size=7),
    size=st.integers(1, 4),
    ended=st.sets(st.integers(0, 3), max_size=1),
    leaving=st.sets(st.integers(1, 7), max_size=2),
    used=st.integers(0, 3),
    most=st.integers(0, 3),
    rounds=st.integers(1, 5),
)
def test_an_exchange_moves_no_rank_of_a_good_node_and_keeps_the_budget(
    phases, size, ended, leaving, used, most, rounds
) -> None:
    nodes = a_cluster(*phases)
    size = min(size, len(phases))
    codes = [1 if rank in ended else None for rank in range(size)]
    record = {"hardware_retries": used}
    job = a_run(size, codes=codes, record=record, max_retries=most)
    left = tuple(RankView(rank=0, node=f"node-{one}") for one in leaving if one > size)
    job = replace(job, leaving=left)
    for _ in range(rounds):
        action = decided(job, nodes)
        if not isinstance(action, ExchangeNode):
            break
        before, after = job.record.placement, action.placement
        assert len(set(after)) == len(before) == len(after)
        changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
        assert [old for old, _ in changed] == [action.failure.node]
        assert nodes[changed[0][0]].record.phase is not Phase.SCHEDULABLE
        assert nodes[changed[0][1]].record.phase is Phase.SCHEDULABLE
        assert changed[0][1] not in {one.node for one in job.leaving}
        stay = [one for one in job.ranks if nodes[one.node].record.phase is GOOD]
        assert stay
        assert all(one.exit_code is None for one in stay)
        record = after_job(job, action, NOW)
        if action.failure.kind is FailureKind.HARDWARE:
            assert record.hardware_retries <= most
        job = replace(job, record=record, ranks=tuple(stay))
