from datetime import timedelta

from holdfast.apps.controller.job_metrics import JobMetrics, WatchedJobs
from holdfast.apps.controller.progress import Progress
from holdfast.model.events import AttemptKilled, AttemptStarted, AttemptStopped, JobFinished
from holdfast.model.jobs import FailureKind, JobPhase
from tests.ports.builders import NOW, a_job
from tests.ports.fakes import Calls, FakeClock, FakeJobs, FakeLeadership

SECOND = timedelta(seconds=1)


def text(metrics: JobMetrics) -> str:
    return "".join(metrics.families())


def a_metrics(*, leads: bool = True) -> JobMetrics:
    return JobMetrics(FakeLeadership(10 if leads else 0), FakeClock())


def stopped(kind: FailureKind) -> AttemptStopped:
    return AttemptStopped(job="a", attempt=1, kind=kind, reason="r", node="n", evidence="")


def test_every_outcome_and_every_kind_of_failure_begins_with_zero() -> None:
    reported = text(a_metrics())

    for kind in FailureKind:
        assert f'holdfast_job_failures_total{{kind="{kind}"}} 0\n' in reported
    for outcome in ("succeeded", "failed", "cancelled"):
        assert f'holdfast_jobs_finished_total{{outcome="{outcome}"}} 0\n' in reported


def test_attempts_failures_and_ends_are_counted() -> None:
    metrics = a_metrics()
    for event in (
        AttemptStarted(job="a", attempt=1, nodes=("n",)),
        stopped(FailureKind.HARDWARE),
        stopped(FailureKind.HARDWARE),
        stopped(FailureKind.APPLICATION),
        AttemptKilled(job="a", attempt=1),
        JobFinished(job="a", outcome=JobPhase.FAILED, reason="r"),
    ):
        metrics.emit(event)

    reported = text(metrics)

    assert "holdfast_job_attempts_total 1\n" in reported
    assert 'holdfast_job_failures_total{kind="hardware"} 2\n' in reported
    assert 'holdfast_job_failures_total{kind="application"} 1\n' in reported
    assert "holdfast_job_kills_total 1\n" in reported
    assert 'holdfast_jobs_finished_total{outcome="failed"} 1\n' in reported
    assert "holdfast_job_recoveries_total 0\n" in reported


def test_the_parts_of_a_recovery_add_up() -> None:
    metrics = a_metrics()
    for attempt in (2, 3):
        metrics.emit(
            AttemptStarted(
                job="a",
                attempt=attempt,
                nodes=("n",),
                stopped_in=SECOND,
                waited=10 * SECOND,
                started_in=100 * SECOND,
            )
        )

    reported = text(metrics)

    assert "holdfast_job_recoveries_total 2\n" in reported
    for part, seconds in (("stopping", 2), ("waiting", 20), ("starting", 200)):
        assert f'holdfast_job_recovery_seconds_total{{part="{part}"}} {seconds}\n' in reported


def test_jobs_are_shown_with_the_time_in_their_phase_by_the_leader_alone() -> None:
    running = a_job(record={"phase_since": NOW - 90 * SECOND})
    backend = FakeJobs((running,), Calls())
    for leads in (True, False):
        metrics = a_metrics(leads=leads)
        watched = WatchedJobs(backend, metrics.seen, Progress())
        assert watched.jobs() == (running,)
        shown = 'holdfast_job_phase_seconds{job_name="job-1",phase="running"} 90\n' in text(metrics)
        assert shown is leads
