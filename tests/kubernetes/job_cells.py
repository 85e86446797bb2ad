"""Jobs on groups of nodes of their own, which a script befalls, side by side."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from chronicle import Chronicle, Json
from gangs import Indexed, Mpi, Set
from light_fleet import LightFleet
from rays import RayCluster, RayJob
from trainers import Train
from training import ON, PODS, Training

from holdfast.model.health import Remedy
from holdfast.model.names import APP_MAX_RETRY_COUNT, JOB_RECORD, Labels

EVENTS = "/api/v1/namespaces/default/events"
KINDS: Mapping[str, type[Training]] = {
    one.kind: one for one in (Training, Mpi, Set, Indexed, Train, RayCluster, RayJob)
}
EVERY = tuple(KINDS)
SINGLE = (Training.kind, Mpi.kind, Set.kind, Indexed.kind)
"""Kinds that one operator runs; the others are played where it may matter that several do."""

TIMEOUT_S = 480
BY_CHANCE = frozenset(("JobWaiting", "PodsRemoved"))
"""Events of jobs whose nodes, or whose pods, take their time. Pods of a lost machine are deleted
by the stop of their job, which has an Event, or before it by the drain of their node."""

LABELS = Labels()


@dataclass(frozen=True)
class Until:
    """What has to come true before a cell goes on."""

    what: str
    holds: Callable[[], object]


Script = Callable[["Cell"], Iterator[Until]]


@dataclass(frozen=True)
class Row:
    """A fault, and the job that it befalls."""

    name: str
    """Row of the fault matrix."""

    script: Script
    nodes: int = 2
    """In the group of the job, which takes two of them."""

    annotations: Mapping[str, str] = field(default_factory=dict)
    tells: frozenset[str] = frozenset()
    """Which of ``BY_CHANCE`` belong to it; elsewhere they depend on how fast this machine is."""

    kinds: tuple[str, ...] = SINGLE

    is_reported: bool = True
    """Whether all Events get through, and the cause of each stop is known: what a controller could
    not tell in time dies with it, and the next one may come when the node is gone."""


@dataclass
class Cell:
    """One job on its own group of nodes."""

    fleet: LightFleet
    chronicle: Chronicle
    kind: type[Training]
    row: Row

    def __post_init__(self) -> None:
        self.group = f"{self.kind.kind}-{self.row.name}".lower()
        self.job = self.kind(
            self.fleet.cluster,
            self.fleet.api,
            name=self.group,
            annotations={**ON, **self.row.annotations},
            group=self.group,
        )

    @property
    def members(self) -> list[str]:
        """The nodes of its group, at first."""
        return [f"{self.group}-{number}" for number in range(self.row.nodes)]

    @property
    def object(self) -> Json | None:
        return self.chronicle.get(self.job.collection, self.job.name)

    @property
    def record(self) -> Json:
        annotations = (self.object or {}).get("metadata", {}).get("annotations", {})
        return json.loads(annotations.get(JOB_RECORD, "{}"))

    @property
    def phase(self) -> str | None:
        return self.record.get("phase")

    @property
    def pods(self) -> list[Json]:
        """In the order of their ranks; without a launcher or a head, which may be anywhere."""
        found = [
            pod
            for pod in self.chronicle.now(PODS)
            if self.job.owns(pod["metadata"].get("labels", {}))
            and any(one.get("resources", {}).get("limits") for one in pod["spec"]["containers"])
        ]
        return sorted(found, key=lambda pod: pod["metadata"]["name"])

    @property
    def nodes(self) -> list[str]:
        return [pod["spec"].get("nodeName", "") for pod in self.pods]

    @property
    def events(self) -> list[str]:
        """Their reasons, in the order in which they were told first."""
        uid = (self.object or {}).get("metadata", {}).get("uid")
        reasons = [
            one["reason"]
            for one in self.chronicle.now(EVENTS)
            if one["involvedObject"].get("uid") == uid
            and one["source"].get("component") == "holdfast-controller"
            and (one["reason"] != "JobWaiting" or "waiting for nodes" in one["message"])
        ]
        return [one for number, one in enumerate(reasons) if self._counts(number, reasons)]

    def _counts(self, number: int, reasons: list[str]) -> bool:
        """Whether an Event is looked at."""
        reason = reasons[number]
        is_first = reason not in reasons[:number]
        return reason not in BY_CHANCE or (reason in self.row.tells and is_first)

    @property
    def outcome(self) -> Json:
        record = self.record
        causes = [one["failure"]["reason"] for one in record.get("attempts", ())]
        return {
            "job": record.get("phase"),
            "attempt": record.get("attempt"),
            "hardware": record.get("hardware_retries"),
            "application": record.get("app_retries"),
            "causes": causes if self.row.is_reported else [],
            "events": self.events if self.row.is_reported else [],
        }

    # What scripts wait for

    def runs(self, attempt: int) -> Until:
        def holds() -> bool:
            record = self.record
            return record.get("phase") == "running" and record["attempt"] == attempt

        return Until(f"attempt {attempt} runs", holds)

    def is_in(self, phase: str) -> Until:
        return Until(phase, lambda: self.phase == phase)

    # What scripts do

    def breaks(self, rank: int, remedy: Remedy = Remedy.REPLACE) -> None:
        self.fleet.breaks(self.nodes[rank], remedy)

    def fails(self, code: int, reason: str = "Error") -> None:
        """The container of the last rank ends."""
        pod = self.pods[-1]
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        ended = {"exitCode": code, "reason": reason, "startedAt": now, "finishedAt": now}
        (status,) = pod["status"]["containerStatuses"]
        if self.kind.restarts_in_place:
            status = {**status, "restartCount": 1, "lastState": {"terminated": ended}}
            change: dict[str, Any] = {"containerStatuses": [status]}
        else:
            status = {**status, "ready": False, "state": {"terminated": ended}}
            change = {"phase": "Failed", "containerStatuses": [status]}
        self.fleet.api.patch(f"{PODS}/{pod['metadata']['name']}/status", {"status": change})

    def annotate(self, **annotations: str | None) -> None:
        keys = {"enabled": LABELS.enable_job_auto_resume, "app_retries": APP_MAX_RETRY_COUNT}
        changed = {keys[key]: value for key, value in annotations.items()}
        path = f"{self.job.collection}/{self.job.name}"
        self.fleet.api.patch(path, {"metadata": {"annotations": changed}})


def play(cells: Iterable[tuple[Cell, Script]]) -> None:
    """Let scripts go on side by side until each has come to its end."""
    waiting = {}
    for number, (cell, script) in enumerate(cells):
        waiting[number] = (cell, steps := script(cell), next(steps, None))
    deadline = time.monotonic() + TIMEOUT_S
    while waiting:
        for number, (cell, steps, until) in list(waiting.items()):
            if until is None:
                del waiting[number]
            elif until.holds():
                waiting[number] = (cell, steps, next(steps, None))
        if time.monotonic() > deadline:
            stuck = [f"{c.group}: not {u.what}: {c.outcome}" for c, _, u in waiting.values() if u]
            raise AssertionError("\n".join(stuck))
        time.sleep(0.05)


def cells(fleet: LightFleet, chronicle: Chronicle, *rows: Row) -> list[Cell]:
    return [
        Cell(fleet, chronicle, kind, row)
        for row in rows
        for name, kind in KINDS.items()
        if name in row.kinds
    ]
