"""Nodes that were saved, in every form that the supported versions have, and what is planned."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.slurm.commands.node_text import parse_nodes
from holdfast.adapters.slurm.nodes.saved import parse_saved
from holdfast.apps.main import run
from holdfast.model.names import Reason, SlurmReason

RECORDED = Path(__file__).parents[1] / "recordings/slurm"
"""The same six nodes, as scontrol told them; the JSON of 22.05 is that of sinfo."""

FORMS = ("nodes-{}.txt", "nodes-{}-oneline.txt", "nodes-{}.json")
VERSIONS = ("22.05", "24.11")
REPLACE = f"{SlurmReason.REPLACE} {SlurmReason.HOLDFAST}"


@pytest.fixture
def _utc(monkeypatch) -> Iterator[None]:
    """Text has the time of the zone in which it was recorded, JSON the seconds of the epoch."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def recorded(name: str, version: str) -> str:
    return (RECORDED / name.format(version)).read_text(encoding="utf-8")


@pytest.mark.usefixtures("_utc")
@pytest.mark.parametrize("version", VERSIONS)
def test_every_form_says_the_same_of_every_node(version: str) -> None:
    plain, one_line, in_json = (parse_saved(recorded(form, version)) for form in FORMS)

    assert one_line == parse_nodes(recorded(FORMS[1], version))
    assert plain == one_line
    assert list(in_json) == [f"node{number}" for number in range(1, 7)]
    for name, node in in_json.items():
        assert node == one_line[name]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("version", VERSIONS)
def test_each_node_is_shown_with_what_would_be_done(version: str, form: str, capsys) -> None:
    path = RECORDED / form.format(version)

    assert run(["slurm", "plan", "--nodes", str(path), "-o", "json"]) == 0

    nodes = {one["node"]: one for one in json.loads(capsys.readouterr().out)}
    assert [one["state"] for one in nodes.values()] == [
        "MIXED+FAIL", "IDLE+DRAIN", "DOWN", "DOWN+NOT_RESPONDING", "IDLE+POWERED_DOWN", "IDLE",
    ]  # fmt: skip
    assert nodes["node1"]["seen"] == "root requests: replace"
    assert nodes["node1"]["steps"] == [
        f"set it to FAIL with the reason '{REPLACE} {Reason.REQUESTED_REPLACE} (deferred)'"
    ]
    assert "its jobs are still running" in nodes["node1"]["waits"]
    assert nodes["node2"]["reason"] == "cabling [bob] State=IDLE"
    assert "left unchanged" in nodes["node2"]["seen"]
    assert "did you mean Action:Replace?" in nodes["node3"]["seen"]
    assert nodes["node4"]["steps"] == [
        f"set it to FAIL with the reason '{REPLACE} {Reason.NODE_SILENT}'",
        "order its replacement",
    ]
    for name in ("node2", "node3", "node5", "node6"):
        assert nodes[name]["steps"] == []


def text(name: str, state: str, reason: str = "") -> str:
    said = f" Reason={reason} [bob@2026-11-21T01:38:11]" if reason else ""
    return f"NodeName={name} State={state} Partitions=dev{said}\n"


def planned(tmp_path: Path, capsys, nodes: str, config: str = "") -> tuple[dict, str]:
    (tmp_path / "nodes").write_text(nodes, encoding="utf-8")
    (tmp_path / "config").write_text(f'platform = "slurm"\n{config}', encoding="utf-8")
    assert run(["slurm", "plan", "--nodes", f"{tmp_path}/nodes", "--config", f"{tmp_path}/config",
                "-o", "json"]) == 0  # fmt: skip
    out, err = capsys.readouterr()
    return {one["node"]: one for one in json.loads(out)}, err


def test_the_policy_of_the_controller_counts(tmp_path: Path, capsys) -> None:
    lines = [text(f"n{number}", "DOWN", "Action:Reboot") for number in range(3)]
    lines[0] = text("n0", "ALLOCATED+DOWN", "Action:Reboot")
    policy = '[nodes]\nmax_unavailable = 2\ndrain_timeout = "7m"'

    nodes, _ = planned(tmp_path, capsys, "".join(lines), policy)

    assert nodes["n0"]["steps"][1:] == ["drain its jobs, 7m at most", "order its reboot"]
    assert nodes["n1"]["steps"][1:] == ["order its reboot"]
    assert nodes["n2"]["steps"][1:] == []
    assert "unavailable-node budget used (2 of 2)" in nodes["n2"]["waits"]


