"""Samples of ranks of a simulated job, one of which may be slow."""

import random
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.adapters.host.rank_samples import RATE, SECONDS
from holdfast.decisions.rank_snapshots import Activity, RankSamples
from holdfast.decisions.stragglers import WINDOWS, Straggler, Window, straggler, window_of

FACTOR: Final = 1.15
SAMPLES: Final = RATE * SECONDS
"""Samples of one series in a window of ``rank_samples``."""

_OUTLIER: Final = 4.0
"""Factor on the noise of a window that is an outlier."""

_OVERLAP: Final = 0.1
"""Share of a step that all ranks wait in any case."""


@dataclass(frozen=True, slots=True)
class Noise:
    """How the own times of healthy ranks vary."""

    deviation: float = 0.02
    """Standard deviation from window to window."""

    outliers: float = 0.0
    """Share of windows with four times that: a heavy tail."""

    wander: float = 0.0
    """Standard deviation of a slow part, an autoregressive process."""

    memory: float = 0.8
    """Correlation of the slow part between two windows: it lasts for three minutes."""

    saves: int = 0
    """Number of windows from one checkpoint of rank 0 to the next one, for which the others wait;
    0 if it saves none."""

    save_s: float = 0.3
    """Duration of a checkpoint as a share of a window."""

    stages: float = 0.0
    """Largest constant difference of ranks, such as of the stages of a pipeline."""


CALM: Final = Noise()
DISTURBED: Final = Noise(outliers=0.05, wander=0.02, saves=15, stages=0.04)
"""Ranks with heavy tails and slow noise, stages that differ by 4 %, and a checkpoint of rank 0
every 10 minutes."""


def sampled(
    draw: random.Random,
    slowdowns: Mapping[int, float],
    *,
    deviation: float = 0.02,
    saving: float = 0.0,
) -> list[RankSamples]:
    """Return samples of ranks whose forward pass is half of a step.

    Args:
        draw: source of randomness.
        slowdowns: own time of each rank, 1 for a usual one.
        deviation: standard deviation of the own time from window to window.
        saving: share of the window in which rank 0 saves and the others wait.

    """
    own = {rank: slow * max(0.5, draw.gauss(1, deviation)) for rank, slow in slowdowns.items()}
    step = max(own.values()) / (1 - _OVERLAP)
    found = []
    for rank, busy in own.items():
        saved = saving if rank == 0 else 0.0
        half = busy / step / 2 * (1 - saving)
        forward, backward = saved + half, half
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


def windows_of(seed: int, slowdowns: Mapping[int, float], noise: Noise) -> Iterator[Window]:
    """Yield windows of a job for ever; a slowdown that changes counts from the next one on."""
    draw = random.Random(seed)
    stages = {rank: draw.uniform(-noise.stages / 2, noise.stages / 2) for rank in slowdowns}
    slow = {rank: draw.gauss(0, noise.wander) for rank in slowdowns}
    fresh = noise.wander * (1 - noise.memory**2) ** 0.5
    number = 0
    while True:
        number += 1
        slow = {rank: noise.memory * one + draw.gauss(0, fresh) for rank, one in slow.items()}
        own = {rank: one * (1 + stages[rank] + slow[rank]) for rank, one in slowdowns.items()}
        if draw.random() < noise.outliers:
            rank = draw.choice([*own])
            own[rank] *= max(0.5, draw.gauss(1, _OUTLIER * noise.deviation))
        saving = noise.save_s if noise.saves and number % noise.saves == 0 else 0.0
        window = window_of(sampled(draw, own, deviation=noise.deviation, saving=saving))
        if window is not None:
            yield window


def first_found(
    seed: int, slowdowns: Mapping[int, float], windows: int, noise: Noise = CALM
) -> tuple[int, Straggler] | None:
    """Return the number of the window that names a rank, and the verdict."""
    seen: list[Window] = []
    for number, window in zip(
        range(1, windows + 1), windows_of(seed, slowdowns, noise), strict=False
    ):
        seen = [*seen, window][-2 * WINDOWS :]
        found = straggler(seen, FACTOR)
        if found is not None:
            return number, found
    return None


def first_found_later(
    seed: int, slowdowns: Mapping[int, float], *, healthy: int, windows: int, noise: Noise
) -> tuple[float, Straggler] | None:
    """Return when ranks are named that become slow in a job that was healthy.

    In windows from the slowdown, which begins within a window; negative for a false alarm.

    Args:
        seed: of the randomness.
        slowdowns: own time of each rank after the slowdown.
        healthy: number of windows before.
        windows: number of windows from the slowdown on.
        noise: of all ranks.

    """
    begins = healthy + random.Random(f"slow {seed}").random()
    current = dict.fromkeys(slowdowns, 1.0)
    job = windows_of(seed, current, noise)
    seen: list[Window] = []
    for number in range(1, healthy + windows + 1):
        share = min(max(0.0, number - begins), 1.0)
        current.update({rank: 1 + (slow - 1) * share for rank, slow in slowdowns.items()})
        seen = [*seen, next(job)][-2 * WINDOWS :]
        found = straggler(seen, FACTOR)
        if found is not None:
            return number - begins, found
    return None
