"""A coordinator that takes over from one of which no launcher knows."""

from dataclasses import replace
from datetime import timedelta

from decisions.test_launch_rounds import T0, TWO, after, failed, joined, stopped
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.launch_events import Event, Lost
from holdfast.decisions.launch_orders import OrderKind, order_for
from holdfast.decisions.launch_rounds import advance, next_deadline
from holdfast.decisions.launch_state import JobRounds, Phase

IN_PODS = replace(TWO, may_succeed_another=True)
END = TWO.lease + TWO.fence
TICK = timedelta(microseconds=1)


def test_the_first_round_waits_until_the_leases_of_unknown_launchers_have_ended() -> None:
    both = [joined("a"), joined("b")]
    job = after(both, IN_PODS)
    assert (job.phase, next_deadline(job, IN_PODS)) == (Phase.GATHER, T0 + END)
    assert after([None], IN_PODS, job, T0 + END - TICK).phase is Phase.GATHER
    assert after([None], IN_PODS, job, T0 + END).round == 1

    assert after(both, IN_PODS, now=T0 + END).round == 1
    assert after(both).round == 1


def test_a_launcher_confirms_a_stop_by_the_highest_round_that_is_known() -> None:
    """It was never ordered to start the round that ended as it began."""
    late = replace(joined("c"), round=9)
    job = after([joined("a"), joined("b"), late, failed("a"), stopped("a")])
    order = order_for(job, "b")
    assert (job.phase, order.kind, order.round) == (Phase.STOP, OrderKind.STOP, 9)

    job = after([stopped("b", order.round)], job=job)
    assert (job.phase, job.round) == (Phase.RUN, 10)


@given(
    st.lists(
        st.tuples(st.sampled_from([None, *"abc"]), st.booleans(), st.integers(0, 4)), max_size=12
    )
)
def test_no_rank_starts_while_one_of_an_unknown_launcher_may_run(
    steps: list[tuple[str | None, bool, int]],
) -> None:
    job, now = JobRounds(since=T0), T0
    for name, is_lost, seconds in steps:
        now += timedelta(seconds=seconds) - (TICK if seconds else timedelta(0))
        event: Event | None = None
        if name is not None:
            event = Lost(launcher=name) if is_lost else joined(name)
        job = advance(job, event, now, IN_PODS)
        assert not job.round or now >= T0 + END
