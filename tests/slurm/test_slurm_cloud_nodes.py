"""Nodes that are off until Slurm wants them, as in clusters that grow with their queue."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_fleet_at_work import REPLACE_XID, Fleet, a_fleet
from training_at_work import Training

from tests.engines.slurm_cluster import SlurmCluster, SlurmPrograms

OFF = ("node3", "node4")


@pytest.fixture
def fleet(programs: SlurmPrograms, tmp_path: Path) -> Iterator[Fleet]:
    """Two nodes that are on, and two that are off."""
    settings = {"SuspendTimeout": "1"}
    with (
        SlurmCluster(programs, cloud=OFF, settings=settings) as slurm,
        a_fleet(slurm, tmp_path) as fleet,
    ):
        yield fleet


def test_a_job_goes_on_with_a_node_that_is_switched_on_for_it(fleet: Fleet) -> None:
    controller = fleet.control(provider=fleet.by_command(), wait=False)
    fleet.until(lambda: all(fleet.phase(name) == "schedulable" for name in ("node1", "node2")))
    job = Training(fleet)
    job.until_step(20)
    assert set(job.nodes()) == {"node1", "node2"}

    fleet.machines["node1"].log(REPLACE_XID)

    job.until_attempt(1)
    (woken,) = set(job.nodes()) - {"node2"}
    assert woken in OFF
    fleet.until(lambda: fleet.phase(woken) == "schedulable")
    assert "CLOUD" in fleet.slurm.state(woken)
    assert f"{woken} needs" not in controller.log
    fleet.slurm.run("scancel", job.id)
    fleet.until(lambda: fleet.slurm.state(woken) == {"IDLE", "CLOUD"})
    job.check_laws()
