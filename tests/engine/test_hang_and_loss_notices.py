"""What is reported of an attempt that runs on: each kind under its own name, once per attempt."""

from dataclasses import replace

from holdfast.engine.job_notices import JobNotices
from holdfast.model.job_views import SlowRank
from holdfast.model.jobs import LossAction, LossFault
from holdfast.model.names import Reason
from tests.ports.builders import a_job
from tests.ports.fakes import FakeEvents

FAULT = LossFault(
    reason=Reason.LOSS_NOT_FINITE,
    step=3,
    evidence="the loss is nan at step 3",
    action=LossAction.ASK,
)


def test_each_notice_has_an_event_of_its_own_and_is_emitted_once() -> None:
    events = FakeEvents()
    notices = JobNotices(events)
    job = a_job(
        checkpoint_notice="iter_2 is broken",
        unwatched="no step",
        suspected_hang="seems to hang",
        straggler=SlowRank(text="rank 1 is slow"),
        loss_fault=FAULT,
    )

    notices.report(job)
    notices.report(job)

    assert events.names() == [
        "job.checkpoint_chosen", "job.unwatched", "job.hang_suspected", "job.straggler_found",
        "job.loss_fault",
    ]  # fmt: skip
    loss = events.reported[-1]
    assert (loss.attempt, loss.reason, loss.step) == (1, Reason.LOSS_NOT_FINITE, 3)
    assert loss.why.startswith("the loss is nan at step 3; the job is still running.")


def test_the_next_attempt_and_the_next_job_of_the_name_are_news() -> None:
    events = FakeEvents()
    notices = JobNotices(events)
    job = a_job(loss_fault=FAULT)

    notices.report(job)
    notices.report(replace(job, record=replace(job.record, attempt=2)))
    notices.forget_all_but(set())
    notices.report(replace(job, record=replace(job.record, attempt=2)))

    assert [event.attempt for event in events.reported] == [1, 2, 2]


def test_a_loss_that_stops_the_job_is_not_reported_here() -> None:
    events = FakeEvents()

    JobNotices(events).report(a_job(loss_fault=replace(FAULT, action=LossAction.STOP)))

    assert events.reported == []


def test_a_loss_that_more_ranks_report_later_is_reported_once() -> None:
    events = FakeEvents()
    notices = JobNotices(events)

    notices.report(a_job(loss_fault=FAULT))
    notices.report(a_job(loss_fault=replace(FAULT, evidence=f"all ranks: {FAULT.evidence}")))
    assert len(events.reported) == 1
    notices.report(a_job(loss_fault=replace(FAULT, step=4)))
    assert len(events.reported) == 2
