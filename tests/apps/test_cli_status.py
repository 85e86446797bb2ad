"""``holdfast status`` and ``holdfast goodput`` of runs on this machine."""

import subprocess
import sys
from dataclasses import replace
from datetime import timedelta

import pytest
from test_goodput import job
from written_runs import NOW, node, program, remediation

from holdfast.apps.api.console_rows import node_row
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.views.jobs import JobStatus
from holdfast.apps.views.overview import FleetSnapshot, attention
from holdfast.apps.views.runs import open_runs
from holdfast.decisions.planned_work import is_planned
from holdfast.model.health import Remedy
from holdfast.model.incidents import Incident
from holdfast.model.jobs import AttemptRecord, Failure, FailureKind, JobPhase
from holdfast.model.nodes import Breaker, NodeRecord, Phase

FAILED = AttemptRecord(
    attempt=1,
    placement=(node(1), node(2)),
    started_at=NOW - timedelta(seconds=100),
    running_at=NOW - timedelta(seconds=90),
    stopped_at=NOW - timedelta(seconds=20),
    first_step=0,
    last_step=100,
    failure=Failure(
        kind=FailureKind.HARDWARE, reason="XidReplace", at=NOW - timedelta(seconds=25), node=node(1)
    ),
)


def repaired(phase: Phase, **more: object) -> NodeRecord:
    repair = replace(remediation(2, Remedy.REBOOT), **more)
    return NodeRecord(phase=phase, phase_since=NOW, remediation=repair)


def test_nothing_needs_anybody(runs) -> None:
    runs.add("train")
    shown = runs.call("status")

    assert shown.code == ExitCode.OK
    assert shown.out.startswith("Nothing needs attention.\n")
    assert "3: 3 schedulable" in shown.out
    assert "train  running" in shown.out


def test_without_a_run_it_says_how_to_start_one(runs) -> None:
    shown = runs.call("status")

    assert shown.code == ExitCode.OK
    assert "No run is active; start one with: holdfast run -- COMMAND" in shown.out


def test_what_needs_a_person_comes_first(runs) -> None:
    store = runs.add("train", nodes=(1, 2), phase=JobPhase.WAITING)
    store.put_node(node(2), repaired(Phase.REBOOTING))
    store.put_breaker(Breaker(tripped_at=NOW, reason="5 of 6 nodes turned faulty"))
    runs.add("calm", nodes=(5,), ranks=(5,))

    shown = runs.call("status")
    topics = [line.split("  ")[0] for line in shown.out.splitlines()]

    assert shown.code == ExitCode.NEEDS_ATTENTION
    assert topics[:4:2] == ["Needs attention (2)", ""]
    assert "needs 2 nodes, has 1; " + node(2) + " is rebooting" in shown.out
    assert shown.out.index("BREAKER OPEN") < shown.out.index("JOB STALLED")
    assert shown.out.index("JOB STALLED") < shown.out.index("\nNodes\n")
    only = runs.call("status", "--run", "calm")
    assert (only.code, "train" in only.out) == (ExitCode.OK, False)


def test_programs_get_the_same(runs) -> None:
    store = runs.add("train", nodes=(1, 2))
    store.put_node(node(2), repaired(Phase.QUARANTINED))

    shown = runs.call("status", "--output", "json")

    assert shown.code == ExitCode.NEEDS_ATTENTION
    [item] = shown.json["attention"]
    assert (item["topic"], item["node"], item["fleet"]) == ("repair waits", node(2), "train")
    [fleet] = shown.json["fleets"]
    assert fleet["nodes"] == {"schedulable": 1, "quarantined": 1}
    assert [job["ref"] for job in shown.json["jobs"]] == ["train"]


def test_an_interrupted_run_needs_a_person_until_it_runs_again(runs) -> None:
    runs.add("train", is_active=False)
    shown = runs.call("status")

    assert shown.code == ExitCode.NEEDS_ATTENTION
    assert "JOB FAILED  train interrupted" in shown.out
    assert "holdfast jobs describe train" in shown.out


