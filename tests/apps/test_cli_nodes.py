import contextlib
import json
import os
import pty
import re
import signal
import sys
import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from written_runs import BOOT, LINE, NOW, machine, node, program, remediation

from holdfast.adapters.local.store import LocalStore
from holdfast.apps.cli.nodes.wait import RepairWait, wait_until_done
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.views.runs import KnownRun
from holdfast.model.health import Remedy, Urgency
from holdfast.model.incidents import Incident
from holdfast.model.jobs import JobPhase
from holdfast.model.names import Condition, Reason
from holdfast.model.nodes import Breaker, NodeRecord, PastFault, Phase
from holdfast.model.requests import Request, Verb
from tests.engines.recorded_devices import devices


def rows(text: str) -> list[list[str]]:
    """The cells of a table, without its titles."""
    return [line.split() for line in text.splitlines()[1:]]


def put(store, number: int, **fields) -> None:
    _, _, record = store.nodes()[node(number)]
    store.put_node(node(number), replace(record, **fields))


def test_list_shows_each_node_with_its_rank_its_health_and_its_fault(runs) -> None:
    store = runs.add("train", nodes=(1, 2, 3), ranks=(2, 1))
    put(store, 3, phase=Phase.REPLACING, remediation=remediation(3))

    listed = runs.call("nodes", "list")

    assert listed.code == ExitCode.OK
    assert "".join(listed.out.splitlines()[0].split()) == "NODEPHASEHEALTHRANK/JOBFAULTFOR"
    assert rows(listed.out) == [
        [node(1), "schedulable", "Schedulable", "1/train", "-", "5d"],
        [node(2), "schedulable", "Schedulable", "0/train", "-", "5d"],
        [node(3), "replacing", "UnschedulablePendingReplacement", "-",
         Reason.XID_REPLACE, "→", "replace", "5d"],
    ]  # fmt: skip


def test_wide_list_names_machine_boot_and_heartbeat(runs) -> None:
    runs.add("train", nodes=(1,), ranks=())
    runs.report("train", 1)
    beat = time.time() - 95
    os.utime(runs.directory("train").node(node(1)).heartbeat, (beat, beat))

    line = rows(runs.call("nodes", "list", "-o", "wide").out)[0]

    assert line[6:10] == ["train", machine(1), BOOT, "-"]
    assert line[10].startswith("1m3")


def test_list_leaves_out_runs_that_have_ended_unless_asked_for_all(runs) -> None:
    runs.add("over", nodes=(1,), is_active=False)
    runs.add("going", nodes=(2,))

    assert [row[0] for row in rows(runs.call("nodes", "list").out)] == [node(2)]
    assert [row[-2:] for row in rows(runs.call("nodes", "list", "--all").out)] == [
        ["5d", "going"],
        ["over", "(ended)"],
    ]
    assert [
        one["name"] for one in runs.call("nodes", "list", "--run", "over", "-o", "json").json
    ] == [node(1)]


def test_a_job_of_a_run_that_has_ended_runs_nowhere(runs) -> None:
    runs.add("over", nodes=(1,), ranks=(1,), is_active=False)

    shown = runs.call("nodes", "list", "--all", "-o", "json").json[0]

    assert (shown["job"], shown["rank"], shown["is_active"]) == ("", None, False)


def test_an_empty_list_says_how_to_go_on(runs) -> None:
    listed = runs.call("nodes", "list")

    assert (listed.code, listed.out) == (ExitCode.OK, "")
    assert "holdfast run -- COMMAND" in listed.err


def test_a_run_whose_state_is_damaged_does_not_hide_the_others(runs) -> None:
    runs.add("good", nodes=(1,))
    bad = runs.directory("bad")
    bad.create()
    bad.state.write_text("this is no database, whatever its name says", encoding="utf-8")

    listed = runs.call("nodes", "list", "--all")

    assert [row[0] for row in rows(listed.out)] == [node(1)]
    assert f"skipping run bad: {bad.state}" in listed.err
    assert runs.call("nodes", "list", "--run", "bad").err.startswith(f"holdfast: {bad.state}")


