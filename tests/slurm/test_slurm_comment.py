"""What a job's Comment asks for."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.slurm.commands.comment import (
    MAX_RETRY_LIMIT,
    CommentRequest,
    Key,
    RequeueRequest,
    changed,
    noted,
    parse,
    requeue_request,
    restart_reason,
)
from holdfast.adapters.slurm.commands.comment_reports import (
    ReportedHang,
    ReportedLoss,
    ReportedProgress,
    ReportedStraggler,
    loss_fault,
    progress,
    straggler,
    suspected_hang,
)
from holdfast.adapters.slurm.jobs.supervisor_reports import SupervisorReports
from holdfast.decisions.step_restart import RestartMode
from holdfast.model.events import JobHangSuspected, JobLossFault
from holdfast.model.jobs import LossAction, LossFault
from holdfast.model.names import Reason
from tests.ports.fakes import FakeEvents


def test_a_comment_without_our_words_says_nothing() -> None:
    for comment in ("", "nightly run", "a=b project=llama", "{}", '{"x": 1}', "{broken"):
        assert parse(comment) == CommentRequest()


def test_our_words_are_read_among_those_of_others() -> None:
    request = parse(
        "project=llama auto-resume=1  max-retry=3 mode=swap checkpoint=/fsx/c skip_checks"
    )

    assert request == CommentRequest(
        auto_resume=True, max_retry=3, mode=RestartMode.SWAP, checkpoint="/fsx/c"
    )


def test_the_last_of_two_words_counts() -> None:
    assert parse("auto-resume=1 auto-resume=0").auto_resume is False


def test_the_supervisor_may_ask_for_the_requeue() -> None:
    assert parse("mode=step requeue-request=requeue").requests_requeue(3)
    assert not parse("mode=step").requests_requeue(0)
    assert not parse("requeue-request=beer").requests_requeue(0)


@pytest.mark.parametrize(
    ("comment", "resume", "retries"),
    [
        ('{"APS": {"auto_resume_mode": "requeue", "max_requeue_times": 1}}', True, 1),
        ('{"APS": {"auto_resume_mode": "requeue"}}', True, None),
        ('{"APS": {"auto_resume_mode": "none"}}', False, None),
        ('{"APS": {"auto_resume_mode": "requeue"}, "holdfast": {"max-retry": 7}}', True, 7),
        ('{"APS": {"max_requeue_times": 1}} auto-resume=1', True, 1),
        ('{"APS": 3}', None, None),
    ],
)
def test_nvidias_form_is_read(comment: str, resume: bool | None, retries: int | None) -> None:
    request = parse(comment)

    assert (request.auto_resume, request.max_retry) == (resume, retries)
    assert request.rejected == ()


@pytest.mark.parametrize(
    ("comment", "key"),
    [
        ("auto-resume=yes", "auto-resume"),
        ("auto-resume=", "auto-resume"),
        ("auto-resume=-1", "auto-resume"),
        ("Auto_Resume=1", "Auto_Resume"),
        (f"max-retry={MAX_RETRY_LIMIT + 1}", "max-retry"),
        ("max-retry=³", "max-retry"),
        ("mode=fast", "mode"),
        ("requeue-request=swap", "requeue-request"),
        ("checkpoint=relative/path", "checkpoint"),
        ('{"APS": {"auto_resume_mode": "fly"}}', "auto-resume"),
        ('{"holdfast": {"mode": ["x"]}}', "mode"),
    ],
)
def test_what_cannot_be_used_is_rejected_and_not_guessed(comment: str, key: str) -> None:
    request = parse(comment)

    assert [one.key for one in request.rejected] == [key]
    assert CommentRequest(rejected=request.rejected) == request


def test_a_change_keeps_the_words_of_others() -> None:
    comment = "project=llama  auto-resume=1 mode=step x-mode=step"

    requested = changed(comment, {Key.REQUEUE_REQUEST: "requeue", Key.MODE: None})

    assert requested == "project=llama  auto-resume=1 x-mode=step requeue-request=requeue"
    assert changed("auto-resume=1", {Key.AUTO_RESUME: None}) == ""


def test_json_stays_json() -> None:
    comment = '{"APS": {"auto_resume_mode": "requeue"}}'

    requested = changed(comment, {Key.REQUEUE_REQUEST: "requeue"})

    assert json.loads(requested) == {
        **json.loads(comment),
        "holdfast": {"requeue-request": "requeue"},
    }
    assert json.loads(changed(requested, {Key.REQUEUE_REQUEST: None})) == json.loads(comment)


def test_a_value_that_cannot_be_read_again_is_not_written() -> None:
    with pytest.raises(ValueError, match="without spaces, got '/a b'"):
        changed("", {Key.CHECKPOINT: "/a b"})


@pytest.mark.parametrize("comment", ["", "team=a auto-resume=1", '{"APS": {"x": 1}} mode=step'])
@given(restarts=st.integers(0, 10**9 - 1), seconds=st.integers(0, 4 * 10**9))
def test_a_request_for_a_requeue_is_for_one_run(comment: str, restarts: int, seconds: int) -> None:
    since = datetime.fromtimestamp(seconds, UTC)
    request = parse(changed(comment, {Key.REQUEUE_REQUEST: requeue_request(restarts, since)}))

    assert request.requeue == RequeueRequest(restarts=restarts, since=since)
    assert request.requests_requeue(restarts)
    assert not request.requests_requeue(restarts + 1)
    assert request.rejected == ()


@given(
    st.sampled_from(["", "team=a", '{"APS": {"x": 1}}']),
    st.integers(0, 10**9 - 1), st.text(max_size=120), st.text(max_size=120),
)  # fmt: skip
def test_why_a_run_began_is_known_to_that_run_alone(
    comment: str, restarts: int, reason: str, node: str
) -> None:
    why = restart_reason(restarts, reason, node)
    request = parse(changed(comment, {Key.RESTART_REASON: why}))

    assert request.restart_reason_of(restarts) == why.split(":")[1]
    assert request.restart_reason_of(restarts + 1) == ""
    assert restart_reason(1, "NodeLost", "node7") == "1:NodeLost:node7"


@given(
    st.sampled_from(["", "team=a mode=step", '{"APS": {"x": 1}}']),
    st.integers(0, 10**13 - 1), st.integers(0, 10**18 - 1), st.sampled_from(LossAction),
    st.sampled_from([Reason.LOSS_NOT_FINITE, Reason.LOSS_SPIKED]),
)  # fmt: skip
def test_a_reported_loss_is_read_as_written(
    comment: str, attempt: int, step: int, action: LossAction, reason: Reason
) -> None:
    fault = LossFault(reason=reason, step=step, evidence="it is nan", action=action)
    request = parse(changed(comment, {Key.LOSS_FAULT: loss_fault(attempt, fault)}))

    assert request.loss == ReportedLoss(attempt=attempt, reason=reason, step=step, action=action)
    assert request.rejected == ()
    assert request.mode == parse(comment).mode


@pytest.mark.parametrize("value", ["1:LossNotFinite:2:never", "1:RankExited:2:ask", ":::", "x"])
def test_a_loss_that_no_supervisor_reports_is_rejected(value: str) -> None:
    request = parse(f"loss-fault={value}")

    assert request.loss is None
    assert [one.key for one in request.rejected] == ["loss-fault"]


def a_request(attempt: int, step: int) -> CommentRequest:
    return parse(f"auto-resume=1 loss-fault={attempt}:LossNotFinite:{step}:skip")


def test_each_report_is_emitted_once_and_the_next_job_of_a_number_is_another() -> None:
    events = FakeEvents()
    reports = SupervisorReports(events)

    for requests in (
        {"7": a_request(0, 5), "8": parse("auto-resume=1"), "9": a_request(0, 3)},
        {"7": a_request(0, 5)},
        {"7": a_request(1, 5)},
        {},
        {"7": a_request(1, 5)},
    ):
        reports.emit(requests, {"7", "9"} if "9" not in requests else {"9"})

    assert [(one.job, one.attempt, one.step) for one in events.reported] == [
        ("job/7", 0, 5), ("job/7", 1, 5), ("job/7", 1, 5),
    ]  # fmt: skip
    assert events.reported[0].why.startswith("LossNotFinite at step 5; its supervisor restarts")


@given(
    st.sampled_from(["", "team=a mode=step", '{"APS": {"x": 1}}']),
    st.integers(0, 10**13 - 1), st.none() | st.integers(0, 10**18 - 1), st.integers(0, 10**10),
)  # fmt: skip
def test_a_suspected_hang_is_read_as_written(
    comment: str, attempt: int, step: int | None, seconds: int
) -> None:
    hang = ReportedHang(attempt=attempt, step=step, since=datetime.fromtimestamp(seconds, UTC))
    written = changed(comment, {Key.SUSPECTED_HANG: suspected_hang(hang)})

    assert parse(written).hang == hang
    assert parse(written).rejected == ()
    assert parse(changed(written, {Key.SUSPECTED_HANG: None})) == parse(comment)


@given(
    st.sampled_from(["", "team=a mode=step", '{"APS": {"x": 1}}']),
    st.integers(0, 10**13 - 1), st.integers(0, 10**18 - 1), st.floats(0, 10**6),
)  # fmt: skip
def test_reported_progress_is_read_as_written(
    comment: str, attempt: int, step: int, rate: float
) -> None:
    reported = ReportedProgress(attempt=attempt, step=step, steps_per_second=rate)
    found = parse(changed(comment, {Key.PROGRESS: progress(reported)})).progress

    assert found is not None
    assert (found.attempt, found.step) == (attempt, step)
    assert found.steps_per_second == pytest.approx(rate, abs=1e-6)


@pytest.mark.parametrize("value", ["1:2", "x:2:3", "1:2:99999999999999", "::"])
def test_a_hang_that_no_supervisor_reports_is_rejected(value: str) -> None:
    request = parse(f"suspected-hang={value}")

    assert request.hang is None
    assert [one.key for one in request.rejected] == ["suspected-hang"]


def test_a_loss_and_a_hang_of_a_job_are_both_emitted_once() -> None:
    events = FakeEvents()
    reports = SupervisorReports(events)
    loss, hang = "loss-fault=0:LossNotFinite:5:ask", "suspected-hang=0:12:1767225600"
    start = "suspected-hang=1::1767225600"

    for comment in (loss, f"{loss} {hang}", f"{loss} {hang}", loss, f"{loss} {hang}", start):
        reports.emit({"7": parse(f"auto-resume=1 {comment}")}, set())

    assert [type(one) for one in events.reported] == [JobLossFault, *[JobHangSuspected] * 3]
    assert events.reported[1].why.startswith("no step after 12 since 2026-01-01T00:00:00Z; find")
    assert events.reported[3].why.startswith("no step was reported since 2026-01-01T00:00:00Z")


@given(
    st.sampled_from(["", "team=a auto-resume=1", '{"APS": {"max_requeue_times": 2}} mode=step']),
    st.text(max_size=60), st.text(max_size=60),
)  # fmt: skip
def test_a_note_changes_no_word_and_the_last_one_stands(comment: str, one: str, two: str) -> None:
    after = noted(noted(comment, one), f"auto-resume=0 {two}")

    assert parse(after) == parse(comment)
    assert after.count("auto-resume:0") == 1
    assert parse(noted(after, "")) == parse(comment)
    assert "holdfast" not in noted(after, "")
    changes = changed(after, {Key.CHECKPOINT: "/c"})
    assert parse(changes).checkpoint == "/c"
    assert "auto-resume:0" in changes


@given(st.text(max_size=60))
def test_no_comment_is_too_strange(text: str) -> None:
    assert parse(text) == parse(text)


@given(
    st.lists(st.sampled_from(["a=b", "mode=step", '{"APS": 1}', "auto-resume=0", "x"]), max_size=5)
)
def test_what_is_changed_is_read_so_and_the_rest_as_before(words: list[str]) -> None:
    before = " ".join(words)
    after = changed(before, {Key.AUTO_RESUME: "1", Key.CHECKPOINT: "/c"})

    assert (parse(after).auto_resume, parse(after).checkpoint) == (True, "/c")
    assert parse(after).mode == parse(before).mode
    again = changed(after, {Key.AUTO_RESUME: "1", Key.CHECKPOINT: "/c"})
    assert parse(again) == parse(after)


@given(
    st.sampled_from(["", "team=a", '{"APS": {"x": 1}}']),
    st.integers(0, 10**13 - 1),
    st.from_regex(r"[A-Za-z0-9_.-]{1,64}", fullmatch=True),
)
def test_a_straggler_is_read_as_written(comment: str, attempt: int, node: str) -> None:
    reported = ReportedStraggler(attempt=attempt, node=node)
    request = parse(changed(comment, {Key.STRAGGLER: straggler(reported)}))

    assert request.straggler == reported
    assert request.rejected == ()


@pytest.mark.parametrize("value", ["", "1", "1:", ":a", "x:a", "1:a:b", f"1:{'a' * 65}", "1:[a]"])
def test_a_straggler_that_no_supervisor_reports_is_rejected(value: str) -> None:
    request = parse(f"straggler={value}")

    assert request.straggler is None
    assert [one.key for one in request.rejected] == ["straggler"]
