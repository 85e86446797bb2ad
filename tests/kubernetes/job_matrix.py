"""Jobs of every kind through faults of every kind: the rows."""

import json
import time
from collections.abc import Callable, Iterator

from job_cells import EVERY, LABELS, Cell, Row, Script, Until
from training import PODS, Training

from holdfast.model.health import Remedy
from holdfast.model.names import APP_MAX_RETRY_COUNT, LOG_MONITORING

SILENT_AGAIN_S = 1
"""Between two times at which a machine that is to be silent loses its leases."""


def a_fault(remedy: Remedy) -> Script:
    def script(cell: Cell) -> Iterator[Until]:
        yield cell.runs(1)
        cell.breaks(1, remedy)

    return script


def silence(cell: Cell) -> Iterator[Until]:
    yield cell.runs(1)
    name = cell.nodes[1]
    cell.fleet.cluster.nodes.hang(name)
    silent_again = time.monotonic()

    def is_noticed() -> bool:
        nonlocal silent_again
        if time.monotonic() >= silent_again:  # a renewal of its lease was perhaps under way
            cell.fleet.falls_silent(name)
            silent_again = time.monotonic() + SILENT_AGAIN_S
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
        cell.fleet.logs.write_lines(pod["metadata"]["name"], "step 1 loss=0.5")


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
    Row(
        "xid-replace",
        a_fault(Remedy.REPLACE),
        nodes=3,
        kinds=EVERY,
    ),
    Row("xid-reboot", a_fault(Remedy.REBOOT), nodes=3),
    Row(
        "silent-node",
        silence,
        nodes=3,
        kinds=EVERY,
    ),
    Row("eviction", eviction),
    Row("oom", an_exit(137, "OOMKilled")),
    Row("exception", an_exit(1, "Error"), kinds=EVERY),
    Row(
        "hang",
        a_hang,
        annotations={LOG_MONITORING: json.dumps([_RULE])},
    ),
    Row("two-faults", two_faults, nodes=4),
    Row(
        "fault-in-restart",
        a_fault_during_the_restart,
        tells=_WAITS,  # Kubernetes may remove the pods of the machine that is gone first
    ),
    Row("no-spare", no_spare, tells=_WAITS),
    Row(
        "failures-spent",
        an_exit(3, "Error", times=2),
        annotations={APP_MAX_RETRY_COUNT: "1"},
        kinds=EVERY,
    ),
    Row(
        "faults-spent",
        a_fault(Remedy.REPLACE),
        annotations={LABELS.job_max_retry_count: "0"},
        kinds=EVERY,
    ),
    Row("bystander", nothing),
    Row(
        "let-go",
        let_go_while_down,
        tells=_WAITS,
        kinds=_PYTORCH,
    ),
    Row(
        "fewer-retries",
        fewer_retries,
        kinds=_PYTORCH,
    ),
    Row(
        "bad-switch",
        bad_switch,
        annotations={LABELS.enable_job_auto_resume: "yes"},
        kinds=_PYTORCH,
    ),
    Row(
        "bad-counts",
        an_exit(1, "Error"),
        annotations={LABELS.job_max_retry_count: "-1", APP_MAX_RETRY_COUNT: "1000000000"},
        kinds=_PYTORCH,
    ),
)
OPERATORS_AWAY = Row(
    "operators-away",
    nothing,
    nodes=3,
)
KILLED = Row("controller-killed", nothing, nodes=3, is_reported=False)
KILLED_SPENT = Row(
    "controller-killed-spent",
    nothing,
    annotations={LABELS.job_max_retry_count: "0"},
    kinds=_PYTORCH,
    is_reported=False,
)