def test_a_run_in_its_first_moment_is_not_there_yet(runs) -> None:
    young = runs.directory("young")
    young.create()
    LocalStore(young.state, create=True).close()

    assert runs.call("jobs", "list", "-o", "json").json == []
    assert "run 'young' not found" in runs.call("nodes", "list", "--run", "young").err


def test_an_unknown_run_is_answered_with_the_nearest(runs) -> None:
    runs.add("train-1")

    answered = runs.call("nodes", "list", "--run", "trian-1")

    assert answered.code == ExitCode.FAILED
    assert "did you mean 'train-1'?" in answered.err


def test_list_reports_an_open_breaker(runs) -> None:
    store = runs.add("train")
    store.put_breaker(Breaker(tripped_at=NOW, reason="5 of 6 nodes turned faulty"))

    listed = runs.call("nodes", "list")

    assert "5 of 6 nodes turned faulty" in listed.err
    assert "holdfast nodes reset-breaker --run train" in listed.err


def test_list_reports_the_automatic_replacements_of_each_run(runs) -> None:
    store = runs.add("train", nodes=(1, 2))
    now = datetime.now(UTC)  # ``NOW`` may be more than an hour ago
    times = (now - timedelta(hours=25), now - timedelta(hours=5), now - timedelta(minutes=5))
    put(store, 1, replaced_at=times)
    put(store, 2, replaced_at=times[1:2])
    runs.add("other")

    errors = runs.call("nodes", "list").err

    assert "Automatic replacements of train: 1 in the last hour, 3 in 24h." in errors
    assert "of other" not in errors


def test_list_and_describe_show_a_drill(runs) -> None:
    runs.add("train", nodes=(1, 2))
    until = datetime(2026, 11, 25, 12, 30, 5, tzinfo=UTC)
    runs.report("train", 1, drill_until=until)
    runs.report("train", 2)

    drilled, other = rows(runs.call("nodes", "list").out)

    assert "drill until 12:30:05Z" in " ".join(drilled)
    assert "drill" not in " ".join(other)
    assert "until 2026-11-25 12:30:05Z" in runs.call("nodes", "describe", node(1)).out
    assert "until 2026" not in runs.call("nodes", "describe", node(2)).out
    shown = {one["name"]: one for one in runs.call("nodes", "list", "-o", "json").json}
    assert shown[node(1)]["drill_until"] == until.isoformat()
    assert shown[node(2)]["drill_until"] is None


def test_describe_reports_everything_of_a_node(runs) -> None:
    store = runs.add("train", nodes=(1, 2), ranks=(1, 2))
    past = PastFault(
        opened_at=NOW - timedelta(minutes=9),
        closed_at=NOW - timedelta(minutes=8),
        reason=Reason.XID_REBOOT,
        remedy=Remedy.REBOOT,
    )
    put(store, 2, phase=Phase.DRAINING, remediation=remediation(2), history=(past,))
    request = Request(id="7", verb=Verb.RELEASE, requested_at=NOW, requested_by="ada")
    store.put_request(node(2), request)
    past_incident = incident(9, id="past", successor=node(2))
    for one in (past_incident, incident(1), incident(2, node="the one before", successor="")):
        store.put(one)
    runs.report("train", 2)

    shown = runs.call("nodes", "describe", node(2), "-o", "json").json
    output = runs.call("nodes", "describe", node(2)).out

    assert shown["provider_id"] == machine(2)
    assert (shown["boot_id"], shown["powered_on"]) == (BOOT, True)
    assert (shown["job"], shown["rank"]) == ("train", 1)
    assert shown["health_status"] == "UnschedulablePendingReplacement"
    assert shown["conditions"] == {Condition.NVIDIA_TERMINATE: Reason.XID_REPLACE}
    assert [fault["code"] for fault in shown["faults"]] == [74]
    assert [notice["code"] for notice in shown["notices"]] == [31]
    assert shown["history"][0]["reason"] == Reason.XID_REBOOT
    assert shown["request"]["requested_by"] == "ada"
    assert shown["incidents"] == [past_incident.id, incident(2).id]
    assert shown["heartbeat_at"] is not None
    for word in (LINE, "MMU Fault", "release (immediate) requested by ada", "1m", past.reason):
        assert word.lower() in output.lower()


