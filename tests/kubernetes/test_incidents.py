"""Incidents as objects."""

import json
from dataclasses import replace
from datetime import UTC, timedelta

import pytest
from controlled import controlled, install, installed
from hypothesis import given
from hypothesis import strategies as st
from node_objects import merged
from real_cluster import until

from holdfast.adapters.kubernetes.nodes.incidents import incident_object, incident_of, object_name
from holdfast.decisions.lifecycle import incident_id
from holdfast.model.errors import BackendError
from holdfast.model.incidents import AffectedJob, Incident
from holdfast.model.set_aside import SetAside
from tests.ports.builders import NOW

__all__ = ["installed"]

times = st.datetimes(timezones=st.just(UTC))
maybe = st.none() | times
touches = st.builds(
    AffectedJob,
    job=st.text(),
    attempt=st.integers(0),
    stopped_at=times,
    resumed_at=maybe,
    step=st.none() | st.integers(),
)
moves = st.builds(
    SetAside,
    name=st.text(),
    path=st.text(),
    why=st.text(),
    at=times,
    problems=st.lists(st.text(), max_size=2).map(tuple),
    step=st.none() | st.integers(),
    saved_at=maybe,
    attempts=st.lists(st.integers(), max_size=2).map(tuple),
)
incidents = st.builds(
    Incident,
    job=st.text(),
    checkpoint=st.none() | moves,
    id=st.text(),
    node=st.text(),
    provider_id=st.text(),
    reason=st.text(),
    remedy=st.sampled_from(["reboot", "replace"]),
    message=st.text(),
    detected_at=times,
    quarantined_at=times,
    drained_at=maybe,
    repaired_at=maybe,
    checked_at=maybe,
    released_at=maybe,
    vanished_at=maybe,
    successor=st.text(),
    successor_id=st.text(),
    check_remarks=st.text(),
    jobs=st.lists(touches, max_size=2).map(tuple),
)
OPEN = Incident(
    id="node-1-20260101T120000.000",
    node="node-1",
    provider_id="i-1",
    reason="SomeReason",
    remedy="reboot",
    detected_at=NOW,
    quarantined_at=NOW,
)

CHECKPOINT = Incident(
    id="checkpoint-0123456789ab-20260101T120000.000",
    job="pytorchjob/team/llama",
    checkpoint=SetAside(
        name="step_3",
        path="/ckpt.set-aside/step_3",
        why="damaged: too short",
        at=NOW,
        state="damaged",
        problems=("a is too short",),
        step=3,
        size=2**40,
        saved_at=NOW,
        attempts=(1, 2),
    ),
    reason="CheckpointQuarantined",
    remedy="none",
    detected_at=NOW,
    quarantined_at=NOW,
)


@given(incidents)
def test_an_incident_is_read_as_it_was_written(incident) -> None:
    assert incident_of(json.loads(json.dumps(incident_object(incident)))) == incident


@given(incidents, incidents)
def test_a_patch_leaves_nothing_of_what_was_there(before, after) -> None:
    stored = merged(incident_object(before), incident_object(after))

    assert incident_of(stored) == after


def test_an_incident_of_an_earlier_release_is_read() -> None:
    stored = incident_object(OPEN)
    old = {key: value for key, value in stored["spec"].items() if key not in ("job", "checkpoint")}

    assert incident_of({**stored, "spec": old}) == OPEN


def test_an_incident_of_a_checkpoint_is_over_also_where_an_old_definition_drops_the_evidence() -> (
    None
):
    whole = incident_object(CHECKPOINT)
    kept = {key: value for key, value in whole["spec"].items() if key not in ("job", "checkpoint")}

    assert whole["status"] == {"phase": "Quarantined", "took": None}
    assert incident_of({**whole, "spec": kept}).ended_at == CHECKPOINT.quarantined_at


@given(st.text(max_size=300), st.text(max_size=300))
def test_every_id_has_a_name_of_its_own_that_the_api_takes(one, other) -> None:
    first, second = object_name(one), object_name(other)

    assert 0 < len(first) <= 253
    assert all(part and part.strip("-") == part for part in first.split("."))
    assert set(first) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.")
    if one.lower() != other.lower():
        assert first != second


