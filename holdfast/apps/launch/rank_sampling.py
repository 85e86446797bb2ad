"""Samples the ranks of this node window by window, and examines a straggler, in other processes."""

import math
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.host.section_times import read_sections, section_samples
from holdfast.adapters.host.straggler_examination import examination
from holdfast.decisions.launch_events import Examined, Sampled
from holdfast.decisions.rank_snapshots import RankSamples
from holdfast.kit.printed_value import PrintedValue

_PAUSE_S: Final = 3.0
"""Time from the end of one window to the begin of the next one, which includes starting py-spy."""

_LATE: Final = 0.25
"""Share of its period by which a window may begin late, so that one that took a little longer than
its period does not cost the next one."""

_GRACE_S: Final = 130.0
"""Time beyond the window for its two recordings on a busy machine, where py-spy has a low priority:
24 s at a load average of 29 on two CPUs."""

_POLL_S: Final = 1.0
_FAILURES: Final = 3
"""Consecutive windows without samples after which no more are taken in a round."""

_LONGEST_REPORT: Final = 128
"""Maximum number of ranks of a node, so that their samples fit into one message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerOptions:
    """How ranks that slow a job down are found."""

    factor: float = 1.15
    """Least excess over the other ranks that is reported."""

    window: timedelta = timedelta(seconds=40)
    is_requested: bool = False
    """Whether somebody set the factor: then it is reported why there are no samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Printed:
    ranks: tuple[RankSamples, ...] = ()
    note: str = ""


class RankSampling:
    """Windows of the rounds of one node.

    All launchers of a round begin it at about the same time, and so the windows with the same
    number. One that would begin too late is left out.
    """

    def __init__(self, node: str, options: StragglerOptions) -> None:
        self._node, self._options = node, options
        self._seconds = max(1, round(options.window.total_seconds() / 2))
        self._period_s = 2 * self._seconds + _PAUSE_S
        self._round = 0
        self._processes: Mapping[int, int] = {}
        self._slow = -1
        """Rank that is or was examined for the present order; -1 for none."""

        self._examination: PrintedValue[str] | None = None
        self._begun_at = 0.0
        self._window = self._next = 0
        self._running: PrintedValue[_Printed] | None = None
        self._failures = 0
        self._is_reported = not options.is_requested
        self._folder = Path()
        self._sections: dict[int, float] = {}
        """Seconds in sections at the begin of the window; empty if ranks are sampled."""

        self._until = 0.0

    def begin(self, number: int, processes: Mapping[int, int], sections: Path) -> None:
        """Begin a round. The first window is left out: ranks import and compile.

        Args:
            number: number of the round.
            processes: process that was started for each rank.
            sections: directory in which ranks write the times of their sections.

        """
        self.end()
        self._round, self._folder = number, sections
        self._processes = processes if len(processes) <= _LONGEST_REPORT else {}
        self._begun_at, self._next, self._failures = time.monotonic(), 1, 0

    def end(self) -> None:
        """Take no more samples until the next round."""
        self._processes, self._sections, self._slow = {}, {}, -1
        for one in (self._running, self._examination):
            if one is not None:
                one.close()
        self._running = self._examination = None

    def examine(self, number: int, rank: int) -> None:
        """Begin to examine GPU and CPU of a straggler; a repeated call has no effect.

        Args:
            number: number of the round.
            rank: the rank; without a process, as after the end of the round, it is passed over. -1
                if none is to be examined any more.

        """
        if number != self._round or rank == self._slow:
            return
        if self._examination is not None:
            self._examination.close()
            self._examination = None
        self._slow = rank if rank in self._processes else -1
        if self._slow >= 0:
            self._examination = examination(self._slow, self._processes)

    @property
    def pids(self) -> list[int]:
        """Processes that take samples or examine a rank now."""
        return [one.pid for one in (self._running, self._examination) if one is not None]

    def next_call(self) -> float | None:
        """Return the monotonic time of the next call of ``advance``; None if none is due."""
        if self._running is not None or self._examination is not None:
            return time.monotonic() + _POLL_S
        if self._sections:
            return self._until
        return self._begins_at(self._next) if self._processes else None

    def advance(self) -> Iterator[Sampled | Examined]:
        """Yield the samples of a window that has ended, and what was found of a straggler."""
        if (window := self._ended_window()) is not None:
            number, ranks = window
            yield Sampled(launcher=self._node, round=self._round, window=number, ranks=ranks)
        text = None if self._examination is None else self._examination.value("")
        if self._examination is not None and text is not None:
            self._examination.close()
            self._examination = None
            yield Examined(launcher=self._node, round=self._round, rank=self._slow, text=text)

    def _ended_window(self) -> tuple[int, tuple[RankSamples, ...]] | None:
        """Return number and samples of a window that has ended; None if none has."""
        if self._running is not None:
            printed = self._running.value(_Printed())
            if printed is None:
                return None
            self._running.close()
            self._running = None
            elapsed_s = time.monotonic() - self._begun_at
            self._next = window_after(self._window, elapsed_s / self._period_s)
            if printed.ranks:
                self._failures = 0
                return self._window, printed.ranks
            self._failed(printed.note)
        elif self._sections:
            return self._after_sections()
        elif self._processes and time.monotonic() >= self._begins_at(self._next):
            self._window = self._next
            self._sections = read_sections(self._folder, self._processes)
            if self._sections:
                self._until = time.monotonic() + 2 * self._seconds
                self._next = self._window + 1
                return None
            ranks = [f"{rank}:{pid}" for rank, pid in self._processes.items()]
            module = "holdfast.adapters.host.rank_samples"
            self._running = PrintedValue(
                _Printed,
                (sys.executable, "-m", module, str(self._seconds), self._node, *ranks),
                limit_s=2 * self._seconds + _GRACE_S,
            )
        return None

    def _after_sections(self) -> tuple[int, tuple[RankSamples, ...]] | None:
        """Return number and times of a window of sections that has ended; None if none has."""
        late_s = time.monotonic() - self._until
        if late_s < 0:
            return None
        before, self._sections = self._sections, {}
        after = read_sections(self._folder, self._processes)
        nodes = dict.fromkeys(self._processes, self._node)
        ranks = section_samples(before, after, nodes, 2 * self._seconds + late_s)
        return (self._window, ranks) if ranks else None

    def _begins_at(self, window: int) -> float:
        return self._begun_at + window * self._period_s

    def _failed(self, note: str) -> None:
        self._failures += 1
        if self._failures < _FAILURES:
            return
        self._processes = {}
        if not self._is_reported:
            self._is_reported = True
            sys.stderr.write(f"holdfast: stragglers are not detected: {note or 'no samples'}\n")


def window_after(last: int, elapsed: float) -> int:
    """Return the number of the next window.

    Args:
        last: number of the one that has ended.
        elapsed: time since the start of the round, in periods.

    """
    return max(last + 1, math.ceil(elapsed - _LATE))
