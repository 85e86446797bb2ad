"""Laws of records whose times are in the future."""

from collections.abc import Iterator
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.clock_steps import TOLERANCE, dated_back, dated_forward, is_ahead
from holdfast.model.health import Remedy, Urgency
from holdfast.model.jobs import AttemptRecord, Failure, FailureKind, JobPhase, JobRecord
from holdfast.model.nodes import NodeRecord, PastFault, Phase, Remediation
from tests.ports.builders import NOW, a_record, a_remediation

TICK = timedelta(microseconds=1)
HOURS = timedelta(hours=3)
times = st.sampled_from(
    [-HOURS, -TICK, timedelta(0), TICK, TOLERANCE, TOLERANCE + TICK, HOURS]
).map(lambda step: NOW + step)
maybe = st.none() | times
failures = st.builds(
    Failure, kind=st.sampled_from(FailureKind), reason=st.just("Cause"), at=times, since=maybe
)
attempts = st.builds(
    AttemptRecord,
    attempt=st.just(1),
    placement=st.just(("node-1",)),
    started_at=times,
    stopped_at=times,
    failure=st.none() | failures,
)
job_records = st.builds(
    JobRecord,
    phase=st.sampled_from(JobPhase),
    phase_since=times,
    failure=st.none() | failures,
    started_at=maybe,
    attempts=st.lists(attempts, max_size=2).map(tuple),
    start_after=maybe,
)
remediations = st.builds(
    Remediation,
    incident_id=st.just("incident-1"),
    opened_at=times,
    condition=st.just("GpuFault"),
    reason=st.just("Cause"),
    remedy=st.sampled_from(Remedy),
    urgency=st.sampled_from(Urgency),
    ordered_at=maybe,
    retry_at=maybe,
)
pasts = st.builds(
    PastFault,
    opened_at=times,
    closed_at=times,
    reason=st.just("Cause"),
    remedy=st.sampled_from(Remedy),
)
node_records = st.builds(
    NodeRecord,
    phase=st.sampled_from(Phase),
    phase_since=times,
    remediation=st.none() | remediations,
    history=st.lists(pasts, max_size=2).map(tuple),
    cleared_at=maybe,
    replaced_at=st.lists(times, max_size=2).map(tuple),
    agent_silent_since=maybe,
)


IDENTIFYING = ("attempts", "history", "started_at", "running_at", "replaced_at", "cleared_at")
COUNTED = ("phase_since", "at", "opened_at", "ordered_at", "start_after", "retry_at")

RESTING = {
    *(JobPhase.STARTING, JobPhase.RUNNING, JobPhase.SUCCEEDED, JobPhase.FAILED),
    *(JobPhase.CANCELLED, Phase.SCHEDULABLE, Phase.CHECKING),
}
"""Phases whose times identify attempts or checks, or that have no timeout."""


def times_of(record: Any) -> Iterator[tuple[str, datetime | None]]:
    """Name and value of the times of a record, and of its failure and its remediation."""
    for field in fields(record):
        value = getattr(record, field.name)
        if field.name in ("failure", "remediation") and value is not None:
            yield from times_of(value)
        elif field.name in COUNTED:
            yield field.name, value


@given(job_records | node_records)
def test_a_corrected_record_counts_from_now_and_keeps_what_identifies_attempts(record) -> None:
    corrected = dated_back(record, NOW)

    if not is_ahead(record, NOW):
        assert corrected is record
        return
    for (name, old), (_, new) in zip(times_of(record), times_of(corrected), strict=True):
        assert new == (None if old is None else min(old, NOW)), name
    for name in IDENTIFYING:
        assert getattr(corrected, name, None) == getattr(record, name, None)
    assert not is_ahead(corrected, NOW)


@given(job_records | node_records, st.sampled_from([TOLERANCE + TICK, HOURS, 2 * HOURS]))
def test_after_a_step_forward_no_timeout_passes_earlier_and_none_counts_from_the_future(
    record, step
) -> None:
    moved = dated_forward(record, step, NOW)

    if record.phase in RESTING:
        assert moved is record
        return
    fixed = {"opened_at"} if isinstance(record, NodeRecord) else set()
    fixed |= {"phase_since"} if record.phase in (Phase.REBOOTING, Phase.REPLACING) else set()
    for (name, old), (_, new) in zip(times_of(record), times_of(moved), strict=True):
        later = None if old is None else max(old, min(old + step, NOW))
        assert new == (old if name in fixed else later), name
    for name in IDENTIFYING:
        assert getattr(moved, name, None) == getattr(record, name, None)
    assert is_ahead(moved, NOW) == is_ahead(record, NOW)


@pytest.mark.parametrize("phase", [*JobPhase, *Phase])
@pytest.mark.parametrize("ahead", [timedelta(0), TOLERANCE, TOLERANCE + TICK])
def test_what_starts_runs_or_is_checked_is_never_corrected(phase, ahead) -> None:
    kind = JobRecord if isinstance(phase, JobPhase) else NodeRecord

    record = kind(phase=phase, phase_since=NOW + ahead)

    assert is_ahead(record, NOW) == (ahead > TOLERANCE and phase not in RESTING)


@pytest.mark.parametrize("since", [NOW, NOW + HOURS])
@pytest.mark.parametrize("failed_at", [NOW, NOW + HOURS])
def test_the_failure_after_which_an_attempt_settles_counts(since, failed_at) -> None:
    failure = Failure(kind=FailureKind.HARDWARE, reason="Cause", at=failed_at)
    record = JobRecord(phase=JobPhase.STOPPING, phase_since=since, failure=failure)

    assert is_ahead(record, NOW) == (max(since, failed_at) > NOW)


@pytest.mark.parametrize("opened_at", [NOW, NOW + HOURS])
@pytest.mark.parametrize("ordered_at", [None, NOW, NOW + HOURS])
def test_the_order_of_a_repair_counts(opened_at, ordered_at) -> None:
    record = a_record(
        Phase.REPLACING, remediation=a_remediation(opened_at=opened_at, ordered_at=ordered_at)
    )

    assert is_ahead(record, NOW) == (NOW + HOURS in (opened_at, ordered_at))


def test_a_delay_alone_is_in_the_future_rightly() -> None:
    record = JobRecord(
        phase=JobPhase.WAITING, phase_since=NOW - TICK, start_after=NOW + timedelta(minutes=1)
    )

    assert dated_back(record, NOW) is record
