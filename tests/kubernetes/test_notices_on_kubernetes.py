"""What a controller tells other systems of a repair."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from controlled import installed  # noqa: F401 - a fixture
from machines import REBOOT_XID, Fleet, a_fleet
from real_cluster import Cluster


@pytest.fixture
def fleet(installed, cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    with a_fleet(cluster, tmp_path) as fleet:
        yield fleet


def test_a_repair_is_reported_from_fault_to_release(fleet: Fleet, tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    fleet.start("a")
    controller = fleet.control(
        settings=f'[nodes]\ndrain_timeout = "0s"\n[notices]\nfile = "{events}"'
    )
    fleet.until_schedulable("a")
    fleet.machines["a"].log(REBOOT_XID)
    fleet.until_recovered("a")
    controller.end()

    reported = [json.loads(line) for line in events.read_text(encoding="utf-8").splitlines()]
    health = [
        one["detail"]["HealthSummary"] for one in reported if "HealthSummary" in one["detail"]
    ]
    assert [one["HealthStatus"] for one in health] == ["Healthy", "Unhealthy", "Healthy"]
    assert health[1]["RepairAction"] == "Reboot"
    names = [one["detail"]["Holdfast"]["event"] for one in reported]
    assert names.index("node.quarantined") < names.index("repair.ordered")
