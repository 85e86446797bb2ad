"""What becomes of nodes and jobs in the end, compared with what was recorded of it.

``slurm_outcomes.json`` has it, of which ``make docs`` renders a page. ``HOLDFAST_RECORD=1`` takes
over what the tests find, instead of comparing it.
"""

import fcntl
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from slurm_fleet_at_work import Fleet

from holdfast.adapters.slurm.nodes.state import RememberedJob
from holdfast.model.names import Reason

RECORDED = Path(__file__).parent / "slurm_outcomes.json"
RECORD = "HOLDFAST_RECORD"
FAULTS = {
    "xid-replace": "XID 74, which calls for another machine",
    "xid-reboot": "XID 73, which calls for a reboot",
    "dcgm-ecc": "DCGM reports a double-bit ECC error; the job runs on",
    "crash-with-fault": "a rank dies of XID 74 before the fault is known",
    "gres": "XID 74; the job has GRES, and --no-requeue",
    "bystander": "nothing happens to it, and its neighbors are resumed",
    "killed-process": "a rank is killed; no node has a fault",
    "array": "XID 74 under one task of an array",
    "array-other": "the other task of that array",
    "heterogeneous": "XID 74 under one part of a heterogeneous job",
    "two-on-a-node-1": "XID 74 under two jobs; the first",
    "two-on-a-node-2": "XID 74 under two jobs; the second",
    "supervised": "XID 74 under mode=step, whose supervisor asks for a requeue at last",
    "power-loss": "the machine with the batch script loses its power",
    "partition": "the node is cut off, held by a person, and heard again",
    "slurmctld-killed": "slurmctld crashes after two commands of the resume, and forgets",
    "controller-killed": "the controller is killed before each of its five commands, XID 74 each",
    "prolog": "the check of the Prolog finds bad GPU memory",
    "prolog-while-resumed": "XID 74, and a Prolog of the site fails where the job is to go on",
    "prolog-slurmctld": "the check of PrologSlurmctld knows of a fault",
    "fault-while-completing": "XID 74, and another one while the job still ends",
    "spares-used": "XID 74 twice, with one spare node: it waits for the first repair",
    "provider-fails": "XID 74, and whoever owns the machines refuses every order",
    "no-retries": "XID 74, with max-retry=0",
}  # fmt: skip
"""By the name of the row."""

_BUSY = {"IDLE", "MIXED", "ALLOCATED", "COMPLETING", "RESERVED", "PLANNED"}
_DONE = {"replace": "replaced", "reboot": "rebooted"}
_LOST = {Reason.NODE_SILENT: Reason.NODE_LOST}
"""Whoever notices first that a node has vanished, its silent agent or Slurm, gives the reason."""

_TIMEOUT_S = 60.0
_SETTLES_S = 4.0


class FinalStates:
    """Those of one version of Slurm."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._records = bool(os.environ.get(RECORD))

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
            unsure = {} if counts else {"restarts": None, "attempt": None, "reasons": []}
            return {**found, **unsure}

        assert fault in FAULTS
        if self._records:
            time.sleep(_SETTLES_S)
            _take_over(fault, self._version, look())
            return
        expected = recorded().get(fault, {}).get(self._version)
        if expected is None:
            pytest.fail(f"{fault} of Slurm {self._version} is not recorded: set {RECORD}=1")
        deadline = time.monotonic() + _TIMEOUT_S
        while (found := look()) != expected:
            if time.monotonic() > deadline:
                pytest.fail(f"after {fault} there is {found}, expected {expected}")
            time.sleep(0.2)


def recorded() -> dict[str, dict[str, Any]]:
    """What was recorded, by fault and version."""
    if not RECORDED.exists():
        return {}
    rows = json.loads(RECORDED.read_text(encoding="utf-8"))
    return {row["row"]: row["slurm"] for row in rows}


def _take_over(fault: str, version: str, found: Mapping[str, Any]) -> None:
    with RECORDED.with_suffix(".lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rows = recorded()
        rows.setdefault(fault, {})[version] = dict(found)
        table = [
            {"row": name, "fault": text, "slurm": dict(sorted(rows[name].items()))}
            for name, text in FAULTS.items()
            if name in rows
        ]
        RECORDED.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    RECORDED.with_suffix(".lock").unlink(missing_ok=True)


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
        "reasons": reasons,
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
