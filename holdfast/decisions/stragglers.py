"""Which rank slows a job down, decided from how long each rank waits for the others. Pure.

All ranks of a synchronous job take the same time for a step: a slow rank makes the others wait in
their collectives. The rank that waits least, and clearly less than the others, is the straggler.

The excess of a rank in a window is the logarithm of its own time over the median of the others.
Its mean over the last 4 to 30 windows is tested after each window, without outliers: a checkpoint
or an evaluation of one rank is no trend. The noise of one window is the largest of three: that of
counting samples, which is binomial, because py-spy samples at random times; that of this rank; and
that of all ranks, which sees noise of the machine that few windows of one rank do not show. It
shrinks with the root of the number of windows, but ranks also wander slowly, which it does not see:
``_WANDER`` is added.

The threshold follows from the rate of false alarms of healthy ranks, whose excess over its error is
normally distributed. The maximum over all stretches of 4 to 30 windows exceeds 5 about 1.9 times as
often in a window as one value does (D. Siegmund and E. S. Venkatraman, Ann. Statist. 23, 1995,
255-271). So a job of R ranks has ``_ALARMS_PER_DAY`` with the quantile of the normal distribution
at 1 minus that, over 2 R windows of 40 seconds per day: 4.7 errors for 2 ranks, 4.9 for 4, 5.9 for
1024.
"""

import math
import statistics
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

from holdfast.decisions.rank_snapshots import Activity, RankSamples

WINDOWS: Final = 15
"""Number of windows that are kept; a window takes 40 seconds."""

MIN_WINDOWS: Final = 4
"""Number of windows below which no rank is named: a checkpoint or an evaluation keeps one rank
busy, but rarely in most of four windows."""

_ALARMS_PER_DAY: Final = 0.01
"""False alarms of a job, if the noise is as assumed."""

_TESTS_PER_DAY: Final = 2 * 86400 // 40
"""Independent tests of a rank: twice the windows."""

_WANDER: Final = 0.02
"""Standard deviation of the excess of a rank over minutes and hours: temperature, clocks,
neighbors. It is an assumption. Simulated jobs of 4, 8 and 16 ranks that wander by as much, of which
the stages differ by up to 4 % in addition, had no false alarm in 7 days each."""

_OUTLIER: Final = 2.5
"""Noise of one window beyond which an excess is left out of the mean."""

_LOSS: Final = 1.05
"""Factor on the error of the mean, which is 1.04 for a normal distribution: the values that are
left out vary most."""

_NORMAL: Final = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """One rank in one window."""

    node: str
    busy: float
    excess: float
    """Logarithm of its own time over the median of the others."""

    variance: float
    """Of the excess, by the number of samples."""


Window = Mapping[int, _Compared]
"""What each rank did, compared with the others."""


def window_of(samples: Sequence[RankSamples]) -> Window | None:
    """Return the shares of one window; None if it shows no synchronous training.

    A main thread waits if it is in a collective, or sleeps in the backward pass, in which DDP and
    FSDP wait for theirs. A sleep elsewhere is the rank's own: a slow disk or DataLoader.
    """
    if len({one.rank for one in samples}) < 2:
        return None
    found = {one.rank: _share(one) for one in samples}
    shares = {rank: share for rank, share in found.items() if share is not None}
    return _compared(shares) if len(shares) == len(found) and _has_steps(shares) else None


def _has_steps(shares: Mapping[int, _Share]) -> bool:
    """Return whether all ranks enter collectives; for one of them, the others may show it."""
    seldom = [rank for rank, one in shares.items() if one.in_collectives < _LEAST_COLLECTIVE]
    others = [one for rank, one in shares.items() if rank not in seldom]
    return not seldom or (len(seldom) == 1 and all(one.busy >= _LEAST_BUSY for one in others))


