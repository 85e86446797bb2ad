"""What supervisors report of the losses and the progress of their steps."""

from collections.abc import Container, Mapping
from datetime import datetime
from typing import Final

from holdfast.adapters.slurm.commands.comment import CommentRequest
from holdfast.adapters.slurm.commands.comment_reports import (
    ReportedHang,
    ReportedLoss,
    ReportedStraggler,
)
from holdfast.adapters.slurm.commands.job_text import BatchJob
from holdfast.adapters.slurm.jobs.attempts import restarts_of
from holdfast.adapters.slurm.jobs.views import PREFIX
from holdfast.model.events import Event, JobHangSuspected, JobLossFault, JobStragglerFound
from holdfast.model.job_views import JobView, SlowRank
from holdfast.model.jobs import JobPhase, JobRecord, JobSpec, LossAction, Placing
from holdfast.ports.events import EventSink

_RESPONSES: Final[Mapping[LossAction, str]] = {
    LossAction.ASK: "the job is still running; cancel it if its loss stays bad, or set"
    " HOLDFAST_LOSS_ACTION",
    LossAction.STOP: "its supervisor stops the step",
    LossAction.ROLLBACK: "its supervisor restarts the step from the checkpoint before",
    LossAction.SKIP: "its supervisor restarts the step from the checkpoint before, without it",
}


def slow_job(job: BatchJob, request: CommentRequest, now: datetime) -> JobView | None:
    """Return the view of a job whose supervisor reports a straggler now; None if it does not.

    Only its name, its nodes and the straggler are known.
    """
    slow = request.straggler
    if slow is None or not job.is_at_work or restarts_of(slow.attempt) != job.restarts:
        return None
    record = JobRecord(
        phase=JobPhase.RUNNING, phase_since=now, attempt=slow.attempt, placement=job.nodes
    )
    return JobView(
        spec=JobSpec(name=f"{PREFIX}{job.id}", nodes=len(job.nodes), placing=Placing.SCHEDULER),
        record=record,
        straggler=SlowRank(text=_slow_text(slow), node=slow.node),
    )


_Report = ReportedLoss | ReportedHang | ReportedStraggler


class SupervisorReports:
    """Emits each report once. A new controller emits the last one of each job that runs again."""

    def __init__(self, events: EventSink) -> None:
        self._events = events
        self._emitted: dict[tuple[str, type[_Report]], _Report] | None = None
        """By number of the job; None before the first call of ``emit``."""

    def emit(self, requests: Mapping[str, CommentRequest], ended: Container[str]) -> None:
        """Emit what is new in the Comments of jobs.

        Args:
            requests: Comments of all jobs that auto-resume, by number.
            ended: numbers of jobs that have ended; Slurm lists them for some minutes.

        """
        is_first, known = self._emitted is None, self._emitted or {}
        reported = {
            (name, type(report)): report
            for name, one in requests.items()
            for report in (one.loss, one.hang, one.straggler)
            if report is not None
        }
        self._emitted = reported
        for (name, kind), report in reported.items():
            if known.get((name, kind)) == report or (is_first and name in ended):
                continue
            self._events.emit(_event(f"{PREFIX}{name}", report))


def _event(job: str, report: _Report) -> Event:
    if isinstance(report, ReportedLoss):
        return JobLossFault(
            job=job,
            attempt=report.attempt,
            reason=report.reason,
            step=report.step,
            why=f"{report.reason} at step {report.step}; {_RESPONSES[report.action]}",
        )
    if isinstance(report, ReportedStraggler):
        return JobStragglerFound(job=job, attempt=report.attempt, why=_slow_text(report))
    since = report.since.isoformat(timespec="seconds").replace("+00:00", "Z")
    last = "no step was reported" if report.step is None else f"no step after {report.step}"
    why = f"{last} since {since}; find the rank that the others wait for: holdfast slurm stacks"
    return JobHangSuspected(job=job, attempt=report.attempt, why=why)


def _slow_text(report: ReportedStraggler) -> str:
    return (
        f"the other ranks wait for one on {report.node}; the output of the job has its number: "
        "search it for StragglerFound"
    )