def incident(number: int, **fields) -> Incident:
    values = {
        "id": remediation(number).incident_id,
        "node": node(number),
        "provider_id": machine(number),
        "reason": Reason.XID_REPLACE,
        "remedy": "replace",
        "detected_at": NOW,
        "quarantined_at": NOW,
        **fields,
    }
    return Incident(**values)


def test_what_an_agent_reported_in_an_earlier_boot_does_not_count(runs) -> None:
    runs.add("train", nodes=(1,))
    runs.report("train", 1, boot_id="an earlier one")

    shown = runs.call("nodes", "describe", node(1), "-o", "json").json

    assert (shown["faults"], shown["notices"], shown["heartbeat_at"]) == ([], [], None)


def test_a_machine_whose_process_is_gone_is_off_and_has_no_faults(runs) -> None:
    runs.add("train", nodes=(1,))
    runs.report("train", 1)
    processes = runs.directory("train").node(node(1)).processes
    processes.write_text(json.dumps({"node": [os.getpid(), 1]}), encoding="utf-8")

    shown = runs.call("nodes", "describe", node(1), "-o", "json").json

    assert (shown["powered_on"], shown["faults"]) == (False, [])


B = 0xB << 64
"""A node whose name begins unlike the others: ``hyperpod-i-b000...``."""


@pytest.mark.parametrize(
    "text", [node(B), machine(B), "1", "hyperpod-i-b", "hyperpod-i-b0…", "i-b"]
)
def test_a_node_is_found_by_name_machine_rank_or_beginning(runs, text) -> None:
    runs.add("train", nodes=(1, B), ranks=(1, B))
    runs.add("over", nodes=(7,), ranks=(7, 7), is_active=False)

    assert runs.call("nodes", "describe", text, "-o", "json").json["name"] == node(B)


def test_the_whole_name_goes_before_a_beginning(runs) -> None:
    store = runs.add("train", nodes=(1,))
    record = NodeRecord(phase=Phase.JOINING, phase_since=NOW)
    store.add_node(node(1) + "0", machine(1) + "0", "", record)

    assert runs.call("nodes", "describe", node(1), "-o", "json").json["name"] == node(1)


def test_a_beginning_of_several_names_is_refused_with_all_of_them(runs) -> None:
    runs.add("train", nodes=(1, 2))

    answered = runs.call("nodes", "describe", "hyperpod-i-0")

    assert answered.code == ExitCode.FAILED
    assert node(1) in answered.err
    assert node(2) in answered.err


def test_a_node_of_a_run_that_has_ended_can_still_be_described(runs) -> None:
    runs.add("over", nodes=(7,), is_active=False)

    assert runs.call("nodes", "describe", node(7), "-o", "json").json["is_active"] is False


def test_an_unknown_node_is_answered_with_the_nearest_and_all_others(runs) -> None:
    runs.add("train", nodes=(1, 2))

    answered = runs.call("nodes", "describe", node(1).replace("hyper", "hpyer"))

    assert answered.code == ExitCode.FAILED
    assert f"did you mean '{node(1)}'?" in answered.err
    assert node(2) in answered.err


def test_a_node_that_was_replaced_is_answered_with_its_successor(runs) -> None:
    store = runs.add("train", nodes=(1,))
    store.put(incident(9, successor=node(1)))

    answered = runs.call("nodes", "describe", node(9))

    assert f"{node(9)} was replaced by {node(1)}" in answered.err


