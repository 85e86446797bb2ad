"""What is sent of flight recorders to the coordinator: enough for the verdict."""

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from holdfast.apps.launch.rank_inspection import bounded_traces
from holdfast.decisions.flight_recorder import (
    Collective,
    RankTrace,
    recorded_verdict,
    summaries,
)
from holdfast.decisions.hang_verdict import VerdictKind
from holdfast.decisions.rank_snapshots import Frame
from holdfast.kit.serial import from_plain, to_plain

CALLER = (
    Frame(function="all_reduce", file="/x/torch/distributed/distributed_c10d.py", line=1),
    Frame(function="main", file="/home/ada/train.py", line=7),
    Frame(function="<module>", file="/home/ada/train.py", line=70),
)


def collective(number: int, group: str, *, is_over: bool) -> Collective:
    return Collective(
        group=group,
        sequence=number,
        operation="nccl:all_reduce",
        sizes=((4096, 4096),),
        dtypes=("Float",),
        is_over=is_over,
        frames=CALLER,
    )


@st.composite
def hung_jobs(draw: st.DrawFn) -> list[RankTrace]:
    """Ranks that wait in a collective of one group which one of them leaves out, or mismatches."""
    ranks, waits_in = draw(st.integers(2, 8)), draw(st.integers(2, 30))
    group = draw(st.sampled_from(["default_pg", "tp 1"]))
    bad = draw(st.integers(0, ranks - 1))
    mismatch = draw(st.sampled_from([None, "nccl:broadcast"]))
    begin = draw(st.integers(1, waits_in - 1))  # the ring of the recorder begins there
    members = {one: frozenset(range(ranks)) for one in ("default_pg", "tp 1")}
    traces = []
    for rank in range(ranks):
        ahead = draw(st.integers(0, 12))
        own = [collective(one, group, is_over=True) for one in range(begin, waits_in)]
        if rank != bad or mismatch:
            last = range(waits_in, waits_in + 1 + ahead)
            own += [collective(one, group, is_over=False) for one in last]
        if rank == bad and mismatch:
            own = [
                replace(one, operation=mismatch) if one.sequence == waits_in else one for one in own
            ]
        own += [collective(one, "dp 2", is_over=True) for one in range(1, 12)]
        traces.append(RankTrace(rank=rank, collectives=tuple(own), members=members))
    return traces


@given(hung_jobs(), st.integers(1, 8), st.integers(1, 8), st.integers(1, 8))
def test_the_parts_of_all_nodes_have_the_verdict_of_the_whole(
    traces: list[RankTrace], over: int, waiting: int, per_node: int
) -> None:
    nodes = [traces[at : at + per_node] for at in range(0, len(traces), per_node)]
    parts = [summaries(one, over=over, waiting=waiting) for one in nodes]
    sent = [from_plain(tuple[RankTrace, ...], json.loads(json.dumps(to_plain(x)))) for x in parts]

    whole = recorded_verdict(traces)

    assert whole is not None
    assert recorded_verdict([one for node in sent for one in node]) == whole
    assert all(len(one.collectives) <= 2 * (over + waiting) for node in sent for one in node)


@given(st.integers(1, 64), st.integers(1, 4), st.integers(1, 50))
def test_the_traces_of_a_node_fit_into_one_message(ranks: int, groups: int, size: int) -> None:
    own = tuple(
        collective(one, f"group {group}", is_over=one < 8)
        for group in range(groups)
        for one in range(16)
    )
    members = {f"group {group}": frozenset(range(20 * size)) for group in range(groups)}
    traces = tuple(RankTrace(rank=one, collectives=own, members=members) for one in range(ranks))

    found = bounded_traces(traces)

    assert len(json.dumps(to_plain(found))) <= 14_000
    assert found


def test_a_rank_whose_recorder_lacks_the_group_is_not_blamed() -> None:
    """It has taken part in those that are over, so its recorder was off then."""
    waits = tuple(collective(one, "default_pg", is_over=one < 5) for one in range(1, 6))
    traces = [
        RankTrace(rank=rank, collectives=own, members={})
        for rank, own in enumerate([waits, waits, ()])
    ]

    assert recorded_verdict(traces) is None


def test_a_rank_that_has_only_enqueued_less_is_not_blamed() -> None:
    traces = [
        RankTrace(
            rank=rank,
            collectives=tuple(
                collective(one, "default_pg", is_over=one < 5) for one in range(1, 10 + rank)
            ),
            members={},
        )
        for rank in range(3)
    ]

    found = recorded_verdict(traces)

    assert found is not None
    assert (found.kind, found.ranks) == (VerdictKind.SAME, ())
    assert found.text.startswith("all 3 ranks with a dump entered all_reduce 5 of default_pg, call")
