"""Inspects the ranks of this node in another process, when the job seems to hang."""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from holdfast.apps.launch.printed_value import PrintedValue
from holdfast.decisions.flight_recorder import RankFindings, RankTrace, summaries
from holdfast.decisions.rank_snapshots import RankSnapshot
from holdfast.kit.serial import to_plain

_LIMIT_S: Final = 9.5
"""Less than ``launch_inspection.LIMIT``; snapshots take at most 8 s."""

_LONGEST_REPORT: Final = 48_000
"""Characters of all snapshots of a node, so that they fit into one message to the coordinator."""

_SIZES: Final = (
    (100, 16, 20), (100, 4, 20), (50, 1, 20), (25, 1, 8), (12, 1, 4), (12, 0, 0), (6, 0, 0),
    (0, 0, 0),
)  # fmt: skip
"""Maximum frames of a main thread, number of helpers, and frames of each, in order of preference.
The first helper explains most."""


_LONGEST_TRACES: Final = 14_000
"""Characters of all traces of a node, which share the message."""

_TRACE_SIZES: Final = ((8, 8), (4, 4), (2, 2), (1, 1))
"""Maximum number of collectives of a rank and a group that are over, and that are not."""


class RankInspection:
    """One inspection.

    Args:
        node: name of the node.
        dumps: directory in which the ranks dump their flight recorders.
        processes: the ranks' processes by rank.

    """

    def __init__(self, node: str, dumps: Path, processes: Mapping[int, int | None]) -> None:
        ranks = [f"{rank}:{pid or 0}" for rank, pid in processes.items()]
        module = "holdfast.adapters.host.rank_findings"
        command = (sys.executable, "-m", module, node, str(dumps), *ranks)
        self._printed = PrintedValue(RankFindings, command, limit_s=_LIMIT_S)

    @property
    def pid(self) -> int:
        """Return the process that takes the snapshots."""
        return self._printed.pid

    def findings(self) -> RankFindings | None:
        """Return what the ranks do; None until that is known, which takes at most 9.5 s.

        Ranks for which one message has no room are missing.
        """
        found = self._printed.value(RankFindings())
        if found is None:
            return None
        return RankFindings(
            snapshots=_bounded(found.snapshots), traces=bounded_traces(found.traces)
        )

    def close(self) -> None:
        """End the process, and release the file."""
        self._printed.close()


def _bounded(snapshots: tuple[RankSnapshot, ...]) -> tuple[RankSnapshot, ...]:
    """Return snapshots that fit into one message: less of each, and at last fewer ranks."""
    for frames, helpers, of_helper in _SIZES:
        shorter = tuple(
            replace(
                one,
                frames=one.frames[:frames],
                helpers=tuple(
                    replace(helper, frames=helper.frames[:of_helper])
                    for helper in one.helpers[:helpers]
                ),
            )
            for one in snapshots
        )
        if _length(shorter) <= _LONGEST_REPORT:
            return shorter
    while _length(shorter) > _LONGEST_REPORT:
        shorter = shorter[: len(shorter) // 2]
    return shorter


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


def _length(found: tuple[RankSnapshot, ...] | tuple[RankTrace, ...]) -> int:
    plain: Any = to_plain(found)
    return len(json.dumps(plain))
