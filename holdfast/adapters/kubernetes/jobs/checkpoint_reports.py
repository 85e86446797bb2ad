"""Reports of the init containers that verify the checkpoints of jobs."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.decisions.crash_text import SHOWN_CHARS
from holdfast.decisions.termination_message import parse_termination_message
from holdfast.kit.units import one_line
from holdfast.model.events import CheckpointChosen
from holdfast.model.set_aside import SetAside
from holdfast.ports.events import EventSink

CHECKPOINT_GUARD: Final = "checkpoint-guard"
"""Name of the init container that verifies checkpoints; see ``holdfast checkpoint guard``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointReport:
    """Report of one pod."""

    lines: tuple[str, ...] = ()
    """Messages for people: what is broken, and which checkpoint is loaded."""

    moved: tuple[SetAside, ...] = ()
    """Checkpoints that it has moved."""


def checkpoint_report(status: Json) -> CheckpointReport:
    """Return the report in the status of a pod; an empty one if there is none."""
    for one in status.get("initContainerStatuses") or ():
        ended = (one.get("state") or {}).get("terminated")
        if one.get("name") == CHECKPOINT_GUARD and ended:
            lines, moved = parse_termination_message(ended.get("message") or "")
            return CheckpointReport(
                lines=tuple(one_line(line, SHOWN_CHARS) for line in lines), moved=moved
            )
    return CheckpointReport()


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
