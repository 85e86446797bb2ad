"""What is stored can be read again, by this release, an older one and a newer one."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kit.serial import from_plain, to_plain
from holdfast.model.health import Fault, Finding, Remedy, Severity, Urgency
from holdfast.model.incidents import AffectedJob, Incident
from holdfast.model.jobs import AttemptRecord, Failure, FailureKind, JobPhase, JobRecord
from holdfast.model.nodes import CheckResult, NodeRecord, PastFault, Phase, Remediation
from holdfast.model.report import NodeReport

times = st.datetimes(timezones=st.just(UTC))
texts = st.text()
numbers = st.integers(0)
optional_times = st.none() | times
optional_numbers = st.none() | st.integers()


def tuples(items):
    return st.lists(items, max_size=2).map(tuple)


remediations = st.builds(
    Remediation,
    incident_id=texts,
    opened_at=times,
    condition=texts,
    reason=texts,
    remedy=st.sampled_from(Remedy),
    urgency=st.sampled_from(Urgency),
    repairs=numbers,
    ordered_at=optional_times,
    retry_at=optional_times,
    machine=texts,
    request_id=texts,
)
pasts = st.builds(
    PastFault, opened_at=times, closed_at=times, reason=texts, remedy=st.sampled_from(Remedy)
)
checks = st.builds(
    CheckResult,
    passed=st.booleans(),
    ended_at=times,
    detail=texts,
    measured=st.dictionaries(texts, st.floats(allow_nan=False), max_size=3),
)
node_records = st.builds(
    NodeRecord,
    phase=st.sampled_from(Phase),
    phase_since=times,
    remediation=st.none() | remediations,
    history=tuples(pasts),
    cleared_at=optional_times,
    checked_machine=texts,
    checks=tuples(checks),
)
failures = st.builds(
    Failure,
    kind=st.sampled_from(FailureKind),
    reason=texts,
    at=times,
    node=texts,
    evidence=texts,
    step=optional_numbers,
    incident_id=texts,
    cause=texts,
)
attempts = st.builds(
    AttemptRecord,
    attempt=numbers,
    placement=tuples(texts),
    started_at=times,
    stopped_at=times,
    first_step=optional_numbers,
    last_step=optional_numbers,
    failure=st.none() | failures,
)
job_records = st.builds(
    JobRecord,
    phase=st.sampled_from(JobPhase),
    phase_since=times,
    attempt=numbers,
    placement=tuples(texts),
    hardware_retries=numbers,
    app_retries=numbers,
    same_step_failures=numbers,
    best_step=optional_numbers,
    failure=st.none() | failures,
    started_at=optional_times,
    attempts=tuples(attempts),
    start_after=optional_times,
    reason=texts,
    kills=numbers,
)
incidents = st.builds(
    Incident,
    id=texts,
    node=texts,
    provider_id=texts,
    reason=texts,
    remedy=texts,
    message=texts,
    detected_at=times,
    quarantined_at=times,
    drained_at=optional_times,
    repaired_at=optional_times,
    checked_at=optional_times,
    released_at=optional_times,
    successor=texts,
    jobs=tuples(
        st.builds(
            AffectedJob,
            job=texts,
            attempt=numbers,
            stopped_at=times,
            resumed_at=optional_times,
            step=optional_numbers,
        )
    ),
)
evidence = {
    "family": texts,
    "condition": texts,
    "reason": texts,
    "severity": st.sampled_from(Severity),
    "remedy": st.sampled_from(Remedy),
    "message": texts,
    "code": optional_numbers,
    "device": texts,
    "urgency": st.sampled_from(Urgency),
}
reports = st.builds(
    NodeReport,
    node=texts,
    boot_id=texts,
    sequence=numbers,
    reported_at=times,
    faults=tuples(st.builds(Fault, since=times, count=numbers, **evidence)),
    notices=tuples(st.builds(Finding, observed_at=times, **evidence)),
)


@given(node_records | job_records | incidents | reports)
def test_every_record_survives_being_stored(record) -> None:
    text = json.dumps(to_plain(record))

    assert from_plain(type(record), json.loads(text)) == record


@given(node_records)
def test_the_same_record_gives_the_same_text(record) -> None:
    again = from_plain(NodeRecord, to_plain(record))

    assert json.dumps(to_plain(again)) == json.dumps(to_plain(record))


@dataclass(frozen=True, kw_only=True)
class Part:
    size: int


@dataclass(frozen=True, kw_only=True)
class Whole:
    name: str
    share: float = 0.5
    is_on: bool = False
    pause: timedelta = timedelta(0)
    at: datetime | None = None
    names: frozenset[str] = frozenset()
    parts: tuple[Part, ...] = ()


def test_times_are_reported_in_utc_and_durations_in_seconds() -> None:
    at = datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    whole = Whole(name="a", at=at, pause=timedelta(minutes=1, milliseconds=5))

    plain = to_plain(whole)

    assert (plain["at"], plain["pause"]) == ("2026-01-01T00:00:00+00:00", 60.005)
    assert from_plain(Whole, plain) == whole


def test_defaults_are_reported_and_sets_are_in_order() -> None:
    assert to_plain(Whole(name="a", names=frozenset("cab"))) == {
        "name": "a",
        "share": 0.5,
        "is_on": False,
        "pause": 0.0,
        "at": None,
        "names": ["a", "b", "c"],
        "parts": [],
    }


def test_what_an_older_release_left_out_takes_its_default() -> None:
    assert from_plain(Whole, {"name": "a"}) == Whole(name="a")


def test_what_a_newer_release_added_is_ignored() -> None:
    assert from_plain(Whole, {"name": "a", "color": "red"}) == Whole(name="a")


@pytest.mark.parametrize(
    "plain",
    [
        {},
        {"name": 1},
        {"name": None},
        {"name": "a", "is_on": 1},
        {"name": "a", "share": "much"},
        {"name": "a", "share": True},
        {"name": "a", "pause": "long"},
        {"name": "a", "at": "yesterday"},
        {"name": "a", "at": 5},
        {"name": "a", "parts": [{"size": True}]},
        {"name": "a", "parts": [{"size": "1"}]},
        {"name": "a", "parts": [7]},
        {"name": "a", "parts": 7},
        [],
        "text",
        7,
        None,
    ],
    ids=str,
)
def test_what_holds_no_such_value_is_refused(plain) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        from_plain(Whole, plain)


def test_an_unknown_phase_is_refused() -> None:
    plain = {"phase": "asleep", "phase_since": "2026-01-01T00:00:00+00:00"}

    with pytest.raises(ValueError, match="asleep"):
        from_plain(NodeRecord, plain)


def test_what_has_no_plain_form_is_not_guessed_at() -> None:
    with pytest.raises(TypeError, match="object cannot be serialized"):
        to_plain(object())


def test_mappings_are_reported_with_their_keys_as_text() -> None:
    assert to_plain({1: Remedy.REBOOT}) == {"1": "reboot"}


def test_a_whole_number_is_read_where_a_number_with_a_fraction_is_expected() -> None:
    plain = {"passed": True, "ended_at": "2026-01-01T00:00:00+00:00", "measured": {"gb_per_s": 4}}

    assert from_plain(CheckResult, plain).measured == {"gb_per_s": 4.0}


@pytest.mark.parametrize("plain", [[], "text", 3, None])
def test_what_is_no_mapping_is_no_record(plain) -> None:
    with pytest.raises(ValueError, match="CheckResult"):
        from_plain(CheckResult, plain)