def test_of_ended_jobs_with_one_name_only_the_last_counts() -> None:
    fields = {"is_active": False, "cluster": "prod", "name": "a", "started_at": NOW}
    failed = replace(job(), id="1", phase=JobPhase.FAILED, phase_since=NOW, **fields)
    later = {"id": "2", "started_at": NOW + timedelta(seconds=1)}
    fleet = FleetSnapshot(name="prod", is_active=True, breaker=Breaker(), nodes=(), incidents=())

    def asked(*jobs: JobStatus) -> list[str]:
        return [one.job for one in attention([fleet], jobs, NOW)]

    assert asked(failed) == ["1"]
    assert asked(replace(failed, **later), failed) == ["2"]
    assert asked(replace(failed, phase=JobPhase.SUCCEEDED, **later), failed) == []


def test_watch_prints_again_only_what_has_changed(runs) -> None:
    store = runs.add("train", nodes=(1, 2))
    with program("status", "--watch") as watch:
        assert watch.stdout.readline() == "Nothing needs attention.\n"
        store.put_breaker(Breaker(tripped_at=NOW, reason="many"))
        lines = iter(watch.stdout.readline, "")
        assert next(line for line in lines if "attention" in line) == "Needs attention (1)\n"
        watch.terminate()


def test_goodput_of_all_jobs_and_of_one(runs) -> None:
    runs.add(
        "train",
        started_at=NOW - timedelta(seconds=100),
        attempt=2,
        attempts=(FAILED,),
        running_at=NOW - timedelta(seconds=5),
        phase=JobPhase.SUCCEEDED,
        phase_since=NOW,
    )
    every = runs.call("goodput")
    one = runs.call("goodput", "train")
    [story] = runs.call("goodput", "-o", "json").json["jobs"]

    assert every.code == one.code == ExitCode.OK
    assert every.out.splitlines()[0].split() == [
        "JOB", "GOODPUT", "TOTAL", "PRODUCTIVE", "REPEATED", "STOPPING", "WAITING", "STARTING",
        "FAILURES",
    ]  # fmt: skip
    assert "XidReplace  hardware" in every.out
    assert "\nFailures\n" in one.out
    assert "\nFailures\n" not in every.out
    assert sum(story["parts"].values()) > 0
    assert [loss["reason"] for loss in story["losses"]] == ["XidReplace"]
    assert runs.call("goodput", "nope").code == ExitCode.FAILED


@pytest.mark.parametrize("reason", ["RebootRequested", "DeepHealthCheckScheduled"])
def test_planned_work_is_shown_as_such_everywhere(runs, reason) -> None:
    assert is_planned(reason)
    store = runs.add("train", nodes=(1, 2))
    record = repaired(Phase.DRAINING, reason=reason)
    store.put_node(node(2), record)
    store.put(
        Incident(
            id=record.remediation.incident_id,
            node=node(2),
            provider_id="i-2",
            reason=reason,
            remedy=Remedy.REBOOT,
            detected_at=NOW,
            quarantined_at=NOW,
        )
    )

    assert runs.call("status").out.startswith("Nothing needs attention.")
    assert "draining (planned)" in runs.call("status").out
    assert "draining (planned)" in runs.call("nodes", "list").out
    assert "draining (planned)" in runs.call("nodes", "describe", node(2)).out
    assert "draining (planned)" in runs.call("incidents", "list").out
    [incident] = runs.call("incidents", "list", "-o", "json").json
    assert (incident["state"], incident["is_planned"]) == ("draining", True)


@pytest.mark.parametrize(
    ("phase", "look"),
    [
        (Phase.QUARANTINED, "planned"),
        (Phase.DRAINING, "planned"),
        (Phase.REBOOTING, "planned"),
        (Phase.REPLACING, "planned"),
        (Phase.CHECKING, "checking"),
        (Phase.JOINING, "joining"),
    ],
)
def test_planned_work_does_not_look_faulty(runs, phase, look) -> None:
    store = runs.add("train", nodes=(1, 2))
    store.put_node(node(2), repaired(phase, reason="RebootRequested"))
    with open_runs(runs.home, "train") as [run]:
        [one] = [one for one in run.nodes() if one.name == node(2)]

    assert node_row(one, {})["look"] == look


@pytest.mark.parametrize("module", ["status", "nodes.commands", "incidents"])
def test_lists_do_not_load_what_only_decides(module) -> None:
    code = f"import sys, holdfast.apps.cli.{module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()

    assert f"holdfast.apps.cli.{module}" in loaded
    for heavy in ("model.actions", "decisions.policy", "decisions.lifecycle", "engine"):
        assert f"holdfast.{heavy}" not in loaded
