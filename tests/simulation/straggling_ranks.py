"""Samples of ranks of a simulated job, one of which may be slow."""

import random
from bisect import bisect_left
from collections.abc import Mapping
from typing import Final

from holdfast.decisions.rank_snapshots import Activity, RankSamples
from holdfast.decisions.stragglers import WINDOWS, Straggler, Window, straggler, window_of

FACTOR: Final = 1.15
SAMPLES: Final = 160
"""Samples of one series in a window of ``rank_samples``."""


def sampled(
    draw: random.Random,
    slowdowns: Mapping[int, float],
    *,
    noise: float = 0.02,
    overlap: float = 0.1,
) -> list[RankSamples]:
    """Return samples of ranks whose forward pass is half of a step.

    Args:
        draw: source of randomness.
        slowdowns: own time of each rank, 1 for a usual one.
        noise: standard deviation of the own time from window to window.
        overlap: share of a step that all ranks wait in any case.

    """
    own = {rank: slow * max(0.5, draw.gauss(1, noise)) for rank, slow in slowdowns.items()}
    step = max(own.values()) / (1 - overlap)
    found = []
    for rank, busy in own.items():
        share = busy / step
        forward, backward = share / 2, share / 2
        others = bisect_left(_sorted_randoms(draw), forward)
        everything = {Activity.OTHER: others, Activity.BACKWARD: SAMPLES - others}
        at = _sorted_randoms(draw)
        others = bisect_left(at, forward)
        ran = bisect_left(at, forward + backward)
        running = {Activity.OTHER: others, Activity.BACKWARD: ran - others}
        found.append(
            RankSamples(
                rank=rank, node=f"node-{rank}", all=everything, running=running, taken=SAMPLES
            )
        )
    return found


def _sorted_randoms(draw: random.Random) -> list[float]:
    """Numbers of one window in order: counted by bisection, as the tests draw millions of them."""
    rand = draw.random
    return sorted([rand() for _ in range(SAMPLES)])


def first_found(
    seed: int, slowdowns: Mapping[int, float], windows: int
) -> tuple[int, Straggler] | None:
    """Return the number of the window that names a rank, and the verdict."""
    draw = random.Random(seed)
    seen: list[Window] = []
    for number in range(1, windows + 1):
        window = window_of(sampled(draw, slowdowns))
        assert window is not None
        seen = [*seen, window][-2 * WINDOWS :]
        found = straggler(seen, FACTOR)
        if found is not None:
            return number, found
    return None
