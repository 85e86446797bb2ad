"""Samples of several launchers, in any order, and the rank that they show to be slow."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.launch_events import Examined, Sampled
from holdfast.decisions.launch_orders import Order, OrderKind
from holdfast.decisions.launch_state import JobRounds, Phase
from holdfast.decisions.launch_stragglers import (
    NamedStraggler,
    RoundSamples,
    after_samples,
    newly_named,
)
from holdfast.decisions.notice_lines import (
    PRINTED,
    STRAGGLER,
    LoggedNotices,
    after_lines,
    notice_line,
)
from holdfast.decisions.rank_snapshots import Activity, RankSamples

NODES = ("node-a", "node-b")
TAKEN = 160


def samples(node: int, slow: int | None = None) -> tuple[RankSamples, ...]:
    """Two ranks of a node; a slow rank waits 5 % of the time, the others 50 %."""
    return tuple(
        RankSamples(
            rank=rank,
            node=NODES[node],
            all={Activity.COLLECTIVE: 8 if rank == slow else 80,
                 Activity.OTHER: 152 if rank == slow else 80},
            running={Activity.OTHER: 80},
            taken=TAKEN,
        )
        for rank in (2 * node, 2 * node + 1)
    )  # fmt: skip


def event(node: int, window: int, slow: int | None = None, number: int = 1) -> Sampled:
    return Sampled(launcher=NODES[node], round=number, window=window, ranks=samples(node, slow))


def after(*events: Sampled, factor: float = 1.15) -> RoundSamples:
    known = RoundSamples()
    for one in events:
        known = after_samples(known, one, NODES, factor)
    return known


def windows(count: int, slow: int | None) -> list[Sampled]:
    return [event(node, number, slow) for number in range(count) for node in (0, 1)]


def test_the_slow_rank_of_any_node_is_named_after_four_windows_of_all_nodes() -> None:
    for slow in range(4):
        assert after(*windows(3, slow)).found is None
        found = after(*windows(4, slow)).found
        assert found is not None
        assert (found.rank, found.node) == (slow, NODES[slow // 2])
    assert after(*windows(20, None)).found is None


def test_ranks_of_one_node_alone_are_no_window() -> None:
    only_one = [event(0, number, 1) for number in range(20)]

    assert after(*only_one).windows == ()
    assert len(after(*only_one).open) == 3


@given(st.permutations(windows(3, 1)))
def test_the_order_within_the_latest_windows_does_not_matter(events) -> None:
    known = after(*events)

    assert len(known.windows) <= 3
    assert len(known.open) <= 3
    assert known.found is None


@given(st.lists(st.builds(event, st.integers(0, 1), st.integers(0, 9), st.sampled_from([None, 1]))))
def test_what_is_kept_is_bounded_and_a_window_counts_once(events) -> None:
    known = after(*events)
    complete = {
        one.window for one in events if {two.launcher for two in events if two.window == one.window}
        == set(NODES)
    }  # fmt: skip

    assert len(known.open) <= 3
    assert len(known.windows) <= len(events) // 2
    assert bool(known.windows) <= bool(complete)


def test_the_next_round_begins_anew_and_a_report_keeps_its_figures() -> None:
    known = after(*windows(4, 1))
    later = after(*windows(9, 1))

    assert later.found == known.found
    assert after_samples(known, event(0, 0, number=2), NODES, 1.15).found is None


def test_a_larger_factor_names_only_larger_excesses() -> None:
    assert after(*windows(8, 1), factor=3.0).found is None


T0 = datetime(2026, 11, 1, tzinfo=UTC)
ORDER = Order(kind=OrderKind.RUN, round=1)
RUNNING = JobRounds(since=T0, phase=Phase.RUN, round=1)


def named() -> NamedStraggler:
    known = after(*windows(4, 3))
    found = newly_named(RoundSamples(), known, T0)
    assert found is not None
    assert newly_named(known, after(*windows(5, 3)), T0) is None
    return found


def test_the_launcher_of_a_straggler_examines_it_once_before_it_is_reported() -> None:
    slow = named()
    assert not slow.is_complete(RUNNING, T0)
    assert slow.order("node-b", ORDER).slow_rank == 3
    for other in (("node-a", ORDER), ("node-b", replace(ORDER, round=2)),
                  ("node-b", replace(ORDER, kind=OrderKind.STOP))):  # fmt: skip
        assert slow.order(*other) == other[1]

    examined = slow.after(Examined(launcher="node-b", round=1, rank=3, text="its\nGPU is\x1b hot"))

    assert examined.is_complete(RUNNING, T0)
    assert examined.order("node-b", ORDER) == ORDER
    assert examined.event.text == f"{slow.event.text}; its GPU is hot"
    assert (examined.event.launcher, examined.event.rank) == ("node-b", 3)


def test_a_straggler_is_reported_without_its_launcher_in_time_or_once_its_round_ends() -> None:
    slow = named()
    wrong = [("node-a", 1, 3), ("node-b", 2, 3), ("node-b", 1, 2)]
    for launcher, number, rank in wrong:
        event = Examined(launcher=launcher, round=number, rank=rank, text="hot")
        assert slow.after(event) == slow
    assert not slow.is_complete(RUNNING, slow.until - timedelta(microseconds=1))
    assert slow.is_complete(RUNNING, slow.until)
    assert slow.is_complete(replace(RUNNING, round=2), T0)
    assert slow.is_complete(replace(RUNNING, phase=Phase.STOP), T0)


@given(st.text())
def test_no_text_of_a_launcher_makes_a_report_longer_than_a_notice(text: str) -> None:
    slow = named().after(Examined(launcher="node-b", round=1, rank=3, text=text))
    line = f"{PRINTED}{notice_line(STRAGGLER, 1, slow.event.text)}"

    assert line.isprintable()
    assert after_lines(LoggedNotices(), [line]).straggler == f"round 1: {slow.event.text}"