@pytest.mark.parametrize(
    ("phase", "said"),
    [(JobPhase.RUNNING, "ranks 0 to 1"), (JobPhase.WAITING, "the job is waiting")],
)
def test_a_rank_that_runs_nowhere_is_answered_with_those_that_do(runs, phase, said) -> None:
    runs.add("train", phase=phase)

    answered = runs.call("nodes", "describe", "2")

    assert answered.code == ExitCode.FAILED
    assert f"rank 2 is not running on any node (train: {said})" in answered.err


# Requests


@pytest.mark.parametrize(
    ("command", "verb"),
    [
        (["reboot", "--yes"], Verb.REBOOT),
        (["replace", "--yes"], Verb.REPLACE),
        (["check", "-y"], Verb.DEEP_CHECK),
        (["release"], Verb.RELEASE),
    ],
)
def test_a_request_is_recorded_and_wakes_the_run(runs, command, verb, monkeypatch) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    store = runs.add("train")
    wake = runs.directory("train").wake
    os.utime(wake, (1, 1))
    before = datetime.now(UTC)

    requested = runs.call("nodes", command[0], node(2), *command[1:])

    assert requested.code == ExitCode.OK
    assert f"{node(2)}: {verb} requested" in requested.out
    assert list(store.requests()) == [node(2)]
    request = store.requests()[node(2)]
    assert (request.verb, request.urgency) == (verb, verb.usual_urgency)
    assert request.requested_by == "ada"
    assert before <= request.requested_at <= datetime.now(UTC)
    assert uuid.UUID(request.id).version == 4
    assert wake.stat().st_mtime > 1


@pytest.mark.parametrize("command", ["reboot", "replace", "check"])
def test_when_idle_defers_a_request(runs, command) -> None:
    store = runs.add("train")

    runs.call("nodes", command, "0", "--when-idle", "-y")

    assert store.requests()[node(1)].urgency is Urgency.DEFERRED


def test_a_check_interrupts_jobs_only_on_request(runs) -> None:
    store = runs.add("train")

    requested = runs.call("nodes", "check", "0", "--now", "--dry-run")
    runs.call("nodes", "check", "0", "--now", "-y")
    runs.call("nodes", "check", "1", "-y")
    shown = runs.call("nodes", "describe", "1")

    assert "the job is stopped and resumes" in requested.out
    urgencies = {name: one.urgency for name, one in store.requests().items()}
    assert urgencies == {node(1): Urgency.IMMEDIATE, node(2): Urgency.DEFERRED}
    assert "it waits for job train" in shown.out


def test_a_release_does_not_wait_for_an_idle_node(runs) -> None:
    runs.add("train")

    assert runs.call("nodes", "release", "0", "--when-idle").code == ExitCode.BAD_INPUT


def test_each_node_is_asked_for_once_however_often_it_is_named(runs) -> None:
    store = runs.add("train")

    requested = runs.call("nodes", "check", "-y", "0", node(1), machine(1), node(3), "-o", "json")

    assert [outcome["node"] for outcome in requested.json] == [node(1), node(3)]
    assert {outcome["request_id"] for outcome in requested.json} == {
        request.id for request in store.requests().values()
    }


@pytest.mark.parametrize(
    ("named", "code"),
    [
        ([node(1), node(2)], ExitCode.OK),
        ([node(1), "hyperpod-i-f"], ExitCode.PARTLY_DONE),
        (["hyperpod-i-f", "9"], ExitCode.FAILED),
    ],
)
def test_the_exit_code_says_how_many_were_accepted(runs, named, code) -> None:
    store = runs.add("train")

    requested = runs.call("nodes", "reboot", *named, "--yes")

    known = [name for name in named if name in (node(1), node(2))]
    assert requested.code == code
    assert sorted(store.requests()) == known
    assert [name for name in named if f"holdfast: {name}: " in requested.err] == [
        name for name in named if name not in known
    ]


