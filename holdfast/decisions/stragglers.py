"""Which rank slows a job down, decided from how long each rank waits for the others. Pure.

All ranks of a synchronous job take the same time for a step: a slow rank makes the others wait in
their collectives. The rank that waits least, and clearly less than the others, is the straggler.

The excess of a rank in a window is the logarithm of its own time over the median of the others.
Its mean over the last 4 to 30 windows is tested after each window, without outliers: a checkpoint
or an evaluation of one rank is no trend. The noise of one window is the largest of three: that of
counting samples, which is binomial, because py-spy samples at random times; that of this rank; and
that of all ranks. The last two are measured in all windows, from the typical excess in the tested
ones and from that before: what a rank gains when it becomes slow is no noise. It shrinks with the
root of the number of windows, but ranks also wander slowly, which it does not see: ``_WANDER`` of
the rank and of the median of the others is added.

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
from collections.abc import Mapping, Sequence
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

_WANDER: Final = 0.018
"""Standard deviation of the own time of a rank over minutes and hours: temperature, clocks,
neighbors. It is an assumption. Simulated jobs of 4 ranks that wander by 2 %, of which the stages
differ by up to 4 % in addition, had no false alarm in 7 days."""

_OUTLIER: Final = 2.5
"""Noise of one window beyond which an excess is left out of the mean."""

_BURST: Final = 1.75
"""Factor by which the tested windows must be noisier than all to count alone. Chance explains it in
less than one of 100 tests: the 0.99 quantile of F(12, 60) is that of a factor of 1.6."""

_LOSS: Final = 1.05
"""Factor on the error of the mean, which is 1.04 for a normal distribution: the values that are
left out vary most."""

_OF_MEDIAN, _OF_MEAN = 1.4826, 1.2533
"""Standard deviation of a normal distribution over its median and its mean absolute deviation."""

_EFFICIENCY: Final = 0.85
"""Values whose standard deviation would be known as well as from one absolute deviation: 0.876 for
the mean of those of a normal distribution, and less because large ones are cut."""

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

    slowdowns: str = ""
    """What slows its GPU and CPU down, as seen when it was named; empty if nothing does."""

    @property
    def text(self) -> str:
        """Return who is slow and by how much, for people to read."""
        past = "" if self.before is None else f"; it was {self.before:.2f}x before"
        seen = f"; {self.slowdowns}" if self.slowdowns else ""
        return (
            f"rank {self.rank} on {self.node} is slow: its own part of a step takes "
            f"{self.factor:.2f}x the median of the other ranks; it waits {self.wait:.0%} of the "
            f"time, the others {self.others_wait:.0%} ({self.windows} windows){past}{seen}"
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
    for count in range(MIN_WINDOWS, len(windows) + 1):
        medians = {rank: statistics.median(found[-count:]) for rank, found in measured.items()}
        slowest = max(medians, key=medians.__getitem__)
        recent = [window[slowest] for window in windows[-count:]]
        if not _is_trend(recent):
            continue
        noise = _noise(measured, slowest, count, threshold)
        wander = _WANDER * math.sqrt(1 + _variance_of_median(len(ranks) - 1))
        typical = _typical(recent, noise, wander, threshold)
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
    """Return each rank compared with the median of the others."""
    ordered = sorted(one.busy for one in shares.values())
    variances = {rank: one.variance / one.busy**2 for rank, one in shares.items()}
    by_variance = sorted(variances.values())
    of_median = _variance_of_median(len(shares) - 1)
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


def _variance_of_median(count: int) -> float:
    """Return the variance of the median of values over that of one of them.

    It is that of a normal distribution: exact for one value, within 2 % for odd numbers of them.
    """
    return math.pi / (2 * count + math.pi - 2)


def _threshold(ranks: int) -> float:
    """Return the errors by which one of so many ranks must exceed the others."""
    return NormalDist().inv_cdf(1 - _ALARMS_PER_DAY / (_TESTS_PER_DAY * ranks))


def _is_trend(recent: Sequence[_Compared]) -> bool:
    above = sum(one.excess > math.log(_LEAST_EXCESS) for one in recent)
    return above >= 0.8 * len(recent)


def _noise(
    measured: Mapping[int, Sequence[float]], rank: int, count: int, threshold: float
) -> float:
    """Return the standard deviation of the excess of a rank from window to window.

    That of all ranks together is a lower limit; the tested windows alone count if they are clearly
    noisier than all, as while other programs use the machine. Few values may show too little of it.
    So it is larger by the ratio of Student's t to the normal distribution at the threshold, to the
    first order in the degrees of freedom.

    Args:
        measured: excess of each rank in all windows.
        rank: the rank.
        count: number of windows at the end in which it may be slow.
        threshold: least number of errors.

    """
    deviations = {one: _deviations(found, count) for one, found in measured.items()}
    windows = len(measured[rank])
    left = windows - (1 if count == windows else 2)
    of_rank = math.sqrt(windows / left) * _scale(deviations[rank])
    of_all = math.sqrt(windows / left) * _scale(
        [one for them in deviations.values() for one in them]
    )
    recent = [one for them in deviations.values() for one in them[-count:]]
    of_recent = math.sqrt(count / (count - 1)) * _scale(recent)
    if of_recent > _BURST * of_all:
        of_all, left = of_recent, count - 1
    freedom = _EFFICIENCY * left * (len(measured) - 1)
    return max(of_rank, of_all * (1 + (threshold**2 + 1) / (4 * freedom)))


def _deviations(found: Sequence[float], count: int) -> list[float]:
    """Return absolute deviations from the median of the last windows, and of those before."""
    parts = [part for part in (found[:-count], found[-count:]) if part]
    return [abs(one - median) for part in parts for median in [statistics.median(part)]
            for one in part]  # fmt: skip


def _scale(deviations: Sequence[float]) -> float:
    """Return the standard deviation of values by their absolute deviations, large ones cut."""
    most = _OUTLIER * _OF_MEDIAN * statistics.median(deviations)
    return _OF_MEAN * statistics.fmean(min(one, most) for one in deviations)


def _typical(
    recent: Sequence[_Compared], noise: float, wander: float, threshold: float
) -> float | None:
    """Return the mean excess of a rank without outliers; None if noise may explain it.

    Args:
        recent: the rank in each window.
        noise: standard deviation of its excess from window to window, as measured.
        wander: that of its excess over hours.
        threshold: least number of errors.

    """
    excess = [one.excess for one in recent]
    median = statistics.median(excess)
    noise = max(noise, math.sqrt(statistics.fmean(one.variance for one in recent)))
    typical = statistics.fmean(one for one in excess if abs(one - median) <= _OUTLIER * noise)
    error = math.hypot(_LOSS * noise / math.sqrt(len(excess)), wander)
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
