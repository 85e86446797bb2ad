"""Requests of administrators in the reason of a node, on a real cluster: none is lost."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_slurm_ports import Backed, quarantined

from holdfast.model.health import Remedy
from holdfast.model.names import SlurmReason
from holdfast.model.nodes import Phase
from holdfast.model.requests import Verb
from tests.engines.slurm_cluster import SlurmCluster
from tests.ports.builders import a_record, a_remediation

REPLACE, REBOOT, OURS = SlurmReason.REPLACE, SlurmReason.REBOOT, SlurmReason.HOLDFAST


@pytest.fixture
def backed(slurm: SlurmCluster, tmp_path: Path) -> Iterator[Backed]:
    one = Backed(slurm, tmp_path)
    one.report()
    yield one
    one.close()


@pytest.mark.parametrize("state", ["fail", "drain", "down"])
@pytest.mark.parametrize("phase", [Phase.QUARANTINED, Phase.REBOOTING, Phase.JOINING])
def test_a_request_stays_until_the_record_carries_it_out(
    backed: Backed, phase: Phase, state: str
) -> None:
    """Whether it came before the snapshot or since, and whatever else is written of the node."""
    slurm = backed.slurm
    slurm.until(lambda: backed.view() is not None)
    backed.cluster.put("node1", quarantined(Remedy.REBOOT))
    slurm.run("scontrol", "update", "nodename=node1", f"state={state}", f"reason={REPLACE}")
    backed.cluster.put("node1", quarantined(Remedy.REBOOT, phase))
    slurm.until(lambda: backed.view().request is not None)
    request = backed.view().request
    backed.cluster.put("node1", quarantined(Remedy.REBOOT, phase))
    backed.cluster.clear_request("node1", "another")
    assert slurm.node("node1")["Reason"] == REPLACE

    taken = a_remediation(remedy=Remedy.REPLACE, reason="X", request_id=request.id)
    backed.cluster.put("node1", a_record(Phase.QUARANTINED, remediation=taken))

    assert slurm.node("node1")["Reason"] == f"{REPLACE} {OURS} X"


def test_a_request_is_cleared_by_its_id(backed: Backed) -> None:
    slurm = backed.slurm
    slurm.until(lambda: backed.view() is not None)
    backed.cluster.put("node1", quarantined(Remedy.REBOOT))
    slurm.run("scontrol", "update", "nodename=node1", "state=fail", f"reason={REPLACE}")
    slurm.until(lambda: backed.view().request is not None)
    first = backed.view().request
    threading.Event().wait(1.1)  # the time of a reason has whole seconds
    slurm.run("scontrol", "update", "nodename=node1", "state=fail", f"reason={REBOOT}")
    backed.cluster.clear_request("node1", first.id)
    assert slurm.node("node1")["Reason"] == REBOOT  # a newer one

    slurm.until(lambda: backed.view().request.verb is Verb.REBOOT)
    backed.cluster.clear_request("node1", backed.view().request.id)

    assert slurm.node("node1")["Reason"] == f"{REBOOT} {OURS} X"