def test_the_ids_that_we_give_stay_readable() -> None:
    name = object_name(incident_id("ip-10-0-0-1.ec2.internal", NOW))

    assert name == "ip-10-0-0-1.ec2.internal-20260101t120000.000"


@pytest.mark.parametrize(
    ("changes", "phase", "took"),
    [
        ({}, "Quarantined", None),
        ({"drained_at": NOW}, "Drained", None),
        ({"drained_at": NOW, "repaired_at": NOW}, "Repaired", None),
        ({"repaired_at": NOW, "checked_at": NOW}, "Checked", None),
        ({"released_at": NOW + timedelta(seconds=200)}, "Released", "3m20s"),
        ({"vanished_at": NOW + timedelta(seconds=5)}, "Vanished", "5s"),
    ],
)
def test_what_people_see_follows_from_the_times(changes, phase, took) -> None:
    assert incident_object(replace(OPEN, **changes))["status"] == {"phase": phase, "took": took}


@pytest.mark.parametrize("damage", [{}, {"spec": {}}, {"spec": {"id": 3}}])
def test_a_damaged_object_is_named(damage) -> None:
    with pytest.raises(BackendError, match="the incident x is damaged"):
        incident_of({"metadata": {"name": "x"}, **damage})


# on the real API server


@pytest.fixture
def one(installed, cluster):
    with controlled(cluster) as one:
        yield one


def test_people_list_them_with_kubectl(one) -> None:
    one.incidents.put(OPEN)
    one.incidents.put(replace(OPEN, released_at=NOW + timedelta(minutes=2), successor="node-2"))

    head, row = one.real.kubectl("get", "inc", "-o", "wide").splitlines()

    titles = ["NAME", "NODE", "REASON", "REMEDY", "PHASE", "TOOK", "AGE", "MESSAGE", "SUCCESSOR"]
    assert head.split() == [*titles, "CHECKPOINT", "JOB"]
    assert row.split()[:6] == [
        "node-1-20260101t120000.000", "node-1", "SomeReason", "reboot", "Released", "2m",
    ]  # fmt: skip
    assert "node-2" in row.split()


def test_an_incident_of_a_checkpoint_is_stored_with_its_evidence(one) -> None:
    one.incidents.put(CHECKPOINT)
    with controlled(one.real) as other:
        other.incidents.put(CHECKPOINT)

    assert one.incidents.list_incidents() == (CHECKPOINT,)
    shown = one.real.kubectl("get", "inc", "-o", "wide")
    assert "step_3" in shown
    assert "pytorchjob/team/llama" in shown


def test_a_time_that_did_not_hold_is_taken_back(one) -> None:
    one.incidents.put(replace(OPEN, repaired_at=NOW))
    one.incidents.put(OPEN)

    (found,) = one.incidents.list_incidents()
    assert found == OPEN


def test_another_process_reads_what_this_one_wrote_and_goes_on(one) -> None:
    one.incidents.put(replace(OPEN, message="first"))

    with controlled(one.real) as other:
        assert other.incidents.get(OPEN.id) == replace(OPEN, message="first")
        other.incidents.put(replace(OPEN, message="second"))

        assert [i.message for i in other.incidents.list_incidents()] == ["second"]


def test_an_incident_that_somebody_deletes_meanwhile_is_written_again(one) -> None:
    one.incidents.put(OPEN)
    one.real.kubectl("delete", "incidents", "--all")

    one.incidents.put(replace(OPEN, drained_at=NOW))

    assert one.incidents.list_incidents() == (replace(OPEN, drained_at=NOW),)


def test_an_object_of_another_id_is_not_the_incident(one) -> None:
    one.incidents.put(replace(OPEN, id="A"))

    with controlled(one.real) as other:
        assert other.incidents.get("a") is None
        assert other.incidents.get("A") is not None


def test_a_crd_that_is_not_installed_is_named(cluster, one) -> None:
    cluster.kubectl("delete", "crd", "incidents.holdfast.dev")

    def is_named() -> bool:
        with pytest.raises(BackendError) as caught:
            one.incidents.list_incidents()
        return "install the CustomResourceDefinition incidents.holdfast.dev" in str(caught.value)

    try:
        until(is_named)
        with pytest.raises(BackendError, match="install the CustomResourceDefinition"):
            one.incidents.put(OPEN)
        assert one.incidents.get(OPEN.id) is None
    finally:
        install(cluster)