def test_a_run_that_has_ended_takes_no_request(runs) -> None:
    store = runs.add("over", nodes=(1,), is_active=False)

    without_run = runs.call("nodes", "reboot", node(1), "--yes")
    with_run = runs.call("nodes", "reboot", node(1), "--yes", "--run", "over")

    assert (without_run.code, with_run.code) == (ExitCode.FAILED, ExitCode.FAILED)
    assert "no run is active" in without_run.err
    assert "run over is not active" in with_run.err
    assert store.requests() == {}


def test_a_dry_run_says_what_would_happen_and_records_nothing(runs) -> None:
    store = runs.add("train")

    requested = runs.call("nodes", "replace", "1", node(3), "--dry-run")
    later = runs.call("nodes", "replace", "1", "--dry-run", "--when-idle")

    assert requested.code == ExitCode.OK
    assert requested.out.splitlines() == [
        f"{node(2)}: replace would be requested; rank 1 of job train runs there: "
        "the job is stopped and resumes from its last checkpoint",
        f"{node(3)}: replace would be requested",
    ]
    assert "starts when rank 1 of job train has left" in later.out
    assert store.requests() == {}


def test_nothing_is_destroyed_unless_somebody_confirms(runs) -> None:
    store = runs.add("train")

    for command in ("reboot", "replace"):
        requested = runs.call("nodes", command, "0")

        assert requested.code == ExitCode.BAD_INPUT
        assert f"{command.capitalize()} {node(1)}? Job train is stopped" in requested.err
    assert store.requests() == {}


@pytest.mark.parametrize(("answer", "code"), [("y", ExitCode.OK), ("n", ExitCode.FAILED)])
def test_the_answer_on_a_terminal_decides(runs, monkeypatch, answer, code) -> None:
    store = runs.add("train")
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    with contextlib.closing(os.fdopen(theirs, encoding="utf-8")) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        requested = runs.call("nodes", "reboot", "0")
    os.close(ours)

    assert requested.code == code
    assert list(store.requests()) == ([node(1)] if answer == "y" else [])


def test_a_name_that_several_runs_could_mean_needs_the_run(runs) -> None:
    first, second = runs.add("a", nodes=(1, 2)), runs.add("b", nodes=(3, 4), ranks=(3, 4))

    by_rank = runs.call("nodes", "reboot", "0", "--yes")
    by_name = runs.call("nodes", "reboot", node(3), "--yes")
    with_run = runs.call("nodes", "reboot", "0", "--yes", "--run", "a")

    assert by_rank.code == ExitCode.FAILED
    assert f"{node(1)} of run a, {node(3)} of run b" in by_rank.err
    assert "--run NAME" in by_rank.err
    assert (by_name.code, with_run.code) == (ExitCode.OK, ExitCode.OK)
    assert (list(first.requests()), list(second.requests())) == ([node(1)], [node(3)])


def test_a_request_under_an_open_breaker_is_recorded_with_a_warning(runs) -> None:
    store = runs.add("train")
    store.put_breaker(Breaker(tripped_at=NOW, reason="5 of 6 nodes turned faulty"))

    requested = runs.call("nodes", "reboot", "0", "--yes")

    assert requested.code == ExitCode.OK
    assert "inspect the nodes, then run: holdfast nodes reset-breaker --run train" in requested.err


# Waiting


@pytest.fixture
def awaited(runs):
    store = runs.add("train", nodes=(1,), ranks=())
    request = Request(id="7", verb=Verb.REBOOT, requested_at=NOW)
    store.put_request(node(1), request)
    known = KnownRun(runs.directory("train"), store, is_active=True)
    return RepairWait(known, node(1), request.id)


