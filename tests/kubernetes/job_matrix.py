"""Jobs of every kind through faults of every kind, side by side."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from chronicle import Chronicle, Json
from gangs import Indexed, Mpi, Set
from light_fleet import LightFleet
from training import ON, PODS, Training

from holdfast.model.health import Remedy
from holdfast.model.names import APP_MAX_RETRY_COUNT, JOB_RECORD, LOG_MONITORING, Labels

EVENTS = "/api/v1/namespaces/default/events"
KINDS: Mapping[str, type[Training]] = {one.kind: one for one in (Training, Mpi, Set, Indexed)}
PATIENCE_S = 240
BY_CHANCE = frozenset(("JobWaiting", "PodsRemoved"))
"""Events of jobs whose nodes, or whose pods, take their time."""

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
    fault: str
    """In words, for the page."""

    script: Script
    nodes: int = 2
    """In the group of the job, which takes two of them."""

    annotations: Mapping[str, str] = field(default_factory=dict)
    tells: frozenset[str] = frozenset()
    """Which of ``BY_CHANCE`` belong to it; elsewhere they depend on how fast this machine is."""

    kinds: tuple[str, ...] = ()
    """All, if empty."""

    is_told: bool = True
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
        """In the order of their ranks; without a launcher, which may be anywhere."""
        found = [
            pod
            for pod in self.chronicle.now(PODS)
            if pod["metadata"].get("labels", {}).get(self.job.pod_label) == self.job.name
            and "-launcher" not in pod["metadata"]["name"]
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
        return [
            one
            for number, one in enumerate(reasons)
            if one not in BY_CHANCE or (one in self.row.tells and reasons.index(one) == number)
        ]

    @property
    def outcome(self) -> Json:
        record = self.record
        causes = [one["failure"]["reason"] for one in record.get("attempts", ())]
        return {
            "phase": record.get("phase"),
            "attempt": record.get("attempt"),
            "hardware": record.get("hardware_retries"),
            "application": record.get("app_retries"),
            "causes": causes if self.row.is_told else [],
            "events": self.events if self.row.is_told else [],
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
        if self.kind is Training:  # restartPolicy OnFailure
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
    deadline = time.monotonic() + PATIENCE_S
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


# The rows


def a_fault(remedy: Remedy) -> Script:
    def script(cell: Cell) -> Iterator[Until]:
        yield cell.runs(1)
        cell.breaks(1, remedy)

    return script


def silence(cell: Cell) -> Iterator[Until]:
    yield cell.runs(1)
    name = cell.nodes[1]
    cell.fleet.cluster.nodes.hang(name)

    def is_noticed() -> bool:
        cell.fleet.falls_silent(name)
        return cell.phase != "running"

    yield Until("noticed", is_noticed)


def eviction(cell: Cell) -> Iterator[Until]:
    yield cell.runs(1)
    name = cell.pods[1]["metadata"]["name"]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    cell.fleet.api.create(f"{PODS}/{name}/eviction", body)


def an_exit(code: int, reason: str, times: int = 1) -> Script:
    def script(cell: Cell) -> Iterator[Until]:
        for attempt in range(1, times + 1):
            yield cell.runs(attempt)
            cell.fails(code, reason)

    return script


def a_hang(cell: Cell) -> Iterator[Until]:
    """Its ranks print a loss once, and nothing more."""
    cell.fleet.logs.serve(*cell.members)
    yield cell.runs(1)
    for pod in cell.pods:
        cell.fleet.logs.say(pod["metadata"]["name"], "step 1 loss=0.5")


def two_faults(cell: Cell) -> Iterator[Until]:
    yield cell.runs(1)
    cell.breaks(0)
    cell.breaks(1)


def a_fault_during_the_restart(cell: Cell) -> Iterator[Until]:
    """The replacement fails before the ranks of the next attempt run on it."""
    yield from no_spare(cell, then=cell.fleet.frozen.add)

    def bound() -> set[str]:
        return {pod["spec"].get("nodeName", "") for pod in cell.pods} - {"", *cell.members}

    yield Until("bound to the replacement", bound)
    cell.fleet.frozen.discard(cell.group)
    cell.fleet.breaks(bound().pop(), Remedy.REPLACE)


def no_spare(cell: Cell, then: Callable[[str], None] = lambda group: None) -> Iterator[Until]:
    yield cell.runs(1)
    cell.fleet.held.add(cell.group)
    cell.breaks(1)
    yield Until("told to wait", lambda: cell.phase == "waiting" and "JobWaiting" in cell.events)
    then(cell.group)
    cell.fleet.held.discard(cell.group)


def let_go_while_down(cell: Cell) -> Iterator[Until]:
    yield from no_spare(cell, then=lambda group: cell.annotate(enabled=None))
    yield Until("let go", lambda: cell.record == {} and not cell.job.is_suspended)


def fewer_retries(cell: Cell) -> Iterator[Until]:
    yield cell.runs(1)
    cell.fails(3)
    yield cell.runs(2)
    cell.annotate(app_retries="1")
    cell.fails(3)


def bad_switch(cell: Cell) -> Iterator[Until]:
    def runs() -> bool:
        return [pod["status"]["phase"] for pod in cell.pods] == ["Running", "Running"]

    yield Until("runs", lambda: cell.events and runs())
    cell.fails(1)


def nothing(cell: Cell) -> Iterator[Until]:
    yield cell.runs(1)


_WAITS = frozenset({"JobWaiting"})
_RULE = {
    "name": "Steps",
    "logPattern": r".*loss=(\S+)",
    "expectedRecurringFrequencyInSeconds": 3,
}
_PYTORCH = (Training.kind,)

ROWS = (
    Row("xid-replace", "XID that calls for another machine", a_fault(Remedy.REPLACE), nodes=3),
    Row("xid-reboot", "XID that calls for a reboot", a_fault(Remedy.REBOOT), nodes=3),
    Row(
        "silent-node",
        "kubelet and agent of a node fall silent",
        silence,
        nodes=3,
        tells=frozenset({"PodsRemoved"}),
    ),
    Row("eviction", "a pod is evicted", eviction),
    Row("oom", "a pod is OOM-killed", an_exit(137, "OOMKilled")),
    Row("exception", "a rank ends with exit code 1", an_exit(1, "Error")),
    Row(
        "hang",
        "the log of a job says nothing for longer than its rule allows",
        a_hang,
        annotations={LOG_MONITORING: json.dumps([_RULE])},
    ),
    Row("two-faults", "both nodes fail at once", two_faults, nodes=4),
    Row(
        "fault-in-restart",
        "the replacement fails before the next attempt runs",
        a_fault_during_the_restart,
        tells=BY_CHANCE,
    ),
    Row("no-spare", "no machine can be had for a while", no_spare, tells=_WAITS),
    Row(
        "failures-spent",
        "two exceptions, with one restart for them",
        an_exit(3, "Error", times=2),
        annotations={APP_MAX_RETRY_COUNT: "1"},
    ),
    Row(
        "faults-spent",
        "XID, with no restart for faults of nodes",
        a_fault(Remedy.REPLACE),
        annotations={LABELS.job_max_retry_count: "0"},
    ),
    Row("bystander", "nothing happens to it", nothing),
    Row(
        "let-go",
        "its annotation is removed while it is down",
        let_go_while_down,
        tells=_WAITS,
        kinds=_PYTORCH,
    ),
    Row(
        "fewer-retries",
        "its restarts are lowered between two exceptions",
        fewer_retries,
        kinds=_PYTORCH,
    ),
    Row(
        "bad-switch",
        'it is switched on by "yes"; a rank ends with exit code 1',
        bad_switch,
        annotations={LABELS.enable_job_auto_resume: "yes"},
        kinds=_PYTORCH,
    ),
    Row(
        "bad-counts",
        "it asks for -1 and for 10^9 restarts; a rank ends with exit code 1",
        an_exit(1, "Error"),
        annotations={LABELS.job_max_retry_count: "-1", APP_MAX_RETRY_COUNT: "1000000000"},
        kinds=_PYTORCH,
    ),
)
OPERATORS_AWAY = Row(
    "operators-away",
    "XID while all operators are down; they come back",
    nothing,
    nodes=3,
)
KILLED = Row(
    "killed", "XID; the controller is killed at each step", nothing, nodes=3, is_told=False
)
KILLED_SPENT = Row(
    "killed-spent",
    "XID, with no restart for faults; the controller is killed at each step",
    nothing,
    annotations={LABELS.job_max_retry_count: "0"},
    kinds=_PYTORCH,
    is_told=False,
)


def cells(fleet: LightFleet, chronicle: Chronicle, *rows: Row) -> list[Cell]:
    return [
        Cell(fleet, chronicle, kind, row)
        for row in rows
        for name, kind in KINDS.items()
        if name in (row.kinds or KINDS)
    ]
