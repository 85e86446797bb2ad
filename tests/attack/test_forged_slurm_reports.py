"""A local user who can write to the report directory of a Slurm cluster gets no node repaired."""

import json
import os
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from attacked_agent import as_nobody
from slurm.slurm_fleet_at_work import REPLACE_XID, Fleet, stays

from holdfast.adapters.slurm.nodes.signatures import _payload
from holdfast.kit.serial import from_plain, to_plain
from holdfast.model.report import NodeReport
from tests.ports.builders import a_fault

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="an attack changes its user: run as root")


def forged(fleet: Fleet, node: str, name: str) -> str:
    """The report of a node with a fatal fault, as ``name``."""
    text = (fleet.shared / f"{node}.json").read_text(encoding="utf-8").splitlines()[0]
    content = json.loads(text)
    report = from_plain(NodeReport, content["report"])
    faults = (replace(a_fault(), since=datetime.now(UTC), seen_at=datetime.now(UTC)),)
    content["report"] = to_plain(replace(report, node=name, faults=faults, sequence=99))
    return json.dumps(content)


def drop(fleet: Fleet, name: str, text: str) -> None:
    """Put a file into the report directory as nobody, signed with nobody's credential."""
    socket = f"--socket={fleet.slurm.folder}/munge.sock"
    payload = _payload(text.encode()).decode()
    made = as_nobody("munge", socket, f"--string={payload}")
    assert made.returncode == 0, made.stderr
    path = fleet.shared / f"{name}.json"
    script = 'rm -f "$1"; printf "%s\\n%s\\n" "$2" "$3" > "$1"'
    done = as_nobody("sh", "-c", script, "sh", str(path), text, made.stdout.strip())
    assert done.returncode == 0, done.stderr
    assert path.stat().st_uid == 65534


def test_forged_reports_and_check_results_repair_nothing_and_block_nobody(fleet: Fleet) -> None:
    genuine = (fleet.shared / "node3.json").read_text(encoding="utf-8")
    check = forged(fleet, "node2", "node2.check")
    report = forged(fleet, "node3", "node3")
    controller = fleet.control()
    path = str(fleet.shared / "node4.json")
    # An agent that runs puts its own report back at its next heartbeat.
    with fleet.machines["node3"].paused("agent"), fleet.machines["node4"].paused("agent"):
        with controller.paused():
            fleet.shared.chmod(0o777)
            drop(fleet, "node3", report)
            drop(fleet, "node2.check", check)
            drop(fleet, "node5", "[" * 100_000)
            assert as_nobody("sh", "-c", 'rm "$1"; mkfifo "$1"', "sh", path).returncode == 0

        fleet.until(lambda: "mode 0777 lets other users change reports" in controller.log)
        assert as_nobody("sh", "-c", 'echo "$2" > "$1"', "sh", path + "x", genuine).returncode == 0
        fleet.shared.chmod(0o755)  # as the message says
        fleet.until(lambda: controller.log.count("signed by user 65534") >= 2)
        fleet.until(lambda: "is a FIFO" in controller.log)

    fleet.machines["node1"].log(REPLACE_XID)

    assert fleet.until_recovered("node1").node == "node1"
    stays(lambda: {one.node for one in fleet.incidents} == {"node1"}, 2)
    assert all(fleet.phase(node) == "schedulable" for node in fleet.machines)


def test_a_check_result_in_a_sticky_directory_repairs_nothing(fleet: Fleet) -> None:
    fleet.shared.chmod(0o1777)
    drop(fleet, "node2.check", forged(fleet, "node2", "node2.check"))

    refused = fleet.control(wait=False)

    assert refused.process.wait(timeout=60) == 2
    assert "mode 1777 lets other users change reports" in refused.log

    fleet.shared.chmod(0o755)
    controller = fleet.control()
    fleet.until(lambda: "signed by user 65534" in controller.log)
    stays(lambda: fleet.phase("node2") == "schedulable" and not fleet.incidents, 3)


def test_a_genuine_report_under_the_name_of_another_node_repairs_nothing(fleet: Fleet) -> None:
    controller = fleet.control()
    with fleet.machines["node4"].paused("agent"):  # else it may write its own report again
        with controller.paused():
            fleet.machines["node1"].log(REPLACE_XID)
            fleet.until(
                lambda: fleet.has_reported("node1", "XID") or fleet.has_reported("node1", "Xid")
            )
            broken = (fleet.shared / "node1.json").read_text(encoding="utf-8")
            (fleet.shared / "node4.json").write_text(broken, encoding="utf-8")
            (fleet.shared / "node3.check.json").write_text(broken, encoding="utf-8")
        fleet.until(lambda: controller.log.count("a report of the node node1") == 2)

    fleet.until_recovered("node1")
    stays(lambda: {one.node for one in fleet.incidents} == {"node1"}, 1)
