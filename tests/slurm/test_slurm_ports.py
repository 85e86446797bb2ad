"""The adapters keep the contracts of their ports, on a real Slurm cluster."""

import os
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from slurm_fleet_at_work import stays

from holdfast.adapters.slurm.nodes.agent_settings import AgentSlurm
from holdfast.adapters.slurm.nodes.cluster import SlurmCluster as Backend
from holdfast.adapters.slurm.nodes.dependencies import Dependencies
from holdfast.adapters.slurm.nodes.munge import munge_of, trust_of
from holdfast.adapters.slurm.nodes.report import SharedReport
from holdfast.adapters.slurm.nodes.state import FILE, SlurmStore
from holdfast.adapters.slurm.settings import SlurmSettings
from holdfast.apps.clock import SystemClock
from holdfast.model.errors import BackendError
from holdfast.model.events import CallFailed, InputRejected
from holdfast.model.health import Remedy
from holdfast.model.names import SlurmReason
from holdfast.model.nodes import NodeView, Phase
from holdfast.model.report import NodeReport
from holdfast.model.requests import Request, Verb
from tests.engines.slurm_cluster import SlurmCluster
from tests.ports.builders import NOW, a_record, a_remediation, a_request
from tests.ports.contracts import ClusterContract, DurableClusterContract, IncidentContract
from tests.ports.fakes import FakeEvents

REPLACE, OURS = SlurmReason.REPLACE, SlurmReason.HOLDFAST


class Backed:
    """A backend at work on a real cluster, with the word of an agent of ``node1``."""

    def __init__(
        self,
        slurm: SlurmCluster,
        folder: Path,
        *,
        acts: bool = True,
        poll: timedelta = timedelta(milliseconds=100),
    ) -> None:
        self.slurm, self.folder = slurm, folder
        self.shared = folder / "shared"
        self.shared.mkdir(exist_ok=True)
        self.events = FakeEvents()
        self.woken = threading.Event()
        self.acts = acts
        self.store = SlurmStore(folder / "state" / FILE)
        settings = SlurmSettings(report_dir=self.shared, conf=slurm.conf, poll=poll)
        around = Dependencies(
            clock=SystemClock(),
            events=self.events,
            changed=self.woken.set,
            trust=trust_of(slurm.conf),
            may_act=lambda: self.acts,
        )
        self.cluster = Backend(settings, self.store, around)
        self.cluster.start()
        slurm.until(lambda: self.cluster.synced)

    def report(self, node: str = "node1", machine: str = "m1", boot_id: str = "b1") -> None:
        """The agent of a node says that it is well."""
        one = SharedReport(
            AgentSlurm(report_dir=self.shared),
            node,
            machine=machine,
            timeout_s=60,
            report_problem=lambda _: None,
            credentials=munge_of(self.slurm.conf),
        )
        said = NodeReport(node=node, boot_id=boot_id, sequence=1, reported_at=NOW)
        before = self._mark(node)
        one.changed(None, said)
        self.slurm.until(lambda: self._mark(node) != before)
        one.close()

    def _mark(self, node: str) -> object:
        path = self.shared / f"{node}.json"
        return path.stat().st_mtime_ns if path.exists() else None

    def view(self, node: str = "node1") -> NodeView | None:
        return next((one for one in self.cluster.snapshot().nodes if one.name == node), None)

    def reported(self, kind: type) -> list[object]:
        return [event for event in self.events.reported if isinstance(event, kind)]

    def close(self) -> None:
        self.cluster.stop()
        self.store.close()


@pytest.fixture
def backed(slurm: SlurmCluster, tmp_path: Path) -> Iterator[Backed]:
    one = Backed(slurm, tmp_path)
    one.report()
    yield one
    one.close()


class Harness:
    node = "node1"

    def __init__(self, backed: Backed) -> None:
        self._backed = backed
        self._others: list[Backed] = []
        self.cluster = backed.cluster
        backed.slurm.until(lambda: backed.view() is not None)

    def put_request(self, request: Request) -> None:
        self._backed.store.put_request(self.node, request)

    def reopened(self) -> Backend:
        self._others.append(Backed(self._backed.slurm, self._backed.folder))
        return self._others[-1].cluster

    def close(self) -> None:
        for other in self._others:
            other.close()


@pytest.fixture
def a_cluster_of_one(backed: Backed) -> Iterator[Harness]:
    harness = Harness(backed)
    yield harness
    harness.close()


class TestSlurmCluster(ClusterContract):
    @pytest.fixture
    def harness(self, a_cluster_of_one):
        return a_cluster_of_one


