"""How old the newest verified checkpoint of a job is, and whether that is too old. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from holdfast.model.checkpoint_manifests import CheckpointManifest, SaveSummary

OVERDUE_INTERVALS: Final = 3
"""Save intervals after which a checkpoint is overdue. One save may fail or be verified late."""


def summary_after(
    before: SaveSummary | None, new: CheckpointManifest, newest: Sequence[CheckpointManifest]
) -> SaveSummary:
    """Return the summary of a directory after one more checkpoint was verified.

    Args:
        before: the summary until now; None if there is none.
        new: manifest of the checkpoint that was verified.
        newest: manifests of the newest checkpoints, in any order.

    """
    before = before or SaveSummary(at=new.verified_at)
    times = sorted(one.saved_at for one in newest)
    gaps = sorted(later - earlier for earlier, later in pairwise(times))
    good = max((one for one in newest if one.is_good), key=lambda one: one.saved_at, default=None)
    found = replace(
        before,
        at=new.verified_at,
        interval_s=gaps[len(gaps) // 2].total_seconds() if gaps else before.interval_s,
        seconds=new.seconds,
        good=before.good + new.is_good,
        bad=before.bad + (not new.is_good),
    )
    if good is None:
        return found
    return replace(found, name=good.name, step=good.step, saved_at=good.saved_at)


def overdue_since(summary: SaveSummary, running_since: datetime) -> datetime | None:
    """Return when the next verified checkpoint became overdue, or will; None if not known.

    Args:
        summary: summary of the directory.
        running_since: time since which the job runs; a job that waits saves nothing.

    """
    if summary.interval_s is None:
        return None
    last = running_since if summary.saved_at is None else max(summary.saved_at, running_since)
    return last + OVERDUE_INTERVALS * timedelta(seconds=summary.interval_s)


def steps_at_risk(summary: SaveSummary, step: int | None) -> int | None:
    """Return the steps that a failure now would repeat; None if they are not known.

    Args:
        summary: summary of the directory.
        step: last step that the job reported.

    """
    if step is None or summary.step is None:
        return None
    return max(step - summary.step, 0)
