"""What the console shows of a cluster of Kubernetes, and what becomes of a wish."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from controlled import installed  # noqa: F401 - a fixture
from machines import Fleet, a_fleet
from real_cluster import Cluster, until

from holdfast.api.console_source import ConsoleAction, RepairRequest, UnknownObject
from holdfast.apps.api.console import ConsoleSource
from holdfast.apps.clock import SystemClock
from holdfast.apps.target import Where


@pytest.fixture
def fleet(installed, cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    with a_fleet(cluster, tmp_path) as fleet:
        yield fleet


def test_nodes_are_shown_held_and_rebooted(fleet: Fleet) -> None:
    fleet.start("a", "b")
    fleet.control(settings='[nodes]\nmax_unavailable = 1\ndrain_timeout = "0s"')
    fleet.until_schedulable("a", "b")
    where = Where(kubeconfig=fleet.cluster.plane.kubeconfig())
    with closing(ConsoleSource(where, SystemClock())) as source:
        tables = source.read_tables()
        [name] = tables["fleets"]
        rows = {row["name"]: row for row in tables["nodes"].values()}
        assert {(row["name"], row["look"], row["group"]) for row in rows.values()} == {
            ("a", "healthy", "p5"),
            ("b", "healthy", "p5"),
        }
        assert "enables auto-resume" in tables["notes"]["jobs"]["message"]

        source.submit(
            RepairRequest(act=ConsoleAction.HOLD, fleet=name, node="b", why="vendor"), "ada"
        )
        source.submit(RepairRequest(act=ConsoleAction.REBOOT, fleet=name, node="a"), "ada")
        until(
            lambda: any(
                one["state"] == "released" for one in source.read_tables()["incidents"].values()
            )
        )

        assert source.read_tables()["nodes"][f"{name} b"]["pause_reason"] == "vendor (ada)"
        [past] = source.read_tables()["incidents"].values()
        assert (past["node"], past["remedy"], "ada" in past["message"]) == ("a", "reboot", True)
        assert [one["id"] for one in source.node(name, "a")["incidents"]] == [past["id"]]
        assert source.goodput(lambda _: True) == {"jobs": [], "causes": []}
        with pytest.raises(UnknownObject):
            source.submit(RepairRequest(act=ConsoleAction.REBOOT, fleet=name, node="c"), "ada")
    assert [order["action"] for order in fleet.orders] == ["reboot"]
