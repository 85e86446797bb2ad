"""Jobs that ask to be resumed after a fault of a node has already cost them a run."""

from dataclasses import replace
from datetime import timedelta

import pytest
from slurm_fleet_at_work import REPLACE_XID, Fleet, on_both_versions

from holdfast.adapters.slurm.commands.job_text import BatchJob
from holdfast.adapters.slurm.commands.node_text import NodeFacts
from holdfast.adapters.slurm.commands.reasons import parse_reason
from holdfast.adapters.slurm.jobs.unmanaged_runs import UnmanagedRuns
from holdfast.adapters.slurm.nodes.node_state import NodeState
from holdfast.adapters.slurm.nodes.state import RememberedJob
from holdfast.model.jobs import Failure, FailureKind
from holdfast.model.names import Reason
from holdfast.model.nodes import NodeRecord, Phase
from tests.ports.builders import NOW

RUNS = BatchJob(
    id="7", number="7", state="RUNNING", why="", restarts=0, can_requeue=True, is_batch=True,
    eligible_at=None, started_at=NOW, wants=2, nodes=("a", "b"), pinned="", user="ann",
    partition="dev", reservation="", exit_status=0, comment="",
)  # fmt: skip
WAITS = replace(RUNS, state="PENDING", restarts=1, nodes=(), why="BeginTime")
AGAIN = replace(RUNS, restarts=1)
XID = Failure(kind=FailureKind.HARDWARE, reason=Reason.XID_REPLACE, at=NOW, node="b")


class Nodes:
    def __init__(self) -> None:
        self.state = {name: frozenset(("IDLE",)) for name in ("a", "b")}

    def node_state(self, name: str) -> NodeState:
        facts = NodeFacts(name, self.state[name], parse_reason(""), slurmd="boot1/start1")
        record = NodeRecord(phase=Phase.SCHEDULABLE, phase_since=NOW)
        return NodeState(facts=facts, record=record)


@pytest.mark.parametrize("seen", [WAITS, AGAIN], ids=["waits", "runs-again"])
@pytest.mark.parametrize(
    ("noted", "is_down", "reason"),
    [
        (XID, False, Reason.XID_REPLACE),
        (XID, True, Reason.XID_REPLACE),
        (None, True, Reason.NODE_LOST),
        (None, False, ""),
    ],
)
def test_a_run_that_a_node_has_ended_is_charged_once(seen, noted, is_down, reason) -> None:
    nodes = Nodes()
    runs = UnmanagedRuns(nodes.node_state)
    for _ in range(2):
        runs.refresh({"7": RUNS}, NOW)
    if noted is not None:
        runs.note("7", noted)
        runs.note("7", noted)
    assert runs.record(RUNS, NOW) is None, "it may run on"

    if is_down:
        nodes.state["b"] = frozenset(("DOWN",))
    runs.refresh({"7": seen}, NOW)
    record = runs.record(seen, NOW)
    runs.refresh({"7": seen}, NOW)

    assert runs.record(seen, NOW) == record
    if not reason:
        assert record is None
        return
    assert record is not None
    assert (record.hardware_retries, record.attempt, len(record.attempts)) == (1, 1, 1)
    assert record.failure is not None
    assert (record.failure.reason, record.failure.node) == (reason, "b")


def test_another_job_of_the_same_number_begins_with_nothing() -> None:
    runs = UnmanagedRuns(Nodes().node_state)
    runs.refresh({"7": RUNS}, NOW)
    runs.note("7", XID)
    bobs = replace(AGAIN, user="bob")

    assert runs.record(bobs, NOW) is None
    runs.refresh({"7": bobs}, NOW)
    assert runs.record(bobs, NOW) is None
    runs.refresh({}, NOW)
    runs.refresh({"7": RUNS}, NOW)
    assert runs.record(AGAIN, NOW) is None


def test_what_a_person_wanted_away_costs_nothing() -> None:
    runs = UnmanagedRuns(Nodes().node_state)
    runs.refresh({"7": RUNS}, NOW)
    runs.note("7", replace(XID, kind=FailureKind.REQUESTED))

    record = runs.record(WAITS, NOW + timedelta(seconds=1))

    assert record is not None
    assert (record.hardware_retries, len(record.attempts)) == (0, 1)


@on_both_versions
def test_a_fault_before_the_comment_is_written_is_charged_with_its_own_reason(
    fleet: Fleet,
) -> None:
    fleet.control(provider=fleet.by_command())
    early, late = (fleet.run_job("-N1", "-n1", "--open-mode=append") for _ in range(2))
    bad = fleet.slurm.run("squeue", "-h", "-j", early, "-o", "%N").strip()
    assert fleet.slurm.run("squeue", "-h", "-j", late, "-o", "%N").strip() == bad

    fleet.machines[bad].log(REPLACE_XID)
    fleet.until(lambda: restarts(fleet, early) == restarts(fleet, late) == 1)
    fleet.scontrol("update", f"jobid={early}", "comment=auto-resume=1")
    fleet.until(lambda: fleet.slurm.jobs()[late] == "RUNNING")
    fleet.scontrol("update", f"jobid={late}", "comment=auto-resume=1")

    for job in (early, late):
        fleet.until(lambda job=job: known(fleet, job) and known(fleet, job).record.attempt == 2)
        record = known(fleet, job).record
        (first,) = record.attempts
        assert first.failure is not None
        assert (first.failure.kind, first.failure.reason, first.failure.node) == (
            FailureKind.HARDWARE, Reason.XID_REPLACE, bad,
        )  # fmt: skip
        assert record.hardware_retries == 1


def restarts(fleet: Fleet, job: str) -> int:
    return int(fleet.scontrol("-o", "show", "job", job).split(" Restarts=")[1].split()[0])


def known(fleet: Fleet, job: str) -> RememberedJob:
    store = fleet.store()
    try:
        return store.read().jobs.get(job)
    finally:
        store.close()
