"""Reads how long ranks were in their sections: see ``holdfast.training.section``."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from holdfast.decisions.rank_snapshots import Activity, RankSamples
from holdfast.kit.bounded_files import end_text

_BYTES: Final = 64
_PARTS: Final = 10_000
"""Number of parts of a window, as samples; the times have no sampling error."""


def read_sections(folder: Path, ranks: Collection[int]) -> dict[int, float]:
    """Return the seconds that each rank was in its sections; empty unless all report some."""
    found: dict[int, float] = {}
    for rank in ranks:
        text = end_text(folder / f"rank-{rank}", _BYTES).strip()
        try:
            found[rank] = float(text)
        except ValueError:
            return {}
    return found


def section_samples(
    before: Mapping[int, float],
    after: Mapping[int, float],
    nodes: Mapping[int, str],
    seconds: float,
) -> tuple[RankSamples, ...]:
    """Return what the ranks did in a window: the time outside of sections is a wait for others.

    Empty if a rank has finished no section in it.

    Args:
        before: seconds in sections at the begin of the window, by rank.
        after: those at its end.
        nodes: node of each rank.
        seconds: duration of the window.

    """
    found = []
    for rank in sorted(nodes):
        own = after.get(rank, 0.0) - before.get(rank, 0.0)
        if rank not in before or own <= 0 or seconds <= 0:
            return ()
        busy = min(_PARTS - 1, max(1, round(_PARTS * own / seconds)))
        activities = {Activity.OTHER: busy, Activity.COLLECTIVE: _PARTS - busy}
        found.append(
            RankSamples(rank=rank, node=nodes[rank], all=activities, running={}, taken=_PARTS)
        )
    return tuple(found)
