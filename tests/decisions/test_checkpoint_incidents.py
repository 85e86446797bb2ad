"""Incidents of checkpoints that were moved out of the way of a job."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.checkpoint_incidents import (
    JOB_LIMIT,
    next_steps,
    quarantine_id,
    quarantine_incidents,
)
from holdfast.decisions.policy import RemediationPolicy
from holdfast.decisions.termination_message import (
    MESSAGE_LIMIT,
    parse_termination_message,
    termination_message,
)
from holdfast.kit.serial import from_plain, to_plain
from holdfast.model.incidents import Incident
from holdfast.model.names import Reason
from holdfast.model.set_aside import SetAside
from tests.ports.builders import NOW

POLICY = RemediationPolicy(incident_retention=timedelta(days=90))
TICK = timedelta(microseconds=1)
ASIDE = SetAside(
    name="step_3",
    path="/ckpt.set-aside/step_3",
    why="damaged: __1_0.distcp has 1000 bytes instead of 2000",
    at=NOW - timedelta(minutes=1),
    folder="/ckpt",
    state="damaged",
    depth="sizes",
    problems=("__1_0.distcp has 1000 bytes instead of 2000",),
    step=3,
    size=12345,
    saved_at=NOW - timedelta(hours=1),
    job="uid-1",
    attempt=2,
    resumed="step_2",
    attempts=(1,),
)

times = st.datetimes(datetime(2001, 1, 1), datetime(2100, 1, 1)).map(  # noqa: DTZ001 - set below
    lambda at: at.replace(tzinfo=UTC)
)
numbers = st.integers(-(2**70), 2**70)
moves = st.builds(
    SetAside,
    name=st.text(max_size=300),
    path=st.text(max_size=1500),
    why=st.text(max_size=1500),
    at=times,
    folder=st.text(max_size=1500),
    state=st.sampled_from(["", "damaged", "incomplete", "suspected"]) | st.text(max_size=300),
    depth=st.text(max_size=300),
    problems=st.lists(st.text(max_size=400), max_size=8).map(tuple),
    step=st.none() | numbers,
    size=st.none() | numbers,
    saved_at=st.none() | times,
    job=st.text(max_size=300),
    attempt=st.none() | numbers,
    resumed=st.text(max_size=300),
    attempts=st.lists(numbers, max_size=30).map(tuple),
)


def incidents(*moved: SetAside, stored=(), now=NOW) -> tuple[Incident, ...]:
    return quarantine_incidents("team/llama", moved, stored, POLICY, now)


def test_an_incident_has_the_evidence_and_has_ended() -> None:
    [found] = incidents(ASIDE)

    assert (found.node, found.job, found.checkpoint) == ("", "team/llama", ASIDE)
    assert found.reason == Reason.CHECKPOINT_QUARANTINED
    assert found.message == (
        "step_3 at step 3: damaged: __1_0.distcp has 1000 bytes instead of 2000; moved to"
        " /ckpt.set-aside/step_3; the job resumes from step_2"
    )
    assert found.detected_at == found.quarantined_at == found.ended_at == ASIDE.at
    assert (found.subject, found.job_names) == ("step_3", ("team/llama",))


@pytest.mark.parametrize(
    "other",
    [
        {"job": "uid-2"},
        {"path": "/ckpt.set-aside/step_3.2"},
        {"saved_at": NOW},
        {"saved_at": None},
        {"at": ASIDE.at + TICK},
        {"name": "step_4"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_another_job_save_or_move_of_the_same_name_is_another_incident(other) -> None:
    assert len({one.id for one in incidents(ASIDE, replace(ASIDE, **other))}) == 2


@given(moved=st.lists(moves, max_size=5), now=times)
def test_a_move_that_is_read_again_adds_no_incident(moved, now) -> None:
    first = quarantine_incidents("job", moved, (), POLICY, now)
    again = [from_plain(SetAside, json.loads(json.dumps(to_plain(one)))) for one in moved]

    assert quarantine_incidents("job", again, first, POLICY, now) == ()
    assert {one.id for one in first} <= {quarantine_id(one) for one in moved}


@given(moved=moves, now=times)
def test_whatever_a_user_writes_an_incident_is_bounded_and_not_in_the_future(moved, now) -> None:
    for one in quarantine_incidents("job", [moved], (), POLICY, now):
        plain = to_plain(one.checkpoint)
        texts = [text for text in plain.values() if isinstance(text, str)]
        assert all(text.isprintable() and len(text) <= 1000 for text in texts + plain["problems"])
        whole = [plain[key] for key in ("step", "size", "attempt") if plain[key] is not None]
        assert all(0 <= number < 2**53 for number in whole + plain["attempts"])
        assert one.detected_at <= now
        assert len(one.message) < 4000
        assert from_plain(Incident, json.loads(json.dumps(to_plain(one)))) == one


@pytest.mark.parametrize(
    ("age", "is_recorded"),
    [(POLICY.incident_retention - TICK, True), (POLICY.incident_retention, False)],
)
def test_a_move_that_is_older_than_incidents_are_kept_is_not_recorded(age, is_recorded) -> None:
    assert bool(incidents(replace(ASIDE, at=NOW - age))) == is_recorded


def test_a_checkpoint_that_a_person_passed_over_is_no_incident() -> None:
    assert incidents(replace(ASIDE, state="")) == ()


def test_a_job_has_at_most_so_many_incidents() -> None:
    many = [replace(ASIDE, at=NOW - timedelta(minutes=minute)) for minute in range(JOB_LIMIT + 5)]
    of_others = [replace(one, id=f"x{one.id}", job="other") for one in incidents(*many)]

    stored = incidents(*many, stored=of_others)
    assert len(stored) == JOB_LIMIT
    assert incidents(*many, stored=stored) == ()
    assert len(incidents(*many, stored=stored[:-1])) == 1


def test_the_next_steps_name_the_checkpoint_where_it_is_now() -> None:
    again = replace(ASIDE, name="checkpoints/c_3", path="/ckpt.set-aside/checkpoints/c_3.2")

    show, back, delete = next_steps(replace(again, folder="/my ckpt"))

    assert show.endswith(": holdfast checkpoint show '/my ckpt' checkpoints/c_3.2")
    assert back.endswith(": holdfast checkpoint release '/my ckpt' checkpoints/c_3.2")
    assert delete.startswith("delete /ckpt.set-aside/checkpoints/c_3.2 ")


def test_a_record_of_an_earlier_release_can_be_read_and_inspected() -> None:
    old = from_plain(SetAside, {"name": "a", "path": "/a", "why": "x", "at": "2026-01-01T00:00Z"})

    assert incidents(old) == ()
    assert next_steps(old) == ("inspect /a",)


def test_a_termination_message_keeps_lines_and_records() -> None:
    message = termination_message(["one", "two"], [ASIDE, replace(ASIDE, name="step_4")])

    lines, moved = parse_termination_message(message.decode())

    assert lines == ("one", "two")
    assert moved == (ASIDE, replace(ASIDE, name="step_4"))


def test_a_termination_message_drops_text_before_records() -> None:
    message = termination_message(["x" * MESSAGE_LIMIT], [ASIDE])

    assert len(message) == MESSAGE_LIMIT
    assert parse_termination_message(message.decode())[1] == (ASIDE,)


printable = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=2000)


@given(lines=st.lists(printable, max_size=10), moved=st.lists(moves, max_size=5))
def test_a_termination_message_fits_and_has_no_partial_record(lines, moved) -> None:
    message = termination_message(lines, moved)

    _, found = parse_termination_message(message.decode("utf-8", "ignore"))

    assert len(message) <= MESSAGE_LIMIT
    assert {quarantine_id(one) for one in found} <= {quarantine_id(one) for one in moved}
    if moved and len(json.dumps(to_plain(moved[0]))) < 2500 and abs(moved[0].step or 0) < 2**60:
        assert quarantine_id(moved[0]) in {quarantine_id(one) for one in found}


@given(text=st.text(max_size=500) | st.text(max_size=100).map(lambda text: f"set aside: {text}"))
def test_any_termination_message_can_be_parsed(text) -> None:
    lines, moved = parse_termination_message(text)

    assert moved == ()
    assert all(line.strip() for line in lines)
