"""The straggler of a job whose launchers sample their ranks: pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from holdfast.decisions.launch_events import Examined, Sampled, Slowed
from holdfast.decisions.launch_orders import Order, OrderKind
from holdfast.decisions.launch_state import JobRounds, Phase
from holdfast.decisions.rank_snapshots import RankSamples
from holdfast.decisions.stragglers import WINDOWS, Straggler, Window, straggler, window_of
from holdfast.kit.units import one_line

_OPEN = 3
"""Latest windows for which samples of other launchers are awaited."""

_EXAMINATION: Final = timedelta(seconds=20)
"""For which a report waits until the launcher of the straggler has examined its GPU and CPU. That
takes 5 s, and up to 4 s more if the driver is slow; the rest is for starting the program."""

_LONGEST_TEXT: Final = 500
"""Maximum length in characters of what is reported of GPU and CPU."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedStraggler:
    """A straggler that is not reported yet: its launcher examines its GPU and CPU first."""

    round: int
    found: Straggler
    until: datetime
    """Time at which it is reported in any case."""

    is_examined: bool = False

    def order(self, launcher: str, order: Order) -> Order:
        """Return the order for a launcher; that of the straggler is to examine it."""
        is_due = order.kind is OrderKind.RUN and order.round == self.round
        is_requested = is_due and launcher == self.found.node and not self.is_examined
        return replace(order, slow_rank=self.found.rank) if is_requested else order

    def after(self, event: Examined) -> "NamedStraggler":
        """Return the straggler after the report of a launcher; one on another rank is ignored."""
        key = (self.found.node, self.round, self.found.rank)
        if (event.launcher, event.round, event.rank) != key:
            return self
        text = one_line(event.text, _LONGEST_TEXT)
        return replace(self, found=replace(self.found, slowdowns=text), is_examined=True)

    def is_complete(self, job: JobRounds, now: datetime) -> bool:
        """Return whether nothing more is awaited, so that it is reported."""
        is_awaited = job.phase is Phase.RUN and job.round == self.round
        return self.is_examined or now >= self.until or not is_awaited

    @property
    def event(self) -> Slowed:
        """Return the event for the job."""
        found = self.found
        return Slowed(launcher=found.node, round=self.round, rank=found.rank, text=found.text)


def newly_named(before: RoundSamples, after: RoundSamples, now: datetime) -> NamedStraggler | None:
    """Return the straggler that samples have just named; None if they have not."""
    if after.found is None or after.found == before.found:
        return None
    return NamedStraggler(round=after.round, found=after.found, until=now + _EXAMINATION)
