"""Finds bad losses that ranks report: in ``$HOLDFAST_PROGRESS_FILE`` or in their logs."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.adapters.host.progress_file import ReportReader
from holdfast.decisions.loss_faults import LossHistory, LossLimits, after_report
from holdfast.kit.appended_lines import file_size
from holdfast.model.jobs import LossFault
from holdfast.model.names import Reason

if TYPE_CHECKING:
    from holdfast.adapters.host.step_log import StepLog

_INTERVAL_S: Final = 1.0
_LOG_BYTES: Final = 1 << 16
"""Maximum bytes of a log that a check reads, so that it takes a few milliseconds."""


@dataclass(slots=True)
class _Reports:
    ranks: tuple[int, ...]
    """Local ranks that write there."""

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
        self._known: dict[int, str] = {}
        """Reason of the bad loss of each local rank that has been returned."""

    def begin(self, paths: Mapping[int, str], logs: Mapping[int, Sequence[Path]]) -> None:
        """Watch a new round, whose ranks have not started.

        Args:
            paths: progress files by local rank; ranks may share one.
            logs: logs by local rank.

        """
        self._known = {}
        sharing: defaultdict[str, list[int]] = defaultdict(list)
        for rank, path in sorted(paths.items()):
            sharing[path].append(rank)
        self._reports = [
            *(_Reports((*r,), _reader(path), LossHistory()) for path, r in sharing.items()),
            *(
                _Reports((rank,), _step_log(files), LossHistory())
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

    def found(self, *, is_last: bool = False) -> tuple[tuple[int, ...], LossFault] | None:
        """Return the earliest bad loss and the local ranks that have it; None if there is none.

        A rank is returned once, and once more if its loss has spiked before it is not finite.

        Args:
            is_last: whether a rank has ended, or all are about to: then only a loss that is not
                finite counts, because it may be the cause.

        """
        now = time.monotonic()
        if not is_last and now < self._check_at:
            return None
        self._check_at = now + _INTERVAL_S
        found = [
            (rank, fault)
            for rank, fault in self._faults()
            if self._known.get(rank) not in (fault.reason, Reason.LOSS_NOT_FINITE)
            and not (is_last and _is_finite(fault))
        ]
        if not found:
            return None
        _, first = min(found, key=lambda one: (_is_finite(one[1]), one[1].step, one[0]))
        same = (first.reason, first.step)
        ranks = tuple(sorted({rank for rank, one in found if (one.reason, one.step) == same}))
        self._known |= dict.fromkeys(ranks, first.reason)
        return ranks, first

    def _faults(self) -> Iterator[tuple[int, LossFault]]:
        for one in self._reports:
            for report in one.source.read():
                one.losses = after_report(one.losses, report, self._limits)
            if one.losses.fault is not None:
                for rank in one.ranks:
                    yield rank, one.losses.fault


def _is_finite(fault: LossFault) -> bool:
    return fault.reason != Reason.LOSS_NOT_FINITE


def _reader(path: str) -> ReportReader:
    return ReportReader(Path(path), offset=file_size(path))


def _step_log(files: Sequence[Path]) -> "StepLog":
    """Return the reader of a rank's logs."""
    from holdfast.adapters.host.step_log import StepLog  # noqa: PLC0415 - with --log-dir only

    return StepLog(*files, chunk=_LOG_BYTES, offsets=[file_size(str(path)) for path in files])
