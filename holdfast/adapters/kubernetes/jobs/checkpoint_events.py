"""Events of the init containers that verify the checkpoints of jobs."""

from collections.abc import Iterable

from holdfast.adapters.kubernetes.jobs.checkpoint_reports import CheckpointReport
from holdfast.model.events import CheckpointChosen
from holdfast.ports.events import EventSink


class CheckpointReporting:
    """Emits the lines of each report once per process."""

    def __init__(self, events: EventSink) -> None:
        self._events = events
        self._reported: frozenset[str] = frozenset()

    def emit(self, reports: Iterable[tuple[str, CheckpointReport, str, int]]) -> None:
        """Emit new reports.

        Args:
            reports: UID of each pod, its report, and name and attempt of its job.

        """
        reports = [one for one in reports if one[1].lines]
        for uid, report, job, attempt in reports:
            for line in report.lines if uid not in self._reported else ():
                self._events.emit(CheckpointChosen(job=job, attempt=attempt, why=line))
        self._reported = frozenset(uid for uid, *_ in reports)
