"""What supervisors report of the losses of their steps."""

from collections.abc import Container, Mapping
from typing import Final

from holdfast.adapters.slurm.commands.comment import CommentRequest, ReportedLoss
from holdfast.adapters.slurm.jobs.views import PREFIX
from holdfast.model.events import JobLossFault
from holdfast.model.jobs import LossAction
from holdfast.ports.events import EventSink

_RESPONSES: Final[Mapping[LossAction, str]] = {
    LossAction.ASK: "the job is still running; cancel it if its loss stays bad, or set"
    " HOLDFAST_LOSS_ACTION",
    LossAction.STOP: "its supervisor stops the step",
    LossAction.ROLLBACK: "its supervisor restarts the step from the checkpoint before",
    LossAction.SKIP: "its supervisor restarts the step from the checkpoint before, without it",
}


class LossReports:
    """Emits each report once. A new controller emits the last one of each job that runs again."""

    def __init__(self, events: EventSink) -> None:
        self._events = events
        self._emitted: dict[str, ReportedLoss] | None = None
        """By number of the job; None before the first call of ``emit``."""

    def emit(self, requests: Mapping[str, CommentRequest], ended: Container[str]) -> None:
        """Emit what is new in the Comments of jobs.

        Args:
            requests: Comments of all jobs that auto-resume, by number.
            ended: numbers of jobs that have ended; Slurm lists them for some minutes.

        """
        is_first, known = self._emitted is None, self._emitted or {}
        reported = {name: one.loss for name, one in requests.items() if one.loss is not None}
        self._emitted = reported
        for name, loss in reported.items():
            if known.get(name) == loss or (is_first and name in ended):
                continue
            self._events.emit(
                JobLossFault(
                    job=f"{PREFIX}{name}",
                    attempt=loss.attempt,
                    reason=loss.reason,
                    step=loss.step,
                    why=f"{loss.reason} at step {loss.step}; {_RESPONSES[loss.action]}",
                )
            )