class TestSlurmMemory(DurableClusterContract):
    @pytest.fixture
    def harness(self, a_cluster_of_one):
        return a_cluster_of_one


class TestSlurmIncidents(IncidentContract):
    @pytest.fixture
    def harness(self, tmp_path):
        store = SlurmStore(tmp_path / FILE)
        yield store
        store.close()


def quarantined(remedy: Remedy = Remedy.REPLACE, phase: Phase = Phase.QUARANTINED):
    return a_record(phase, remediation=a_remediation(remedy=remedy, reason="X"))


def test_jobs_can_be_placed_exactly_while_the_phase_is_schedulable(backed: Backed) -> None:
    backed.slurm.until(lambda: backed.view() is not None)
    for phase in (Phase.QUARANTINED, Phase.CHECKING, Phase.JOINING, Phase.DRAINING):
        backed.cluster.put("node1", quarantined(phase=phase))
        assert "FAIL" in backed.slurm.state("node1")
        assert OURS in backed.slurm.node("node1")["Reason"]

    backed.cluster.put("node1", a_record(Phase.SCHEDULABLE))

    assert "FAIL" not in backed.slurm.state("node1")
    backed.slurm.until(lambda: backed.slurm.state("node1") == {"IDLE"})


def test_a_drain_requeues_batch_jobs_and_leaves_others(backed: Backed) -> None:
    slurm = backed.slurm
    moved = slurm.submit("-N1", "-w", "node1", script="srun sleep 60")
    stuck = slurm.submit("-N1", "-w", "node1", "--no-requeue", script="srun sleep 60")
    slurm.until(lambda: set(slurm.jobs().values()) == {"RUNNING"})
    backed.cluster.snapshot()
    backed.cluster.put("node1", quarantined(phase=Phase.DRAINING))

    assert set(backed.view().running_jobs) == {moved, stuck}
    backed.cluster.drain("node1")
    backed.cluster.drain("node1")

    slurm.until(lambda: backed.view().running_jobs == (stuck,))
    assert slurm.jobs() == {moved: "PENDING", stuck: "RUNNING"}
    slurm.crash_controller()
    backed.cluster.drain("node1")  # asks for nothing: what cannot be requeued is asked once


