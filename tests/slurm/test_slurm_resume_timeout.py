"""A node that misses Slurm's ResumeTimeout, on a real cluster."""

from pathlib import Path

from slurm_fleet_at_work import REPLACE_XID, Fleet, a_fleet, on_both_versions

from holdfast.adapters.slurm.commands.hostlist import expand
from holdfast.model.names import Reason
from tests.engines.slurm_cluster import SlurmCluster, SlurmPrograms

TIMES = {"SuspendTimeout": "1", "ResumeTimeout": "12"}
"""Seconds; the second start of slurmd on a busy machine takes some of them."""

SAID = "ResumeTimeout reached"


@on_both_versions
def test_a_node_that_slurm_has_given_up_is_ordered_anew_with_slurms_own_message(
    programs: SlurmPrograms, tmp_path: Path
) -> None:
    """Its slurmd and its agent are up: by its clock it booted before the order, as far as Slurm
    can tell, so that Slurm ignores it and never asks again."""
    nodes = ("node1", "node2")
    with (
        SlurmCluster(programs, nodes=nodes, settings=TIMES) as slurm,
        a_fleet(slurm, tmp_path) as fleet,
    ):
        slurm.carries_out = False
        controller = fleet.control(nodes='join_timeout = "30s"')

        slurm.machines["node1"].log(REPLACE_XID)
        fleet.until(lambda: orders(fleet) == ["suspend node1"])
        slurm.machines["node1"].power_off()
        fleet.until(lambda: orders(fleet)[1:] == ["resume node1"])
        slurm.machines["node1"].renew(clock_is_behind=True)
        fleet.until(lambda: SAID in fleet.reason("node1"))
        fleet.until(lambda: orders(fleet)[2:] == ["suspend node1"])
        slurm.machines["node1"].power_off()
        fleet.until(lambda: orders(fleet)[3:] == ["resume node1"])
        slurm.machines["node1"].renew()

        incident = fleet.until_recovered("node1")
        assert (incident.reason, incident.message) == (
            Reason.NODE_START_FAILED, f"Slurm reports: {SAID}",
        )  # fmt: skip
        assert (
            f"node1 quarantined for replacement: {Reason.NODE_START_FAILED}: Slurm reports: {SAID}"
            in (controller.log)
        )
        assert Reason.NODE_NEVER_JOINED not in controller.log
        assert fleet.is_idle("node1")


def orders(fleet: Fleet) -> list[str]:
    path = fleet.slurm.folder / "orders"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    verbs = (line.split() for line in text.splitlines())
    return [f"{verb} {node}" for verb, nodes in verbs for node in expand(nodes)]