def test_too_many_silent_nodes_at_once_stop_all_repairs(tmp_path: Path, capsys) -> None:
    lines = [text(f"n{number}", "DOWN+NOT_RESPONDING") for number in range(6)]

    nodes, reported = planned(tmp_path, capsys, "".join(lines))

    assert {one["waits"] for one in nodes.values()} == {"circuit breaker open"}
    assert "No repair would begin: " in reported


def test_a_repair_under_way_is_its_controllers(tmp_path: Path, capsys) -> None:
    lines = text("n1", "DOWN+FAIL+NOT_RESPONDING", "Action:Replace holdfast: X") + text(
        "n2", "IDLE"
    )

    nodes, _ = planned(tmp_path, capsys, lines)

    assert nodes["n1"]["steps"] == []
    assert nodes["n1"]["seen"].startswith("taken out of service by Holdfast")
    assert nodes["n2"]["seen"] == "accepts jobs"


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        ("", "it contains no node; save them with: scontrol show node"),
        ("{}", "nodes: missing, expected a list"),
        ('{"sinfo": []}', "sinfo of this version does not list nodes"),
        ('{"nodes": [}', "line 1, column 12: Expecting value"),
        ('{"nodes": [7]}', "nodes[0]: '7', expected an object"),
        ('{"nodes": [{"name": "a"}]}', "nodes[0].state: missing, expected states such as IDLE"),
        ('{"nodes": [{"name": "a", "state": []}]}', "nodes[0].state: empty"),
        ('{"nodes": [{"name": "a", "state": [7]}]}', "nodes[0].state: [7], expected states"),
        ('{"nodes": [{"name": "a", "state": "idle", "state_flags": "x"}]}',
         "nodes[0].state_flags: 'x', expected states"),
        ('{"nodes": [{"state": "idle"}]}', "nodes[0].name: missing"),
        ('{"nodes": [{"name": 7, "state": "idle"}]}', "nodes[0].name: 7, expected text"),
        ('{"nodes": [{"name": "a", "state": "idle", "boot_time": "x"}]}',
         "nodes[0].boot_time: 'x', expected seconds"),
        ('{"nodes": [{"name": "a", "state": "idle", "boot_time": 1e300}]}', "nodes[0].boot_time"),
        ('{"nodes": [{"name": "a", "state": "idle", "partitions": 7}]}', "nodes[0].partitions: 7"),
        ("NODELIST STATE\n", "line 1: 'NODELIST STATE' does not start a node"),
        ("\nNodeName=a Arch=x\n   CPUAlloc=0\n", "line 2: State is missing"),
        (text("a", "IDLE") * 2, "line 2: node a is duplicated"),
        ("[" * 100_000, "nested too deeply"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_reported_with_the_place(
    tmp_path: Path, capsys, content: str, reported: str
) -> None:
    path = tmp_path / "nodes"
    path.write_text(content, encoding="utf-8")

    assert run(["slurm", "plan", "--nodes", str(path)]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"holdfast: --nodes: {path}: ")
    assert reported in err


def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path, capsys) -> None:
    assert run(["slurm", "plan", "--nodes", str(tmp_path / "none")]) == 2
    assert "none: cannot be read: No such file or directory" in capsys.readouterr().err


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["nodes", "name", "state", "state_flags", "boot_time", "set", "number",
                         "reason", "partitions", "address"]), inner, max_size=6),
    max_leaves=12,
)  # fmt: skip


@given(st.lists(values, max_size=3) | values)
def test_no_json_makes_it_fail_in_another_way(nodes: object) -> None:
    for whole in (nodes, {"nodes": nodes}):
        try:
            parse_saved(json.dumps(whole))
        except ValueError:
            continue


@given(st.text())
def test_no_text_makes_it_fail_in_another_way(content: str) -> None:
    for one in (content, f"NodeName={content}", text("a", "IDLE") + content):
        try:
            parse_saved(one)
        except ValueError:
            continue
