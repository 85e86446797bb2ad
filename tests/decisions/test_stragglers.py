"""Stragglers: a slow rank is named, and noise of healthy ranks names none."""

import math
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.decisions.rank_snapshots import Activity, RankSamples
from holdfast.decisions.stragglers import straggler, window_of
from tests.simulation.straggling_ranks import (
    CALM,
    DISTURBED,
    FACTOR,
    Noise,
    first_found,
    first_found_later,
    sampled,
)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), ranks=st.integers(4, 16), data=st.data())
def test_a_rank_that_takes_1_3_times_as_long_is_named(seed, ranks, data) -> None:
    slow = data.draw(st.integers(0, ranks - 1))
    named = first_found(seed, {rank: 1.3 if rank == slow else 1.0 for rank in range(ranks)}, 15)

    assert named is not None
    assert (named[1].rank, named[1].node) == (slow, f"node-{slow}")
    assert 1.15 <= named[1].factor <= 1.6
    assert named[0] >= 4
    assert named[1].wait < named[1].others_wait


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), ranks=st.integers(2, 16))
def test_no_rank_of_a_healthy_job_is_named_within_an_hour(seed, ranks) -> None:
    assert first_found(seed, dict.fromkeys(range(ranks), 1.0), 90) is None


@pytest.mark.parametrize(("noise", "alarms"), [(CALM, 0), (DISTURBED, 1)])
def test_three_days_of_noise_name_at_most_one_rank_and_none_if_it_is_calm(
    noise: Noise, alarms: int
) -> None:
    """Twelve hours each of jobs of 2 to 8 ranks, with fixed seeds."""
    jobs = [(ranks, seed) for ranks in (2, 4, 8) for seed in (1, 2)]
    windows = 12 * 3600 // 43
    found = [
        one
        for ranks, seed in jobs
        if (one := first_found(seed, dict.fromkeys(range(ranks), 1.0), windows, noise))
    ]

    assert len(found) <= alarms, found


def test_a_rank_that_becomes_slow_is_named_within_5_minutes_in_95_of_100_jobs() -> None:
    late = 0
    for seed in range(100):
        slowdowns = {rank: 1.3 if rank == seed % 4 else 1.0 for rank in range(4)}
        found = first_found_later(seed, slowdowns, healthy=20, windows=12, noise=CALM)
        assert found is not None
        assert (found[0] > 0, found[1].rank) == (True, seed % 4)
        late += found[0] * 43 > 300
    assert late <= 5


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("noise", [0.3, 0.6])
def test_few_windows_of_a_noisy_job_hardly_ever_name_a_rank(ranks: int, noise: float) -> None:
    """Noise that is not that of counting samples counts, too, though few windows show little."""
    named = 0
    for seed in range(100):
        draw = random.Random(seed)
        own = [{rank: max(0.5, draw.gauss(1, noise)) for rank in range(ranks)} for _ in range(8)]
        windows = [window_of(sampled(draw, one)) for one in own]
        named += straggler([one for one in windows if one is not None], FACTOR) is not None

    assert named <= 1


@given(
    excesses=st.lists(st.floats(0.1, 1), min_size=2, max_size=40),
    value=st.integers(0, 39),
)
def test_the_share_of_each_rank_is_compared_with_the_median_of_the_others(excesses, value) -> None:
    taken = 1000
    counts = {rank: round(taken * (1 - one)) for rank, one in enumerate(excesses)}
    window = window_of(shares(counts, taken))
    if window is None:
        return
    rank = value % len(excesses)
    others = statistics.median(one.busy for other, one in window.items() if other != rank)

    assert window[rank].excess == pytest.approx(math.log(window[rank].busy / others))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), ranks=st.integers(3, 16))
def test_one_window_in_which_a_rank_saves_a_checkpoint_names_no_rank(seed, ranks) -> None:
    draw = random.Random(seed)
    slow = {rank: 5.0 if rank == 0 else 1.0 for rank in range(ranks)}
    usual = dict.fromkeys(range(ranks), 1.0)
    windows = [window_of(sampled(draw, slow if number % 5 == 2 else usual)) for number in range(15)]

    assert all(straggler(windows[:count], FACTOR) is None for count in range(16))


def test_a_rank_that_becomes_slow_is_named_with_its_own_past() -> None:
    draw = random.Random(1)
    usual = dict.fromkeys(range(8), 1.0)
    windows = [window_of(sampled(draw, usual)) for _ in range(15)]
    windows += [window_of(sampled(draw, {**usual, 5: 2.0})) for _ in range(6)]

    found = straggler(windows, FACTOR)

    assert found is not None
    assert found.rank == 5
    assert found.before is not None
    assert found.before == pytest.approx(1, abs=0.1)
    assert "rank 5 on node-5 is slow: its own part of a step takes " in found.text
    assert "x before" in found.text


def test_a_start_and_a_single_rank_are_no_window() -> None:
    importing = RankSamples(
        rank=0, node="a", all={Activity.OTHER: 160}, running={Activity.OTHER: 160}, taken=160
    )
    training = RankSamples(rank=1, node="a", all={Activity.COLLECTIVE: 160}, running={}, taken=160)

    assert window_of([importing, training]) is None
    assert window_of([training]) is None
    assert straggler([], FACTOR) is None


def test_a_sleep_outside_of_collectives_is_the_ranks_own_time() -> None:
    """A slow disk or DataLoader puts the thread to sleep as a collective does."""
    slow = RankSamples(
        rank=0,
        node="a",
        all={Activity.DATA: 140, Activity.BACKWARD: 20},
        running={Activity.BACKWARD: 20},
        taken=160,
    )
    usual = RankSamples(
        rank=1,
        node="b",
        all={Activity.DATA: 40, Activity.BACKWARD: 120},
        running={Activity.BACKWARD: 20},
        taken=160,
    )
    window = window_of([slow, usual])
    assert window is not None

    found = straggler([window] * 4, FACTOR)

    assert found is not None
    assert found.rank == 0


def shares(waits: dict[int, int], taken: int = 32) -> list[RankSamples]:
    """Samples of ranks, of which each waits in collectives in some."""
    return [
        RankSamples(
            rank=rank,
            node=f"node-{rank}",
            all={Activity.COLLECTIVE: waiting, Activity.OTHER: taken - waiting},
            running={Activity.OTHER: taken - waiting},
            taken=taken,
        )
        for rank, waiting in waits.items()
    ]


def test_a_rank_so_slow_that_no_sample_shows_it_in_a_collective_is_named() -> None:
    window = window_of(shares({0: 24, 1: 23, 2: 0}))
    assert window is not None

    found = straggler([window] * 4, FACTOR)

    assert found is not None
    assert found.rank == 2
    assert found.factor == pytest.approx(32 / 8.5, rel=0.1)


@pytest.mark.parametrize(
    "waits",
    [
        {0: 32, 1: 32, 2: 0},  # rank 2 evaluates or compiles: no step is finished
        {0: 32, 1: 20, 2: 0},
        {0: 0, 1: 24, 2: 0},  # two ranks start
        {0: 0, 1: 0, 2: 0},
    ],
)
def test_ranks_without_steps_are_no_window(waits: dict[int, int]) -> None:
    assert window_of(shares(waits)) is None
