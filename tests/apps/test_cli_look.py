"""What all commands about nodes, jobs and incidents have in common."""

import os
from datetime import timedelta

import pytest
import yaml
from click.shell_completion import ShellComplete
from written_runs import NOW, node

from holdfast.adapters.local.layout import cluster_dir
from holdfast.apps.cli.main import cli
from holdfast.apps.exit_codes import ExitCode
from holdfast.model.health import Remedy
from holdfast.model.incidents import Incident
from holdfast.model.names import Reason
from holdfast.model.nodes import Breaker

INCIDENT = Incident(
    id=f"{node(1)}-20260102T030405.700",
    node=node(1),
    provider_id="i-1",
    reason=Reason.XID_REPLACE,
    remedy=Remedy.REPLACE,
    message="NVLink: fatal error",
    detected_at=NOW,
    quarantined_at=NOW + timedelta(seconds=1),
)


@pytest.fixture
def fleet(runs):
    store = runs.add("train", nodes=(1, 2), ranks=(1, 2))
    store.put(INCIDENT)
    runs.report("train", 1)
    return runs


SHOWN = (
    ("nodes", "list"),
    ("nodes", "describe", "0"),
    ("jobs", "list"),
    ("jobs", "describe", "train"),
    ("incidents", "list"),
    ("incidents", "show", INCIDENT.id),
)


@pytest.mark.parametrize("argv", SHOWN, ids=" ".join)
def test_yaml_says_what_json_says(fleet, argv) -> None:
    os.utime(fleet.directory("train").node(node(1)).heartbeat, (1e9, 1e9))
    as_json = fleet.call(*argv, "-o", "json")
    as_yaml = fleet.call(*argv, "-o", "yaml")

    assert (as_yaml.code, as_yaml.err) == (ExitCode.OK, "")
    assert yaml.safe_load(as_yaml.out) == as_json.json


@pytest.mark.parametrize("argv", SHOWN, ids=" ".join)
def test_wide_is_whole_text(fleet, argv) -> None:
    shown = fleet.call(*argv, "-o", "wide")

    assert shown.code == ExitCode.OK
    assert "…" not in shown.out


def completed(*argv: str, incomplete: str = "") -> list[str]:
    shell = ShellComplete(cli, {}, "holdfast", "_HOLDFAST_COMPLETE")
    return [one.value for one in shell.get_completions(list(argv), incomplete)]


def test_the_shell_completes_names_that_there_are(fleet) -> None:
    fleet.add("old", nodes=(3,), is_active=False)

    assert completed("nodes", "describe") == [node(1), node(2)]
    assert completed("nodes", "reboot", node(1), incomplete=node(2)[:-1]) == [node(1), node(2)]
    assert completed("nodes", "list", "--run", "old", "--output", incomplete="y") == ["yaml"]
    assert completed("nodes", "describe", "--run", "old") == [node(3)]
    assert completed("inject", "hang", "--node", incomplete=node(2)) == [node(2)]
    assert completed("jobs", "describe") == ["old", "train"]
    assert completed("jobs", "logs", incomplete="t") == ["train"]
    assert completed("incidents", "show", incomplete=node(1)) == [INCIDENT.id]


def test_the_shell_completes_clusters_of_this_machine(fleet) -> None:
    state = cluster_dir(fleet.home, "lab").state
    state.parent.mkdir(parents=True)
    state.touch()

    assert completed("clusters", "describe") == ["lab"]
    assert completed("jobs", "list", "--cluster", incomplete="l") == ["lab"]
    assert completed("run", "--cluster", incomplete="t") == []


def test_completion_says_nothing_of_what_cannot_be_read(fleet, capfd) -> None:
    assert completed("nodes", "describe", "--kubeconfig", "/missing") == []
    assert completed("nodes", "describe", "--run", "a", "--context", "b") == []
    assert capfd.readouterr() == ("", "")


def test_a_dry_run_asks_nobody_and_changes_nothing(fleet) -> None:
    breaker = Breaker(tripped_at=NOW, reason="5 of 6 nodes turned faulty")
    store = fleet.add("other", nodes=(4,), ranks=(4,))
    store.put_breaker(breaker)

    cancelled = fleet.call("jobs", "cancel", "other", "--dry-run")
    reset = fleet.call("nodes", "reset-breaker", "--run", "other", "--dry-run")

    assert (cancelled.code, cancelled.out) == (
        ExitCode.OK,
        "other: would be cancelled in attempt 1\n",
    )
    assert (reset.code, reset.out) == (ExitCode.OK, "other: repairs would resume\n")
    assert not store.jobs()["other"][2]
    assert store.breaker() == breaker
    reported = fleet.call("jobs", "cancel", "other", "--dry-run", "-o", "yaml")
    assert yaml.safe_load(reported.out) == {"job": "other", "cancel_requested": False}
