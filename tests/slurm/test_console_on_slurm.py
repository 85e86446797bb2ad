"""What the console shows of a cluster of Slurm, and the effect of a request."""

from contextlib import closing

from slurm_fleet_at_work import Fleet

from holdfast.api.console_source import ConsoleAction, RepairRequest
from holdfast.apps.api.console import ConsoleSource
from holdfast.apps.clock import SystemClock
from holdfast.apps.target import Where


def test_nodes_are_shown_held_and_rebooted(fleet: Fleet) -> None:
    fleet.control()
    job = fleet.run_job("-N1", "--comment=auto-resume=1")
    with closing(ConsoleSource(Where(state_dir=fleet.state_dir), SystemClock())) as source:
        fleet.until(lambda: source.read_tables()["jobs"])
        tables = source.read_tables()
        [row] = tables["jobs"].values()
        assert job in row["name"]
        assert source.job(row["name"])["ranks"][0]["node"] == "node1"
        assert tables["nodes"]["slurm node1"]["job"] == row["name"]
        looks = {one["name"]: one["look"] for one in tables["nodes"].values()}
        assert looks == dict.fromkeys(fleet.machines, "healthy")

        source.submit(
            RepairRequest(act=ConsoleAction.HOLD, fleet="slurm", node="node3", why="vendor"), "ada"
        )
        source.submit(RepairRequest(act=ConsoleAction.REBOOT, fleet="slurm", node="node2"), "ada")
        fleet.until(
            lambda: any(
                one["state"] == "released" for one in source.read_tables()["incidents"].values()
            )
        )

        assert source.read_tables()["nodes"]["slurm node3"]["pause_reason"] == "vendor (ada)"
        [past] = source.read_tables()["incidents"].values()
        assert (past["node"], "ada" in past["message"]) == ("node2", True)
        assert source.node("slurm", "node2")["incidents"][0]["id"] == past["id"]
        assert [one["job"] for one in source.goodput(lambda _: True)["jobs"]] == [row["name"]]
