"""Which rank is blamed if stacks and flight recorders contradict each other."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.evidence_precedence import verdict_of
from holdfast.decisions.flight_recorder import (
    Collective,
    RankFindings,
    RankTrace,
    recorded_verdict,
)
from holdfast.decisions.hang_verdict import Verdict, VerdictKind, verdict
from holdfast.decisions.rank_snapshots import Frame, RankSnapshot

WAITS = (Frame(function="all_reduce", file="/x/torch/distributed/distributed_c10d.py", line=1),)
ITEM = (Frame(function="train", file="/home/ada/train.py", line=7),)
READS = (Frame(function="read", file="/home/ada/data.py", line=3),)


def snapshot(rank: int, frames: tuple[Frame, ...], state: str = "S") -> RankSnapshot:
    return RankSnapshot(rank=rank, node="n", pid=10, state=state, frames=frames)


def trace(
    rank: int, last: int, over: int, group: str = "default_pg", members: range = range(4)
) -> RankTrace:
    """A rank that has entered collectives 1 to ``last``, of which those up to ``over`` are over."""
    return RankTrace(
        rank=rank,
        collectives=tuple(
            Collective(group=group, sequence=at, operation="nccl:all_reduce", is_over=at <= over)
            for at in range(1, last + 1)
        ),
        members={group: frozenset(members)},
    )


BEHIND = tuple(trace(rank, 2 if rank == 3 else 3, 2) for rank in range(4))
"""Rank 3 never entered all_reduce 3; the others wait in it."""


def test_a_rank_whose_recorder_shows_that_it_waits_is_not_blamed_for_its_stack():
    """Ranks 0 and 1 wait for the result in ``item()``; rank 3 is in its next, synchronous one."""
    stacks = (ITEM, ITEM, WAITS, WAITS)
    snapshots = tuple(snapshot(rank, frames) for rank, frames in enumerate(stacks))
    assert verdict(snapshots).ranks == (0, 1)

    found = verdict_of(RankFindings(snapshots=snapshots, traces=BEHIND))

    assert (found.kind, found.ranks) == (VerdictKind.ABSENT, (3,))
    assert found.text.startswith(
        "rank 3 never entered all_reduce 3 of default_pg, by the flight recorder, which also shows "
        "that ranks 0, 1 entered a collective that is not over; stacks: ranks 0, 1 on n never"
    )


def test_a_stage_that_waits_for_the_rank_that_reads_is_not_blamed_for_the_next_collective():
    """Rank 0 reads data and waits in no collective; rank 3 has not entered its next one."""
    idle = (trace(0, 2, 2), *BEHIND[1:])
    snapshots = (snapshot(0, READS), *(snapshot(rank, WAITS) for rank in (1, 2, 3)))
    recorded = recorded_verdict(idle)
    assert recorded is not None
    assert recorded.ranks == (0, 3)
    last = range(1, 4)
    stages = (
        trace(0, 3, 3, "stage 0", range(1)),
        *(trace(rank, 2 if rank == 3 else 3, 2, "stage 1", last) for rank in last),
    )
    recorded = recorded_verdict(stages)
    assert recorded is not None
    assert recorded.ranks == (3,)

    for traces in (idle, stages):
        found = verdict_of(RankFindings(snapshots=snapshots, traces=traces))
        assert (found.kind, found.ranks) == (VerdictKind.ABSENT, (0,))
        assert "; flight recorder: rank" in found.text


def test_a_rank_that_is_stopped_is_blamed_whatever_the_recorders_show():
    snapshots = (snapshot(0, WAITS, "T"), *(snapshot(rank, WAITS) for rank in (1, 2, 3)))

    found = verdict_of(RankFindings(snapshots=snapshots, traces=BEHIND))

    assert (found.kind, found.ranks) == (VerdictKind.STOPPED, (0,))


STACKS = st.sampled_from([WAITS, ITEM, READS, ()])
COUNTS = st.integers(0, 3)
RANKS = st.lists(st.tuples(STACKS, st.sampled_from("SRT"), COUNTS, COUNTS), min_size=2, max_size=6)


@given(
    jobs=RANKS,
    ras=st.sampled_from([None, Verdict(kind=VerdictKind.ABSENT, ranks=(1,), text="rank 1")]),
)
def test_a_rank_is_blamed_only_if_a_source_names_it_and_no_source_alone_is_lost(jobs, ras):
    snapshots = tuple(snapshot(rank, one[0], one[1]) for rank, one in enumerate(jobs))
    traces = tuple(
        trace(rank, max(last, over), min(last, over))
        for rank, (_, _, last, over) in enumerate(jobs)
    )
    seen, recorded = verdict(snapshots), recorded_verdict(traces)
    found = verdict_of(RankFindings(snapshots=snapshots, traces=traces, ras=ras))
    sources = [one for one in (seen, recorded, ras) if one is not None]

    named = {rank for one in sources for rank in one.ranks}
    assert set(found.ranks) <= named
    assert bool(found.ranks) == bool(named)
    assert all(one.text in found.text for one in sources)
    if seen.kind is VerdictKind.STOPPED:
        assert found.ranks == seen.ranks
    assert verdict_of(RankFindings(snapshots=snapshots)) == seen