def test_a_request_is_not_done_before_it_was_taken_up(awaited) -> None:
    assert not awaited.is_done()

    awaited.fleet.store.clear_request(node(1), "7")

    assert awaited.is_done()


def test_a_request_is_done_when_the_node_takes_work_again(awaited, capfd) -> None:
    store = awaited.fleet.store
    store.clear_request(node(1), "7")

    for phase in (Phase.QUARANTINED, Phase.DRAINING, Phase.REBOOTING, Phase.REBOOTING):
        put(store, 1, phase=phase, remediation=remediation(1))
        assert not awaited.is_done()
    put(store, 1, phase=Phase.SCHEDULABLE, remediation=None)

    assert awaited.is_done()
    assert capfd.readouterr().err.splitlines() == [
        f"{node(1)}: {phase}" for phase in ("quarantined", "draining", "rebooting", "schedulable")
    ]


def test_a_replacement_is_done_when_the_successor_takes_work(awaited) -> None:
    store = awaited.fleet.store
    store.clear_request(node(1), "7")
    store.add_node(node(2), machine(2), node(1), NodeRecord(phase=Phase.JOINING, phase_since=NOW))
    put(store, 1, phase=Phase.REPLACING, remediation=remediation(1))

    assert not awaited.is_done()
    store.remove_node(node(1))
    assert not awaited.is_done()
    put(store, 2, phase=Phase.SCHEDULABLE)
    assert awaited.is_done()


def test_a_wait_in_vain_ends_with_its_timeout(runs) -> None:
    store = runs.add("train")

    requested = runs.call("nodes", "reboot", "0", "--yes", "--wait", "--timeout", "10ms")

    assert requested.code == ExitCode.FAILED
    assert "not started yet" in requested.err
    assert f"timed out after 10ms: {node(1)}" in requested.err
    assert list(store.requests()) == [node(1)]


def test_a_wait_ends_with_the_run(runs, awaited, capfd) -> None:
    runs.end()

    assert not wait_until_done([awaited], timedelta(minutes=1))
    assert "run train has ended" in capfd.readouterr().err


# The breaker


def test_resetting_the_breaker_lets_repairs_begin_again(runs) -> None:
    store = runs.add("train")
    store.put_breaker(Breaker(tripped_at=NOW, reason="5 of 6 nodes turned faulty"))
    before = datetime.now(UTC)

    unconfirmed = runs.call("nodes", "reset-breaker")
    kept = store.breaker()
    confirmed = runs.call("nodes", "reset-breaker", "--yes")

    assert unconfirmed.code == ExitCode.BAD_INPUT
    assert "5 of 6 nodes turned faulty" in unconfirmed.err
    assert kept.tripped_at == NOW
    assert confirmed.code == ExitCode.OK
    assert store.breaker().tripped_at is None
    assert before <= store.breaker().reset_at <= datetime.now(UTC)


def test_a_breaker_that_is_not_open_stays_as_it_is(runs) -> None:
    store = runs.add("train")

    requested = runs.call("nodes", "reset-breaker", "-o", "json")

    assert (requested.code, requested.json) == (ExitCode.OK, {"run": "train", "was_open": False})
    assert store.breaker() == Breaker()


@pytest.mark.parametrize(
    ("active", "said"), [((), "no run is active"), (("a", "b"), "several runs are active: a, b")]
)
def test_a_breaker_is_reset_in_one_run_only(runs, active, said) -> None:
    for number, name in enumerate(active):
        runs.add(name, nodes=(number,))

    requested = runs.call("nodes", "reset-breaker", "--yes")

    assert requested.code == ExitCode.FAILED
    assert said in requested.err


# Watching


def read_until(stream, text: str) -> str:
    """Lines of a program's output up to the first that holds ``text``."""
    lines = []
    for line in stream:
        lines.append(line)
        if text in line:
            return "".join(lines)
    raise AssertionError(f"{text!r} never came: {lines}")