def straggler(windows: Sequence[Window], factor: float) -> Straggler | None:
    """Return the rank that the others wait for; None if no rank clearly stands out.

    Args:
        windows: windows of one attempt, oldest first.
        factor: least multiple of the others' median that is reported.

    """
    ranks = set.intersection(*(set(window) for window in windows)) if windows else set()
    if len(ranks) < 2 or len(windows) < MIN_WINDOWS:
        return None
    measured = {rank: [window[rank].excess for window in windows] for rank in sorted(ranks)}
    threshold = _threshold(len(ranks))
    noise = _noise(measured.values(), threshold)
    for count in range(MIN_WINDOWS, len(windows) + 1):
        medians = {rank: statistics.median(found[-count:]) for rank, found in measured.items()}
        slowest = max(medians, key=medians.__getitem__)
        recent = [window[slowest] for window in windows[-count:]]
        typical = _typical(recent, noise, threshold)
        if typical is not None and typical >= math.log(factor):
            return _named(windows, count, slowest, typical, factor)
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


def _compared(shares: Mapping[int, _Share]) -> Window:
    """Return each rank compared with the median of the others.

    The variance of a median of few values is that of a normal distribution: it is exact for one,
    and within 2 % for odd numbers of them.
    """
    ordered = sorted(one.busy for one in shares.values())
    variances = {rank: one.variance / one.busy**2 for rank, one in shares.items()}
    by_variance = sorted(variances.values())
    of_median = math.pi / (2 * (len(shares) - 1) + math.pi - 2)
    return {
        rank: _Compared(
            node=one.node,
            busy=one.busy,
            excess=math.log(one.busy / _median_without(ordered, one.busy)),
            variance=variances[rank] + of_median * _median_without(by_variance, variances[rank]),
        )
        for rank, one in shares.items()
    }


def _median_without(ordered: Sequence[float], value: float) -> float:
    """Return the median of at least two numbers in order without one of them."""
    skipped, count = bisect_left(ordered, value), len(ordered) - 1
    low, high = ((count - 1) // 2, count // 2)
    return (ordered[low + (low >= skipped)] + ordered[high + (high >= skipped)]) / 2


def _threshold(ranks: int) -> float:
    """Return the errors by which one of so many ranks must exceed the others."""
    return NormalDist().inv_cdf(1 - _ALARMS_PER_DAY / (_TESTS_PER_DAY * ranks))


def _noise(measured: Collection[Sequence[float]], threshold: float) -> float:
    """Return the standard deviation of the excess from window to window, of all ranks together.

    Few values may show too little of it. So it is larger by the ratio of Student's t to the normal
    distribution at the threshold, to the first order in the degrees of freedom.
    """
    observed = _NORMAL * statistics.median(
        abs(one - median)
        for found in measured
        for median in [statistics.median(found)]
        for one in found
    )
    windows = min(map(len, measured))
    freedom = (windows - 1) * (len(measured) - 1)
    return observed * (1 + (threshold**2 + 1) / (4 * freedom))


def _typical(recent: Sequence[_Compared], noise: float, threshold: float) -> float | None:
    """Return the mean excess of a rank without outliers; None if noise may explain it.

    Args:
        recent: the rank in each window.
        noise: standard deviation of the excess of all ranks from window to window.
        threshold: least number of errors.

    """
    excess = [one.excess for one in recent]
    if sum(one > math.log(_LEAST_EXCESS) for one in excess) < 0.8 * len(excess):
        return None
    median = statistics.median(excess)
    own = _NORMAL * statistics.median(abs(one - median) for one in excess)
    of_samples = math.sqrt(statistics.fmean(one.variance for one in recent))
    noise = max(of_samples, own, noise)
    typical = statistics.fmean(one for one in excess if abs(one - median) <= _OUTLIER * noise)
    error = math.hypot(_LOSS * noise / math.sqrt(len(excess)), _WANDER)
    return typical if typical >= threshold * error else None


def _named(
    windows: Sequence[Window], count: int, rank: int, typical: float, factor: float
) -> Straggler:
    recent = windows[-count:]
    waits = [1 - window[rank].busy for window in recent]
    others = [1 - one.busy for window in recent for other, one in window.items() if other != rank]
    past = [window[rank].excess for window in windows[: len(windows) // 2]]
    before = math.exp(statistics.median(past)) if len(past) >= MIN_WINDOWS else None
    return Straggler(
        rank=rank,
        node=recent[-1][rank].node,
        factor=math.exp(typical),
        wait=statistics.median(waits),
        others_wait=statistics.median(others),
        windows=count,
        before=before if before is not None and before < factor else None,
    )
