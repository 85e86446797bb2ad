import sqlite3
from datetime import UTC, datetime, timedelta

import pytest
from written_runs import LINE, machine, node

from holdfast.apps.exit_codes import ExitCode
from holdfast.model.health import Remedy, Urgency
from holdfast.model.incidents import AffectedJob, Incident
from holdfast.model.names import Condition, Reason
from holdfast.model.nodes import NodeRecord, Phase, Remediation
from holdfast.model.set_aside import SetAside

DETECTED = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return DETECTED + timedelta(seconds=seconds)


def incident(number: int = 1, stamp: str = "20260102T030405.700", **fields) -> Incident:
    values = {
        "id": f"{node(number)}-{stamp}",
        "node": node(number),
        "provider_id": machine(number),
        "reason": Reason.XID_REPLACE,
        "remedy": "replace",
        "message": LINE,
        "detected_at": DETECTED,
        "quarantined_at": after(0.022),
        **fields,
    }
    return Incident(**values)


TOUCH = AffectedJob(job="train", attempt=3, stopped_at=after(0.03), resumed_at=after(1.28), step=41)
WHOLE = incident(
    drained_at=after(1), repaired_at=after(61), released_at=after(91), successor=node(2),
    jobs=(TOUCH,),
)  # fmt: skip


def test_list_shows_the_incidents_of_all_runs_the_newest_last(runs) -> None:
    first = runs.add("a", is_active=False)
    second = runs.add("b")
    first.put(incident(0, "20260102T040000.000", quarantined_at=after(3600)))
    first.put(WHOLE)
    second.put(incident(2, "20260102T033000.000", quarantined_at=after(1800)))

    shown = runs.call("incidents", "list", "-o", "json").json
    listed = runs.call("incidents", "list").out.splitlines()

    assert [(one["run"], one["node"]) for one in shown] == [
        ("a", node(1)),
        ("b", node(2)),
        ("a", node(0)),
    ]
    assert listed[1].split()[:5] == [
        "030405.700",
        machine(1),
        Reason.XID_REPLACE,
        "replace",
        "released",
    ]
    assert listed[1].split()[-2:] == ["train", "1m31s"]
    assert listed[2].split()[-2:] == ["-", "-"]


def test_list_of_one_run_leaves_out_the_others(runs) -> None:
    runs.add("a").put(incident(1))
    runs.add("b").put(incident(2))

    listed = runs.call("incidents", "list", "--run", "b", "-o", "wide")

    assert node(1) not in listed.out
    assert incident(2).id in listed.out
    assert LINE in listed.out


def test_json_gives_every_field_and_what_follows_from_them(runs) -> None:
    runs.add("train").put(WHOLE)

    shown = runs.call("incidents", "show", WHOLE.id, "-o", "json").json

    assert shown["took_s"] == 91
    assert (shown["state"], shown["run"]) == ("released", "train")
    assert shown["successor"] == node(2)
    assert shown["jobs"][0]["step"] == 41
    assert set(Incident.__dataclass_fields__) < set(shown)


@pytest.mark.parametrize(
    ("is_active", "holder", "state"),
    [(True, 1, "draining"), (True, 2, "draining"), (False, 1, "open")],
)
def test_an_incident_that_is_not_over_is_where_its_node_is(runs, is_active, holder, state) -> None:
    one = incident()
    store = runs.add("train", nodes=(), is_active=is_active)
    remediation = Remediation(
        incident_id=one.id,
        opened_at=DETECTED,
        condition=Condition.NVIDIA_TERMINATE,
        reason=one.reason,
        remedy=Remedy.REPLACE,
        urgency=Urgency.IMMEDIATE,
    )
    record = NodeRecord(phase=Phase.DRAINING, phase_since=DETECTED, remediation=remediation)
    store.add_node(node(holder), machine(holder), "", record)
    store.put(one)

    shown = runs.call("incidents", "list", "-o", "json").json[0]

    assert (shown["state"], shown["took_s"]) == (state, None)


def test_show_reports_the_remediation_with_the_time_between_its_points(runs) -> None:
    runs.add("train").put(WHOLE)

    output = runs.call("incidents", "show", WHOLE.id).out
    table = [line.split() for line in output.partition("Timeline\n")[2].splitlines()]

    assert [row[0] for row in table[1:6]] == [
        "detected", "quarantined", "drained", "repaired", "released",
    ]  # fmt: skip
    assert [row[2:] for row in table[1:6]] == [
        ["-", "0s"],
        ["22ms", "22ms"],
        ["978ms", "1s"],
        ["1m", "1m1s"],
        ["30s", "1m31s"],
    ]
    assert table[-1][:3] == ["train", "3", "41"]
    assert table[-1][-1] == "1.2s"
    assert LINE in output


def test_show_tells_what_to_do_next(runs) -> None:
    store = runs.add("train")
    store.put(incident())
    store.put(incident(2))
    waiting = Remediation(
        incident_id=incident(2).id,
        opened_at=DETECTED,
        condition=Condition.NVIDIA_TERMINATE,
        reason=Reason.XID_REPLACE,
        remedy=Remedy.REPLACE,
        urgency=Urgency.IMMEDIATE,
    )
    record = NodeRecord(phase=Phase.QUARANTINED, phase_since=DETECTED, remediation=waiting)
    store.put_node(node(2), record)
    [going] = runs.call("incidents", "show", node(1), "-o", "json").json["next"]

    assert going == f"no action required yet: {node(1)} is schedulable"
    shown = runs.call("incidents", "show", node(2)).out
    assert f"{node(2)}: replace for {Reason.XID_REPLACE} has not started" in shown
    assert f"holdfast nodes replace {node(2)}" in shown
    store.hold(node(2), "the vendor is at it")
    assert f"holdfast nodes unhold {node(2)}" in runs.call("incidents", "show", node(2)).out


