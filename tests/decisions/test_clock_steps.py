"""Laws of records whose times are in the future."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.clock_steps import dated_back, is_ahead
from holdfast.model.health import Remedy, Urgency
from holdfast.model.jobs import AttemptRecord, Failure, FailureKind, JobPhase, JobRecord
from holdfast.model.nodes import NodeRecord, PastFault, Phase, Remediation
from tests.ports.builders import NOW

TICK = timedelta(microseconds=1)
times = st.sampled_from([-timedelta(hours=3), -TICK, timedelta(0), TICK, timedelta(hours=3)]).map(
    lambda step: NOW + step
)
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


def flat(value: Any) -> Iterator[Any]:
    """All values of a record that are no records, in order."""
    if is_dataclass(value):
        for field in fields(value):
            yield from flat(getattr(value, field.name))
    elif isinstance(value, tuple):
        for one in value:
            yield from flat(one)
    else:
        yield value


@given(job_records | node_records)
def test_a_corrected_record_has_no_time_in_the_future_and_is_else_unchanged(record) -> None:
    corrected = dated_back(record, NOW)

    if not is_ahead(record, NOW):
        assert corrected is record
        return
    for old, new in zip(flat(record), flat(corrected), strict=True):
        expected = min(old, NOW) if isinstance(old, datetime) else old
        assert new == expected
    assert not is_ahead(corrected, NOW)


@given(job_records | node_records)
def test_a_record_is_ahead_if_what_its_timeouts_count_from_is(record) -> None:
    at_rest = record.phase is Phase.CHECKING or (
        isinstance(record, JobRecord) and record.phase.is_final
    )

    assert not (at_rest and is_ahead(record, NOW))
    assert at_rest or record.phase_since <= NOW or is_ahead(record, NOW)


@pytest.mark.parametrize("since", [NOW - TICK, NOW + TICK])
@pytest.mark.parametrize("failed_at", [NOW, NOW + TICK])
def test_the_failure_after_which_an_attempt_settles_counts(since, failed_at) -> None:
    failure = Failure(kind=FailureKind.HARDWARE, reason="Cause", at=failed_at)
    record = JobRecord(phase=JobPhase.STOPPING, phase_since=since, failure=failure)

    assert is_ahead(record, NOW) == (max(since, failed_at) > NOW)


def test_a_delay_alone_is_in_the_future_rightly() -> None:
    record = JobRecord(
        phase=JobPhase.WAITING, phase_since=NOW - TICK, start_after=NOW + timedelta(minutes=1)
    )

    assert dated_back(record, NOW) is record
