"""The straggler of a job whose launchers sample their ranks: pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from holdfast.decisions.launch_events import Sampled
from holdfast.decisions.rank_snapshots import RankSamples
from holdfast.decisions.stragglers import WINDOWS, Straggler, Window, straggler, window_of

_OPEN = 3
"""Latest windows for which samples of other launchers are awaited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSamples:
    """Samples of one round."""

    round: int = 0
    open: Mapping[int, Mapping[str, tuple[RankSamples, ...]]] = field(default_factory=dict)
    """Samples by window and launcher, of windows in which some launcher is missing."""

    windows: tuple[Window, ...] = ()
    """Windows of synchronous training, oldest first."""

    found: Straggler | None = None
    """Rank that the others wait for; None if none is known."""


def after_samples(
    known: RoundSamples, event: Sampled, launchers: Collection[str], factor: float
) -> RoundSamples:
    """Return what is known after the samples of one launcher.

    Args:
        known: what was known before; of another round, it is forgotten.
        event: samples of a launcher of the current round.
        launchers: launchers of that round.
        factor: least excess over the other ranks that is reported.

    """
    if known.round != event.round:
        known = RoundSamples(round=event.round)
    own = {**known.open.get(event.window, {}), event.launcher: event.ranks}
    if not own.keys() >= set(launchers):
        latest = max(event.window, *known.open) if known.open else event.window
        waits = {**known.open, event.window: own}
        waits = {number: one for number, one in waits.items() if number > latest - _OPEN}
        return replace(known, open=waits)
    waits = {number: one for number, one in known.open.items() if number > event.window}
    window = window_of([one for ranks in own.values() for one in ranks])
    if window is None:
        return replace(known, open=waits)
    windows = (*known.windows, window)[-2 * WINDOWS :]
    found = straggler(windows, factor)
    if found is not None and known.found is not None and found.rank == known.found.rank:
        found = known.found  # the figures of a report do not change with each window
    return replace(known, open=waits, windows=windows, found=found)
