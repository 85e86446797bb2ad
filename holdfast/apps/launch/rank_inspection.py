"""Inspects the ranks of this node in another process, when the job seems to hang."""

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from holdfast.decisions.failure_signatures import PEER_CAUSES, cause_of
from holdfast.decisions.flight_recorder import (
    DumpFiles,
    RankFindings,
    RankTrace,
    after_timeouts,
    summaries,
)
from holdfast.decisions.kernel_lines import LINES, NodeKernelLog, fewer_lines
from holdfast.decisions.launch_events import Inspected
from holdfast.decisions.rank_snapshots import RankSnapshot, shortened
from holdfast.kit.printed_value import PrintedValue
from holdfast.kit.serial import to_plain
from holdfast.model.names import Cause

_REPORT_S: Final = 0.5
"""Time of an inspection that is left for the message to the coordinator."""

_STATES_S: Final = 2.5
"""Time before that in which no more stacks are read; states are, a second time."""

_LONGEST_REPORT: Final = 42_000
"""Characters of all snapshots of a node, so that they fit into one message to the coordinator."""

_LONGEST_TRACES: Final = 14_000
"""Characters of all traces of a node, which share the message."""

_LONGEST_KERNEL: Final = 6_000
"""Maximum length of the kernel log of a node in characters; it is part of the same message."""

_TRACE_SIZES: Final = ((8, 8), (4, 4), (2, 2), (1, 1))
"""Maximum number of collectives of a rank and a group that are over, and that are not."""


class RankInspection:
    """One inspection.

    Args:
        node: name of the node.
        files: where the ranks dump their flight recorders.
        since: start of the round, in seconds since 1970.
        processes: the ranks' processes by rank.
        limit_s: maximum time of the inspection with its message, more than 3 s.

    """

    def __init__(
        self,
        node: str,
        files: DumpFiles,
        since: float,
        processes: Mapping[int, int | None],
        limit_s: float,
    ) -> None:
        ranks = [f"{rank}:{pid or 0}" for rank, pid in processes.items()]
        module = "holdfast.adapters.host.rank_findings"
        until = time.monotonic() + limit_s - _REPORT_S - _STATES_S
        times = (str(since), str(until))
        command = (sys.executable, "-m", module, node, files.dump, files.pipe, *times, *ranks)
        self._printed = PrintedValue(RankFindings, command, limit_s=limit_s - _REPORT_S)

    @property
    def pid(self) -> int:
        """Return the process that takes the snapshots."""
        return self._printed.pid

    def findings(self) -> RankFindings | None:
        """Return what the ranks do; None until that is known.

        Ranks for which one message has no room are missing.
        """
        found = self._printed.value(RankFindings())
        if found is None:
            return None
        return RankFindings(
            snapshots=bounded_snapshots(found.snapshots),
            traces=bounded_traces(found.traces),
            ras=found.ras,
            kernel=bounded_kernel(found.kernel),
        )

    def close(self) -> None:
        """End the process, and release the file."""
        self._printed.close()


class RankInspections:
    """Inspections of the rounds of one node.

    Args:
        node: name of its launcher.
        slots: number of its ranks.

    """

    def __init__(self, node: str, slots: int) -> None:
        self._node, self._slots = node, slots
        self._files, self._since, self._round = DumpFiles.in_folder(""), 0.0, 0
        self._number = 0
        self._ended_waiting: set[int] = set()
        self._running: RankInspection | None = None

    @property
    def is_running(self) -> bool:
        """Return whether an inspection has begun and not ended."""
        return self._running is not None

    @property
    def pids(self) -> set[int]:
        """Process that inspects ranks now."""
        return set() if self._running is None else {self._running.pid}

    @property
    def number(self) -> int:
        """Return the number of the last inspection of the round; 0 if there was none."""
        return self._number

    def begin_round(self, number: int, files: DumpFiles) -> None:
        """Begin a round: dumps that are there already are of earlier ones."""
        self.end()
        self._round, self._files, self._since = number, files, time.time()
        self._number = 0
        self._ended_waiting.clear()

    def has_timed_out(self, rank: int, text: str) -> bool:
        """Return whether a rank that has failed had waited for another one too long.

        Args:
            rank: the rank.
            text: its exception; empty if unknown.

        """
        from holdfast.adapters.host.flight_dumps import dumped_ranks  # noqa: PLC0415 - after a failure only

        cause = cause_of(text)
        has_dumped = bool(dumped_ranks(self._files, {rank}, self._since))
        if has_dumped or cause in PEER_CAUSES:
            self._ended_waiting.add(rank)
        return has_dumped or cause is Cause.COLLECTIVE_TIMEOUT

    def begin(self, number: int, processes: Mapping[int, int | None], limit_s: float) -> None:
        """Begin to look at the ranks of this node.

        Args:
            number: number of the inspection in the round.
            processes: the ranks' processes by rank; None for one that has ended.
            limit_s: maximum time of the inspection with its message.

        """
        self.end()
        self._number = number
        self._running = RankInspection(self._node, self._files, self._since, processes, limit_s)

    def found(self, *, is_stalled: Callable[[], bool]) -> Inspected | None:
        """Return what the ranks do, once; None until that is known.

        Args:
            is_stalled: returns whether the rank that was suspected is still without progress.

        """
        if self._running is None or (found := self._running.findings()) is None:
            return None
        self.end()
        found = after_timeouts(found, self._ended_waiting)
        seen = len(found.snapshots)
        return Inspected(
            launcher=self._node,
            round=self._round,
            number=self._number,
            is_stalled=is_stalled(),
            snapshots=found.snapshots,
            omitted=max(0, self._slots - seen) if seen else 0,
            traces=found.traces,
            ras=found.ras,
            kernel=found.kernel,
        )

    def end(self) -> None:
        """End a running inspection."""
        if self._running is not None:
            self._running.close()
            self._running = None


def bounded_snapshots(snapshots: tuple[RankSnapshot, ...]) -> tuple[RankSnapshot, ...]:
    """Return snapshots that fit into one message: less of each, and at last fewer ranks."""
    return next(one for one in shortened(snapshots) if _length(one) <= _LONGEST_REPORT)


def bounded_traces(traces: tuple[RankTrace, ...]) -> tuple[RankTrace, ...]:
    """Return traces that fit into one message: less of each, and at last of fewer ranks."""
    for over, waiting in _TRACE_SIZES:
        traces = summaries(traces, over=over, waiting=waiting)
        if _length(traces) <= _LONGEST_TRACES:
            return traces
    traces = summaries(traces, over=1, waiting=1, with_members=False)
    while _length(traces) > _LONGEST_TRACES:
        traces = traces[: len(traces) // 2]
    return traces


def bounded_kernel(logs: tuple[NodeKernelLog, ...]) -> tuple[NodeKernelLog, ...]:
    """Return kernel logs that fit into one message: fewer lines of each, and at last none."""
    shorter = (fewer_lines(logs, limit) for limit in range(LINES, -1, -1))
    return next(one for one in shorter if _length(one) <= _LONGEST_KERNEL)


def _length(
    found: tuple[RankSnapshot, ...] | tuple[RankTrace, ...] | tuple[NodeKernelLog, ...],
) -> int:
    plain: Any = to_plain(found)
    return len(json.dumps(plain))