def test_a_job_that_has_not_resumed_yet_is_still_down(runs) -> None:
    touch = AffectedJob(job="train", attempt=3, stopped_at=after(0.03))
    runs.add("train").put(incident(jobs=(touch,)))

    output = runs.call("incidents", "show", incident().id).out

    assert output.splitlines()[-1].split()[-2:] == ["-", "-"]


@pytest.mark.parametrize("text", ["20260102T030405", "030405.700", f"{node(1)}-2026"])
def test_any_part_of_an_id_will_do_if_it_is_the_only_one(runs, text) -> None:
    store = runs.add("train")
    store.put(WHOLE)
    store.put(incident(2, "20260103T000000.000"))

    assert runs.call("incidents", "show", text, "-o", "json").json["id"] == WHOLE.id


def test_an_id_that_is_part_of_another_can_still_be_shown(runs) -> None:
    store = runs.add("train")
    store.put(incident(1, "20260102T030405.700"))
    store.put(incident(1, "20260102T030405.7000"))

    shown = runs.call("incidents", "show", incident().id, "-o", "json")

    assert shown.json["id"] == incident().id


def test_a_part_of_several_ids_is_refused_with_all_of_them(runs) -> None:
    store = runs.add("train")
    store.put(WHOLE)
    store.put(incident(2))

    answered = runs.call("incidents", "show", "20260102")

    assert answered.code == ExitCode.FAILED
    assert WHOLE.id in answered.err
    assert incident(2).id in answered.err


def test_an_unknown_incident_is_answered_with_the_nearest(runs) -> None:
    runs.add("train").put(WHOLE)

    answered = runs.call("incidents", "show", WHOLE.id.replace("hyper", "hpyer"))

    assert answered.code == ExitCode.FAILED
    assert f"did you mean '{WHOLE.id}'?" in answered.err


def test_an_empty_list_says_so(runs) -> None:
    listed = runs.call("incidents", "list")

    assert (listed.code, listed.out, listed.err) == (ExitCode.OK, "", "No incidents yet.\n")


ASIDE = SetAside(
    name="step_3",
    path="/ckpt.set-aside/step_3",
    why="damaged: a.distcp is too short",
    at=after(0),
    folder="/ckpt",
    state="damaged",
    depth="sizes",
    problems=("a.distcp is too short", "b.distcp is missing"),
    step=3,
    job="train-1a2b3c4d",
    attempt=2,
    attempts=(1,),
)
MOVED = Incident(
    id="checkpoint-0123456789ab-20260102T030405.678",
    job="train",
    checkpoint=ASIDE,
    reason=Reason.CHECKPOINT_QUARANTINED,
    remedy=Remedy.NONE,
    message="step_3 was moved",
    detected_at=DETECTED,
    quarantined_at=DETECTED,
)


def test_a_checkpoint_is_listed_with_the_nodes_and_is_not_open(runs) -> None:
    store = runs.add("train")
    store.put(MOVED)
    store.put(incident(1))

    rows = [line.split() for line in runs.call("incidents", "list").out.splitlines()]
    shown = runs.call("incidents", "list", "--state", "open", "-o", "json").json
    of_job = runs.call("incidents", "list", "--job", "train", "-o", "json").json

    assert rows[0][:3] == ["ID", "SUBJECT", "REASON"]
    assert rows[1][:5] == ["030405.678", "step_3", "CheckpointQuarantined", "none", "quarantined"]
    assert rows[1][-2:] == ["train", "-"]
    assert [one["node"] for one in shown] == [node(1)]
    assert [one["id"] for one in of_job] == [MOVED.id]
    assert of_job[0]["took_s"] is None


def test_show_has_the_failed_checks_of_a_checkpoint_and_the_next_commands(runs) -> None:
    runs.add("train").put(MOVED)

    lines = runs.call("incidents", "show", "030405.678").out.splitlines()
    texts = [" ".join(line.split()) for line in lines]

    assert "Problem: a.distcp is too short" in texts
    assert "Problem: b.distcp is missing" in texts
    assert "Verified: names and sizes" in texts
    assert "Attempts: 1" in texts
    assert any(
        one.startswith("Quarantined: ") and one.endswith("before attempt 2") for one in texts
    )
    assert "Resumed from: nothing: the job started over" in texts
    assert any(one.endswith("holdfast checkpoint release /ckpt step_3") for one in texts)
    document = runs.call("incidents", "show", "030405.678", "-o", "json").json
    assert document["checkpoint"]["problems"] == list(ASIDE.problems)
    assert len(document["next"]) == 3


def test_an_incident_of_an_earlier_release_is_read(runs) -> None:
    runs.add("train").put(WHOLE)
    db = sqlite3.connect(runs.home / "runs/train/state.db")
    db.execute("UPDATE incidents SET body = json_remove(body, '$.job', '$.checkpoint')")
    db.commit()
    db.close()

    [shown] = runs.call("incidents", "list", "-o", "json").json

    assert (shown["node"], shown["job"], shown["state"]) == (node(1), "", "released")
