"""What must hold for every job at every moment, judged by what the API server saw."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from chronicle import Change, Json
from job_cells import Cell
from training import PODS

from holdfast.adapters.kubernetes.jobs.requests import MAX_APP_RETRIES
from holdfast.model.names import APP_MAX_RETRY_COUNT, JOB_RECORD, Labels


@dataclass
class _Remediation:
    """What was seen of one job so far."""

    cell: Cell
    record: Json = field(default_factory=dict)
    is_suspended: bool = False
    alive: dict[str, int] = field(default_factory=dict)
    """Pods that have not ended, by uid, and the attempt in which each was made."""

    def job(self, change: Change) -> None:
        about, spec = change.content["metadata"], change.content["spec"]
        annotations = about.get("annotations", {})
        before, self.record = self.record, json.loads(annotations.get(JOB_RECORD, "{}"))
        self.is_suspended = spec.get("runPolicy", spec).get("suspend") is True
        if not self.record:
            return
        record, labels, name = self.record, Labels(), self.cell.group
        assert record["attempt"] - before.get("attempt", 1) in (0, 1), f"{name} skips an attempt"
        spent = record["hardware_retries"], record["app_retries"]
        known = self.cell.job.annotations
        hardware = _count(known[labels.job_max_retry_count], 1)
        application = _count(known.get(APP_MAX_RETRY_COUNT, ""), MAX_APP_RETRIES)
        assert spent[0] <= hardware, f"{name} is restarted too often for its nodes"
        assert spent[1] <= application, f"{name} is restarted too often for itself"
        failures = [one["failure"] for one in record.get("attempts", ())]
        over = [one["kind"] for one in failures if one is not None]  # a success has none
        paid = sum(spent) + over.count("requested")
        if record["phase"] != "failed":
            begun = paid + (record["phase"] != "waiting")
            assert record["attempt"] == begun, f"{name}: a restart that nobody paid for"

    def pod(self, change: Change) -> None:
        about, name = change.content["metadata"], self.cell.group
        uid, attempt = about["uid"], self.record.get("attempt", 1)
        has_ended = change.content["status"].get("phase") in ("Succeeded", "Failed")
        if change.is_deletion or has_ended:
            self.alive.pop(uid, None)
        elif uid not in self.alive:
            older = {one for one in self.alive.values() if one < attempt}
            assert not older, f"{name}: attempts {older} and {attempt} run at once"
            self.alive[uid] = attempt


def monitor(changes: Iterable[Change], cells: Iterable[Cell]) -> None:
    """No two attempts at once, no restart too many, nothing suspended for ever."""
    remediations = {(one.job.collection, one.job.name): _Remediation(one) for one in cells}
    for change in changes:
        if change.path == PODS:
            labels = change.content["metadata"].get("labels", {})
            for remediation in remediations.values():
                if remediation.cell.job.owns(labels):
                    remediation.pod(change)
        elif (change.path, change.name) in remediations:
            remediations[change.path, change.name].job(change)
    for remediation in remediations.values():
        is_over = remediation.record.get("phase") == "failed"
        assert is_over or not remediation.is_suspended, f"{remediation.cell.group} stays suspended"


def untouched(changes: Iterable[Change], cell: Cell) -> None:
    """Nothing was done to a job or its pods once they ran."""
    own = [
        one
        for one in changes
        if one.path == PODS and cell.job.owns(one.content["metadata"].get("labels", {}))
    ]
    assert not [one for one in own if one.is_deletion], f"{cell.group} lost a pod"
    jobs = [one for one in changes if (one.path, one.name) == (cell.job.collection, cell.job.name)]
    specs = [one.content["spec"].get("runPolicy", one.content["spec"]) for one in jobs]
    assert not [one for one in specs if one.get("suspend")], f"{cell.group} was suspended"


def _count(text: str, default: int) -> int:
    return int(text) if text.isdecimal() and len(text) < 5 else default
