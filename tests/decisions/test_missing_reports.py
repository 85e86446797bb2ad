"""An application is held responsible only when the agents had their chance to say otherwise."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.job_resume import ResumePolicy, decide_job
from holdfast.decisions.policy import JobPolicy, RemediationPolicy
from holdfast.model.actions import Retry, Wait
from holdfast.model.jobs import Failure, FailureKind, JobPhase
from tests.ports.builders import NOW, a_fault, a_job, a_node, by_name

ZERO, TICK = timedelta(0), timedelta(microseconds=1)
HEARTBEAT = timedelta(seconds=10)
SPANS = st.sampled_from([ZERO, TICK, timedelta(milliseconds=200), HEARTBEAT, timedelta(minutes=2)])
SKEWS = st.builds(lambda sign, span: sign * span, st.sampled_from([-1, 1]), SPANS)
POLICIES = st.builds(
    lambda settle, report_timeout: ResumePolicy(
        job=JobPolicy(settle=settle, report_timeout=report_timeout, app_backoff=ZERO),
        nodes=RemediationPolicy(),
    ),
    SPANS,
    SPANS,
)
KINDS = st.sampled_from(FailureKind)
REPORTS = st.none() | SKEWS


def decided(policy, kind, reports, elapsed, *, fault=False):
    """The action ``elapsed`` after the end of an attempt, by when the agents reported, from it."""
    failure = Failure(kind=kind, reason="RankExited", at=NOW, node="node-1")
    record = {"failure": failure, "placement": ("node-1", "node-2")}
    job = a_job(JobPhase.STOPPING, ranks=(), record=record)
    now = NOW + elapsed
    nodes = by_name(
        *(
            a_node(
                name=f"node-{number}",
                heartbeat_at=now,
                reported_at=None if at is None else NOW + at,
                faults=(a_fault(since=NOW),) if fault and number == 2 else (),
            )
            for number, at in enumerate(reports, start=1)
        )
    )
    return decide_job(job, nodes, policy, now)


def is_missing(at) -> bool:
    return at is not None and at <= ZERO


@given(POLICIES, st.tuples(REPORTS, REPORTS), SPANS)
def test_an_application_is_blamed_exactly_when_all_agents_reported_or_time_is_up(
    policy, reports, elapsed
) -> None:
    choice = decided(policy, FailureKind.APPLICATION, reports, elapsed)

    is_settled = elapsed >= policy.job.settle
    is_heard = not any(map(is_missing, reports)) or elapsed >= policy.job.report_timeout
    assert isinstance(choice, Retry) == (is_settled and is_heard)


@given(POLICIES, st.tuples(REPORTS, REPORTS), SPANS)
def test_the_wait_for_reports_ends_and_names_the_nodes(policy, reports, elapsed) -> None:
    choice = decided(policy, FailureKind.APPLICATION, reports, elapsed)

    if isinstance(choice, Wait):
        latest = NOW + max(policy.job.settle, policy.job.report_timeout)
        assert choice.until is not None
        assert NOW + elapsed < choice.until <= latest
        named = [f"node-{n}" for n, at in enumerate(reports, start=1) if is_missing(at)]
        if elapsed >= policy.job.settle:
            assert f"reports of {', '.join(named)}," in choice.why


@given(POLICIES, KINDS, st.tuples(REPORTS, REPORTS), SPANS, st.booleans())
def test_only_applications_wait_for_reports(policy, kind, reports, elapsed, fault) -> None:
    choice = decided(policy, kind, reports, elapsed, fault=fault)

    if (kind is not FailureKind.APPLICATION or fault) and elapsed >= policy.job.settle:
        assert isinstance(choice, Retry)
        if fault and kind is FailureKind.APPLICATION:
            assert choice.failure.kind is FailureKind.HARDWARE
