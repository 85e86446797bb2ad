"""Outcomes of nodes and jobs on Slurm, for the fault matrix."""

import time
from typing import Any

from slurm_fleet_at_work import Fleet

from holdfast.adapters.slurm.nodes.state import RememberedJob
from holdfast.model.names import Reason
from tests.engines.matrix import Matrix
from tests.engines.slurm_cluster import SlurmPrograms
from tools.fault_matrix import COLUMNS, SLURM, outcome
from tools.slurm_versions import VERSION

_BUSY = {"IDLE", "MIXED", "ALLOCATED", "COMPLETING", "RESERVED", "PLANNED"}
_DONE = {"replace": "replaced", "reboot": "rebooted"}
_LOST = {Reason.NODE_SILENT: Reason.NODE_LOST}
"""Whoever notices first that a node has vanished, its silent agent or Slurm, gives the reason."""

_TIMEOUT_S = 180.0
_SETTLES_S = 4.0


def column_of(programs: SlurmPrograms) -> str:
    """The column of the matrix; a release without one must have the outcomes of 24.11."""
    own = f"{SLURM}/{programs.version}"
    return own if own in COLUMNS else f"{SLURM}/{VERSION}"


class FinalStates:
    """Those of one version of Slurm."""

    def __init__(self, programs: SlurmPrograms, matrix: Matrix) -> None:
        self._column = column_of(programs)
        self._matrix = matrix

    def check(
        self, fleet: Fleet, fault: str, *, node: str = "", job: str = "", counts: bool = True
    ) -> None:
        """Wait until all is as recorded.

        Args:
            fleet: where.
            fault: the name of the row.
            node: the node that had the fault; empty if none had.
            job: the id of the job as squeue has it.
            counts: whether it is sure how often it was restarted, and why.

        """

        def look() -> dict[str, Any]:
            found = _found(fleet, node, job)
            unsure = {} if counts else {"restarts": None, "attempt": None, "causes": []}
            return {**found, **unsure}

        if self._matrix.is_recording:
            time.sleep(_SETTLES_S)
        else:
            expected = outcome(fault, self._column)
            deadline = time.monotonic() + _TIMEOUT_S
            while look() != expected and time.monotonic() < deadline:
                time.sleep(0.2)
        self._matrix.record(fault, self._column, look())


def _found(fleet: Fleet, node: str, job: str) -> dict[str, Any]:
    state, restarts = _of_job(fleet, job) if job else ("", None)
    memory = _memory(fleet, job)
    reasons = []
    if memory is not None:
        record = memory.record
        failures = [one.failure for one in record.attempts if one.failure is not None]
        reasons = [_LOST.get(one.reason, one.reason) for one in failures]
        if record.phase.is_final and record.phase != "succeeded":
            reasons.append(record.reason.split("; last failure:")[0])
    return {
        "node": _of_node(fleet, node) if node else "",
        "job": state,
        "restarts": restarts,
        "attempt": None if memory is None else memory.record.attempt,
        "causes": reasons,
    }


def _of_node(fleet: Fleet, node: str) -> str:
    """How it is, and what was done with it."""
    closed = fleet.slurm.state(node) - _BUSY
    how = f"{'+'.join(sorted(closed))} ({fleet.reason(node)})" if closed else "open"
    done = [_DONE.get(one.remedy, one.remedy) for one in fleet.incidents
            if one.node == node and one.ended_at and one.repaired_at]  # fmt: skip
    return ", ".join((*dict.fromkeys(done), how))


def _of_job(fleet: Fleet, job: str) -> tuple[str, int]:
    fields = "JobArrayID:|,State:|,RestartCnt:|"
    for line in fleet.slurm.run("squeue", "-h", "-t", "all", "-O", fields).splitlines():
        name, state, count, _ = line.split("|")
        if name == job:
            return state, int(count)
    return "gone", 0


def _memory(fleet: Fleet, job: str) -> RememberedJob | None:
    store = fleet.store()
    try:
        return store.read().jobs.get(job.partition("+")[0])
    finally:
        store.close()
