"""Which rank slows a job down, decided from how long each rank waits for the others. Pure.

All ranks of a synchronous job take the same time for a step: a slow rank makes the others wait in
their collectives. The rank that waits least, and clearly less than the others, is the straggler.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.decisions.rank_snapshots import Activity, RankSamples

WINDOWS: Final = 15
"""Number of windows that are kept; a window takes 40 seconds."""

MIN_WINDOWS: Final = 4
"""Number of windows below which no rank is named: a checkpoint or an evaluation keeps one rank
busy, but rarely in most of four windows."""

_DEVIATIONS: Final = 5.0
"""Standard errors by which a rank must exceed the others. In simulated noise, no rank of 2, 4 or 8
did so in 36 hours each."""

_CORRELATION: Final = 1.5
"""Factor on the standard error of samples: those of one step depend on each other."""

_LEAST_EXCESS: Final = 1.05
"""Factor by which a rank must exceed the others in most windows, too: an outlier is not a trend."""

_LEAST_COLLECTIVE: Final = 0.02
"""Minimum share of samples in collectives; below it, a rank starts, compiles, or is slow: the last
rank to enter a collective hardly waits there."""

_LEAST_BUSY: Final = 0.05
"""Minimum share of samples of the other ranks outside of collectives: below it, they wait for all
of the window, because one rank compiles, evaluates or saves, and no step is finished."""

_MIN_SAMPLES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """A rank that the others wait for."""

    rank: int
    node: str
    factor: float
    """Its own time in a step, as a multiple of the median of the other ranks."""

    wait: float
    """Share of its time in which it waits."""

    others_wait: float
    """Median of this share of the other ranks."""

    windows: int
    before: float | None = None
    """Its factor in the first half of the attempt's windows if it was not slow then."""

    @property
    def text(self) -> str:
        """Return who is slow and by how much, for people to read."""
        past = "" if self.before is None else f"; it was {self.before:.2f}x before"
        return (
            f"rank {self.rank} on {self.node} is slow: its own part of a step takes "
            f"{self.factor:.2f}x the median of the other ranks; it waits {self.wait:.0%} of the "
            f"time, the others {self.others_wait:.0%} ({self.windows} windows){past}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    node: str
    busy: float
    variance: float
    in_collectives: float
    """Share of samples in collectives and in the backward pass."""


Window = Mapping[int, _Share]
"""Share of the time in which each rank did not wait."""


def window_of(samples: Sequence[RankSamples]) -> Window | None:
    """Return the shares of one window; None if it shows no synchronous training.

    A main thread waits if it is in a collective, or sleeps in the backward pass, in which DDP and
    FSDP wait for theirs. A sleep elsewhere is the rank's own: a slow disk or DataLoader.
    """
    if len({one.rank for one in samples}) < 2:
        return None
    found = {one.rank: _share(one) for one in samples}
    shares = {rank: share for rank, share in found.items() if share is not None}
    return shares if len(shares) == len(found) and _has_steps(shares) else None


def _has_steps(window: Window) -> bool:
    """Return whether all ranks enter collectives; for one of them, the others may show it."""
    seldom = [rank for rank, one in window.items() if one.in_collectives < _LEAST_COLLECTIVE]
    others = [one for rank, one in window.items() if rank not in seldom]
    return not seldom or (len(seldom) == 1 and all(one.busy >= _LEAST_BUSY for one in others))


def straggler(windows: Sequence[Window], factor: float) -> Straggler | None:
    """Return the rank that the others wait for; None if no rank clearly stands out.

    Args:
        windows: windows of one attempt, oldest first.
        factor: least multiple of the others' median that is reported.

    """
    ranks = set.intersection(*(set(window) for window in windows)) if windows else set()
    measured = {rank: [_excess(window, rank) for window in windows] for rank in ranks}
    for count in range(MIN_WINDOWS, len(windows) + 1):
        recent = windows[-count:]
        excess = {rank: found[-count:] for rank, found in measured.items()}
        slowest = max(ranks, key=lambda rank: statistics.median(excess[rank]), default=None)
        if slowest is not None and _is_clear(recent, slowest, excess[slowest], factor):
            return _named(windows, recent, slowest, excess[slowest], factor)
    return None


def _share(one: RankSamples) -> _Share | None:
    total = sum(one.all.values())
    if total < _MIN_SAMPLES or one.taken < _MIN_SAMPLES:
        return None
    collective = one.all.get(Activity.COLLECTIVE, 0) / total
    backward = one.all.get(Activity.BACKWARD, 0) / total
    computing = min(one.running.get(Activity.BACKWARD, 0) / one.taken, backward)
    busy = max(1 - collective - (backward - computing), 1 / total)
    in_them = collective + backward
    variance = in_them * (1 - in_them) / total + computing * (1 - computing) / one.taken
    return _Share(
        node=one.node,
        busy=busy,
        variance=max(variance, 1 / total**2),
        in_collectives=in_them,
    )


def _excess(window: Window, rank: int) -> float:
    """Return the logarithm of a rank's own time over the median of the others."""
    others = statistics.median(share.busy for other, share in window.items() if other != rank)
    return math.log(window[rank].busy / others)


def _is_clear(recent: Sequence[Window], rank: int, excess: Sequence[float], factor: float) -> bool:
    typical = statistics.median(excess)
    count = len(excess)
    if typical < math.log(factor):
        return False
    if sum(one > math.log(_LEAST_EXCESS) for one in excess) < 0.8 * count:
        return False
    own = [_relative_variance(window, rank) for window in recent]
    of_samples = _CORRELATION * math.sqrt(sum(own)) / count
    deviation = statistics.median(abs(one - typical) for one in excess) * 1.4826
    return typical >= _DEVIATIONS * max(of_samples, deviation / math.sqrt(count))


def _relative_variance(window: Window, rank: int) -> float:
    """Return the variance of ``_excess``; with few ranks the median of the others varies, too."""
    relative = {other: one.variance / one.busy**2 for other, one in window.items()}
    others = [one for other, one in relative.items() if other != rank]
    return relative[rank] + statistics.median(others) * math.pi / 2 / len(others)


def _named(
    windows: Sequence[Window],
    recent: Sequence[Window],
    rank: int,
    excess: Sequence[float],
    factor: float,
) -> Straggler:
    waits = [1 - window[rank].busy for window in recent]
    others = [1 - one.busy for window in recent for other, one in window.items() if other != rank]
    past = [_excess(window, rank) for window in windows[: len(windows) // 2]]
    before = math.exp(statistics.median(past)) if len(past) >= MIN_WINDOWS else None
    return Straggler(
        rank=rank,
        node=recent[-1][rank].node,
        factor=math.exp(statistics.median(excess)),
        wait=statistics.median(waits),
        others_wait=statistics.median(others),
        windows=len(recent),
        before=before if before is not None and before < factor else None,
    )
