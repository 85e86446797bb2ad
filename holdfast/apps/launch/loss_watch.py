"""Finds bad losses that ranks report: in ``$HOLDFAST_PROGRESS_FILE`` or in their logs."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.adapters.host.progress_file import ReportReader
from holdfast.decisions.loss_faults import LossHistory, LossLimits, after_report
from holdfast.model.jobs import LossFault
from holdfast.model.names import Reason

if TYPE_CHECKING:
    from holdfast.adapters.host.step_log import StepLog

_INTERVAL_S: Final = 1.0
_LOG_BYTES: Final = 1 << 16
"""Maximum bytes of a log that a check reads, so that it takes a few milliseconds."""


@dataclass(slots=True)
class _Reports:
    rank: int
    source: "ReportReader | StepLog"
    losses: LossHistory


class LossWatch:
    """Losses of the ranks of one round; lines that are there when it begins are of earlier ones.

    Each file has a history of its own: ranks that report their own losses differ.
    """

    def __init__(self, limits: LossLimits) -> None:
        self._limits = limits
        self._reports: list[_Reports] = []
        self._check_at = 0.0
        self._known: LossFault | None = None

    def begin(self, paths: Mapping[int, str], logs: Mapping[int, Sequence[Path]]) -> None:
        """Watch a new round, whose ranks have not started.

        Args:
            paths: progress files by local rank; ranks may share one.
            logs: logs by local rank.

        """
        self._known = None
        shared = {path: rank for rank, path in sorted(paths.items(), reverse=True)}
        self._reports = [
            *(_Reports(rank, _reader(path), LossHistory()) for path, rank in shared.items()),
            *(
                _Reports(rank, _step_log(files), LossHistory())
                for rank, files in logs.items()
                if files
            ),
        ]
        self._check_at = time.monotonic() + _INTERVAL_S

    def end(self) -> None:
        """Stop watching."""
        self._reports = []

    def next_call(self) -> float | None:
        """Return the monotonic time of the next call of ``found``; None if nothing is watched."""
        return self._check_at if self._reports else None

    def found(self, *, is_last: bool = False) -> tuple[int, LossFault] | None:
        """Return a bad loss and its local rank, once; None if there is none.

        Args:
            is_last: whether a rank has ended, or all are about to: then only a loss that is not
                finite counts, because it may be the cause.

        """
        now = time.monotonic()
        if not is_last and now < self._check_at:
            return None
        self._check_at = now + _INTERVAL_S
        found = sorted(
            self._faults(),
            key=lambda one: (one[1].reason != Reason.LOSS_NOT_FINITE, one[1].step, one[0]),
        )
        for rank, fault in found:
            is_finite = fault.reason != Reason.LOSS_NOT_FINITE
            if (self._known is not None or is_last) and is_finite:
                continue
            if self._known is not None and self._known.reason == fault.reason:
                continue
            self._known = fault
            return rank, fault
        return None

    def _faults(self) -> Iterator[tuple[int, LossFault]]:
        for one in self._reports:
            for report in one.source.read():
                one.losses = after_report(one.losses, report, self._limits)
            if one.losses.fault is not None:
                yield one.rank, one.losses.fault


def _reader(path: str) -> ReportReader:
    return ReportReader(Path(path), offset=_size(path))


def _step_log(files: Sequence[Path]) -> "StepLog":
    """Return the reader of a rank's logs."""
    from holdfast.adapters.host.step_log import StepLog  # noqa: PLC0415 - with --log-dir only

    return StepLog(*files, chunk=_LOG_BYTES, offsets=[_size(str(path)) for path in files])


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