def test_a_watched_list_prints_a_block_for_each_change_until_ctrl_c(runs) -> None:
    store = runs.add("train", nodes=(1,), ranks=())
    runs.report("train", 1)
    with program("nodes", "list", "--watch") as watch:
        first = read_until(watch.stdout, node(1))
        runs.report("train", 1)  # another heartbeat is no change
        time.sleep(1.2)
        put(store, 1, phase=Phase.REBOOTING, remediation=remediation(1, Remedy.REBOOT))
        second = read_until(watch.stdout, node(1))
        watch.send_signal(signal.SIGINT)

    assert watch.returncode == ExitCode.INTERRUPTED
    assert "schedulable" in first
    assert second.count("NODE") == 1
    assert "rebooting" in second


def test_a_watched_list_that_nobody_reads_any_more_ends(runs) -> None:
    runs.add("train", nodes=(1,), ranks=())
    runs.report("train", 1)
    with program("nodes", "list", "--watch") as watch:
        read_until(watch.stdout, node(1))
        watch.stdout.close()
        code = watch.wait(timeout=30)

    assert code == ExitCode.FAILED


def test_a_node_is_held_with_a_reason_and_let_go_again(runs) -> None:
    store = runs.add("train", nodes=(1, 2), ranks=())

    held = runs.call("nodes", "hold", node(1), "--why", "waits for a visit")

    assert (held.code, held.out) == (ExitCode.OK, f"{node(1)}: repairs paused\n")
    assert store.holds() == {node(1): "waits for a visit"}
    assert "waits for a visit" in runs.call("nodes", "describe", node(1)).out

    assert runs.call("nodes", "unhold", node(1)).out == f"{node(1)}: repairs resumed\n"
    assert store.holds() == {}


def test_a_hold_without_a_reason_names_who_holds(runs) -> None:
    store = runs.add("train", nodes=(1,), ranks=())

    runs.call("nodes", "hold", node(1))

    assert store.holds()[node(1)].startswith("paused by ")


def test_a_dry_run_holds_nothing(runs) -> None:
    store = runs.add("train", nodes=(1,), ranks=())

    said = runs.call("nodes", "hold", node(1), "--dry-run")

    assert said.out == f"{node(1)}: repairs paused (dry run)\n"
    assert store.holds() == {}


def test_of_several_nodes_those_that_exist_are_held(runs) -> None:
    store = runs.add("train", nodes=(1,), ranks=())

    said = runs.call("nodes", "hold", node(1), "nowhere")

    assert said.code == ExitCode.PARTLY_DONE
    assert "node 'nowhere' not found" in said.err
    assert list(store.holds()) == [node(1)]
    assert runs.call("nodes", "unhold", "nowhere").code == ExitCode.FAILED


def test_a_run_and_a_cluster_are_not_meant_at_once(runs) -> None:
    said = runs.call("nodes", "list", "--run", "train", "--context", "prod")

    assert said.code == ExitCode.BAD_INPUT
    assert "--run applies to runs on this machine" in said.err


def test_describe_lists_the_devices_of_a_node(runs) -> None:
    runs.add("llm", nodes=(1, 2), ranks=(1,))
    runs.report("llm", 1, hardware=devices(datetime.now(UTC)))

    shown = runs.call("nodes", "describe", node(1))
    assert "Devices: gpu, driver 595.45.04, cuda 13.2, read " in shown.out
    assert re.search(
        r"PCI:0000:53:00 +NVIDIA H200 +temperature 34 C, .*ecc uncorrected 2", shown.out
    )
    assert re.search(r"GPU 1 .*recovery errors 3, crc errors 14", shown.out)
    document = runs.call("nodes", "describe", node(1), "-o", "json").json
    assert [one["kind"] for one in document["hardware"]] == ["gpu", "nvlink", "network", "memory"]
    assert runs.call("nodes", "describe", node(2), "-o", "json").json["hardware"] == []