def test_a_node_is_not_idle_if_a_job_has_begun_since_the_nodes_were_read(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    one = Backed(slurm, tmp_path, poll=timedelta(hours=1))
    one.report()
    slurm.until(lambda: one.view() is not None)
    one.cluster.put("node1", a_record(Phase.SCHEDULABLE))
    one.store.put_request("node1", a_request(Verb.DEEP_CHECK))
    assert one.view().is_idle

    job = slurm.submit("-N1", "-w", "node1", script="sleep 60")
    slurm.until(lambda: slurm.jobs()[job] == "RUNNING")

    view = one.view()
    one.close()
    assert view.running_jobs == (job,)
    assert not view.is_idle


def test_what_another_process_records_is_seen(backed: Backed) -> None:
    backed.slurm.until(lambda: backed.view() is not None)
    assert backed.view().pause_reason == ""
    other = SlurmStore(backed.folder / "state" / FILE)

    other.hold("node1", "later")

    assert backed.view().pause_reason == "later"
    other.hold("node1", "")
    assert backed.view().pause_reason == ""
    other.close()


def test_a_mark_that_somebody_takes_away_again_and_again_is_not_fought_for(backed: Backed) -> None:
    slurm = backed.slurm
    slurm.until(lambda: backed.view() is not None)
    backed.cluster.put("node1", quarantined())

    def resume() -> None:
        slurm.run("scontrol", "update", "nodename=node1", "state=resume")
        slurm.until(lambda: slurm.state("node1") == {"IDLE"})

    resume()
    slurm.until(lambda: backed.view() and "FAIL" in slurm.state("node1"))
    resume()

    stays(lambda: backed.view() and slurm.state("node1") == {"IDLE"}, 1.0)
    slurm.until(lambda: backed.view() and "FAIL" in slurm.state("node1"))


def test_no_job_is_requeued_on_a_node_that_does_not_answer(backed: Backed) -> None:
    slurm = backed.slurm
    job = slurm.submit("-N1", "-w", "node1", script="srun sleep 60")
    slurm.until(lambda: f"{job}.0" in slurm.run("squeue", "-h", "-s", "-j", job))  # it is launched
    backed.cluster.snapshot()
    backed.cluster.put("node1", quarantined(phase=Phase.DRAINING))
    slurm.machines["node1"].cut_off()
    slurm.until(lambda: "NOT_RESPONDING" in slurm.state("node1"))
    stays(lambda: backed.view() is not None, 2.5)  # longer than an answer of Slurm is kept

    assert backed.view().running_jobs == (job,)
    backed.cluster.drain("node1")

    assert slurm.jobs()[job] == "RUNNING"  # until Slurm itself gives the node up
    slurm.machines["node1"].reconnect()


def test_a_reader_changes_nothing(slurm: SlurmCluster, tmp_path: Path) -> None:
    one = Backed(slurm, tmp_path)
    one.report()
    slurm.until(lambda: one.view() is not None)
    one.cluster.put("node1", quarantined())
    slurm.run("scontrol", "update", "nodename=node1", "state=resume")
    slurm.until(lambda: slurm.state("node1") == {"IDLE"})

    one.acts = False
    for _ in range(3):
        one.cluster.snapshot()
    stays(lambda: slurm.state("node1") == {"IDLE"}, 0.3)

    one.acts = True
    slurm.until(lambda: one.view() and "FAIL" in slurm.state("node1"))
    one.close()


def test_a_request_for_a_node_without_an_agent_is_reported_and_does_nothing(backed: Backed) -> None:
    backed.slurm.run("scontrol", "update", "nodename=node4", "state=fail", f"reason={REPLACE}")

    def reported() -> list[object]:
        backed.cluster.snapshot()
        return backed.reported(InputRejected)

    backed.slurm.until(reported)
    assert "an agent that reports from the node" in reported()[0].expected
    assert backed.slurm.node("node4")["Reason"] == REPLACE
    assert len(reported()) == 1


def test_a_report_that_cannot_be_read_is_reported_and_taken_for_none(backed: Backed) -> None:
    (backed.shared / "node2.json").write_text('{"machine": "m", "report"', encoding="utf-8")

    backed.cluster.snapshot()

    (event,) = backed.reported(InputRejected)
    assert (event.node, event.key) == ("node2", "its report")
    assert backed.view("node2") is None


def test_a_damaged_entry_stops_work_on_its_node_alone(backed: Backed) -> None:
    backed.report("node2", machine="m2")
    backed.slurm.until(lambda: backed.view("node2") is not None)
    backed.cluster.put("node1", quarantined())
    backed.store._write("UPDATE nodes SET body = '{}' WHERE name = 'node1'")
    other = Backed(backed.slurm, backed.folder)

    seen = other.cluster.snapshot()

    assert seen.unreadable == {"node1"}
    assert [node.name for node in seen.nodes] == ["node2"]
    assert "FAIL" in backed.slurm.state("node1")
    other.close()


def test_news_wake_whoever_decides(backed: Backed) -> None:
    backed.slurm.until(lambda: backed.view() is not None)

    def wakes(act) -> None:
        stays_quiet(backed.woken)
        act()
        backed.slurm.until(backed.woken.is_set)

    def stays_quiet(event: threading.Event) -> None:
        while event.is_set():
            event.clear()
            threading.Event().wait(0.3)

    wakes(lambda: backed.report(boot_id="b2"))
    wakes(lambda: backed.slurm.run("scontrol", "update", "nodename=node3", "state=drain",
                                   "reason=x"))  # fmt: skip
    wakes(
        lambda: backed.store.put_request(
            "node1", Request(id="r", verb=Verb.REBOOT, requested_at=NOW)
        )
    )


def test_a_heartbeat_alone_wakes_nobody(backed: Backed) -> None:
    backed.slurm.until(lambda: backed.view() is not None)
    threading.Event().wait(0.5)
    backed.woken.clear()

    for _ in range(5):
        os.utime(backed.shared / "node1.json")
        threading.Event().wait(0.25)

    assert not backed.woken.is_set()


def test_a_cluster_that_is_away_is_reported_and_nothing_is_taken_for_gone(backed: Backed) -> None:
    backed.slurm.until(lambda: backed.view() is not None)
    backed.slurm.crash_controller()

    backed.slurm.until(lambda: backed.cluster.errors)
    with pytest.raises(BackendError, match="Unable to contact slurm controller"):
        backed.cluster.snapshot()
    backed.slurm.start_controller()
    backed.slurm.until(lambda: not backed.cluster.errors)
    assert backed.view() is not None
    assert backed.reported(CallFailed) == []


def test_reports_that_cannot_be_read_do_not_make_nodes_vanish(backed: Backed) -> None:
    backed.slurm.until(lambda: backed.view() is not None)
    backed.shared.rename(backed.folder / "elsewhere")

    backed.slurm.until(lambda: backed.cluster.errors)

    assert "cannot read" in backed.cluster.errors[0]
    assert backed.view() is not None
    (backed.folder / "elsewhere").rename(backed.shared)
    backed.slurm.until(lambda: not backed.cluster.errors)
