"""The fault matrix: faults, the platforms and kinds of jobs that they were tried on, the outcomes.

``tests/fault_matrix.json`` has what tests recorded: by fault and column, the outcome, seconds from
the fault to each phase, the load of the machine then (1 minute, per core), and the test.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

RECORDED: Final = Path(__file__).parents[1] / "tests" / "fault_matrix.json"

LOCAL: Final = "one machine"
OPERATORS: Final = "Kubernetes operators"
NODES: Final = "Kubernetes nodes"
SLURM: Final = "Slurm"
PLATFORMS: Final[Mapping[str, tuple[str, ...]]] = {
    LOCAL: ("processes",),
    OPERATORS: ("PyTorchJob", "MPIJob", "JobSet", "Job", "TrainJob", "RayCluster", "RayJob"),
    NODES: ("Job", "PyTorchJob", "MPIJob", "JobSet", "TrainJob"),
    SLURM: ("22.05", "24.11"),
}
"""Kinds of jobs of each platform; of Slurm, its versions."""

COLUMNS: Final = tuple(
    f"{platform}/{kind}" for platform, kinds in PLATFORMS.items() for kind in kinds
)

TITLES: Final = ("Case", "On", "Result", "Node", "Causes", "Retries used", "Events", "Test")
SECONDS_TITLES: Final = ("Case", "On", "Seconds after the fault", "Load")

RUNGS: Final[Mapping[str, str]] = {
    "in-place": "restarted in place",
    "hot-spare": "exchanged for a hot spare",
    "another-node": "exchanged for another node",
    "whole-job": "whole job restarted",
}
"""Rungs of the restart ladder that a job with launchers used, from the cheapest."""

RUNGS_TITLES: Final = ("Case", "On", "Rung", "Seconds after the fault", "Load")

_UNTESTED: Final = "not tested"
_KUBERNETES: Final = (OPERATORS, NODES)


class Fault(NamedTuple):
    """A row: a fault, or a condition that a job is in while one happens."""

    part: str
    """What breaks."""

    title: str
    exists_on: tuple[str, ...] = tuple(PLATFORMS)
    """Platforms that have what breaks."""

    other: str = _UNTESTED
    """Why there is no result where it exists."""


_ONE_KIND: Final = "not tested; the decision is that of the other platforms"
_LAUNCHERS: Final = "not timed; its launchers are the same"
_AT_RANDOM: Final = "only at random, in `make chaos`"
_NEEDS_REAL: Final = "not tested; simulated nodes cannot show it"

FAULTS: Final[Mapping[str, Fault]] = {
    "xid-replace": Fault("hardware", "XID that calls for another machine"),
    "xid-reboot": Fault("hardware", "XID that calls for a reboot", other=_ONE_KIND),
    "xid-application": Fault("hardware", "XID that the application causes", other=_ONE_KIND),
    "dcgm-ecc": Fault("hardware", "DCGM reports a double-bit ECC error; the job keeps running",
                      other=_ONE_KIND),
    "crash-with-fault": Fault("hardware", "a rank dies of an XID before the fault is known"),
    "two-faults": Fault("hardware", "both nodes of the job fail at once"),
    "fault-in-restart": Fault("hardware", "the replacement fails before the next attempt runs"),
    "fault-while-completing": Fault("hardware", "another XID while the job still ends"),
    "faults-spent": Fault("hardware", "XID, with no restart for faults of nodes"),
    "gres": Fault("hardware", "XID; the job has GRES, and --no-requeue", (SLURM,)),
    "array": Fault("hardware", "XID under one task of an array", (SLURM,)),
    "array-other": Fault("hardware", "the other task of that array", (SLURM,)),
    "heterogeneous": Fault("hardware", "XID under one part of a heterogeneous job", (SLURM,)),
    "two-on-a-node-1": Fault("hardware", "XID under two jobs; the first", (SLURM,)),
    "two-on-a-node-2": Fault("hardware", "XID under two jobs; the second", (SLURM,)),
    "supervised": Fault("hardware", "XID under mode=step; its supervisor requests a requeue",
                        (SLURM,)),
    "prolog": Fault("hardware", "the check of the Prolog finds bad GPU memory", (SLURM,)),
    "prolog-slurmctld": Fault("hardware", "the check of PrologSlurmctld knows of a fault",
                              (SLURM,)),
    "prolog-while-resumed": Fault("hardware", "XID, and a Prolog of the site fails on the node of "
                                  "the next attempt", (SLURM,)),
    "bystander": Fault("none", "nothing; jobs on other nodes are resumed"),
    "exception": Fault("rank", "a rank ends with exit code 1"),
    "killed-process": Fault("rank", "a rank is killed; no node has a fault"),
    "oom": Fault("rank", "a rank is OOM-killed"),
    "full-disk": Fault("storage", "the disk of the checkpoints is full; rank 0 saves"),
    "eviction": Fault("rank", "a pod is evicted", _KUBERNETES),
    "hang": Fault("rank", "the log of a job has no new lines for longer than its rule allows",
                  _KUBERNETES),
    "heartbeat": Fault("rank", "the heartbeat files of a job get old", _KUBERNETES),
    "ignores-sigterm": Fault("rank", "XID; ranks ignore SIGTERM", other=_NEEDS_REAL),
    "failures-spent": Fault("rank", "two exceptions, with one restart for them"),
    "launch-rank": Fault("rank", "a rank under `holdfast launch` is killed", other=_LAUNCHERS),
    "launch-node": Fault("launcher", "a launcher is killed; the job has a hot spare",
                         other=_LAUNCHERS),
    "launch-spent": Fault("rank", "a rank under `holdfast launch` fails, with no restart in place",
                          other=_LAUNCHERS),
    "launch-repair": Fault("hardware", "XID under `holdfast launch`; the job has a hot spare",
                           other=_LAUNCHERS),
    "launch-exchange": Fault("hardware", "XID under `holdfast launch`, then a rank fails; without "
                             "a hot spare", other=_LAUNCHERS),
    "launch-power-loss": Fault("node", "a node loses its power under `holdfast launch`; without a "
                               "hot spare, with a spare node", other=_LAUNCHERS),
    "launch-no-spare": Fault("node", "a node loses its power under `holdfast launch`; without any "
                             "spare", other=_LAUNCHERS),
    "operators-away": Fault("launcher", "XID while all operators are down; they come back",
                            _KUBERNETES),
    "agent-killed": Fault("agent", "the agent of a node is killed"),
    "controller-killed": Fault("controller", "XID; the controller is killed at each step"),
    "controller-killed-spent": Fault(
        "controller", "XID, with no restart for faults; the controller is killed at each step"),
    "unreliable-api": Fault("controller", "XID while the API server is slow, pauses, refuses, and "
                            "loses requests and answers", _KUBERNETES, _AT_RANDOM),
    "etcd": Fault("etcd", "XIDs while etcd stops, has no space, is killed, and is slow",
                  _KUBERNETES, _AT_RANDOM),
    "leader-deleted": Fault("controller", "XID while the pod of the leader is deleted",
                            _KUBERNETES, _NEEDS_REAL),
    "holdfast-away": Fault("controller", "XID while Holdfast is upgraded and installed again",
                           _KUBERNETES, _NEEDS_REAL),
    "silent-node": Fault("node", "a node hangs: its kubelet or slurmd and its agent fall silent"),
    "power-loss": Fault("node", "a machine loses its power", other=_NEEDS_REAL),
    "partition": Fault("network", "a node is cut off from the network",
                       (*_KUBERNETES, SLURM), _NEEDS_REAL),
    "slurmctld-killed": Fault(
        "slurmctld", "slurmctld crashes after two commands of the resume, and forgets", (SLURM,)),
    "provider-fails": Fault("provider", "XID, and the owner of the machines refuses every order"),
    "no-spare": Fault("provider", "XID, and no machine can be had for a while"),
    "spares-used": Fault("provider", "two XIDs, with one spare node: the job waits for the first "
                         "repair"),
    "request": Fault("people", "a replacement is requested"),
    "budget": Fault("people", "XID; a PodDisruptionBudget protects a pod of the node",
                    _KUBERNETES, _NEEDS_REAL),
    "let-go": Fault("people", "the annotation of a job is removed while it is down", _KUBERNETES),
    "fewer-retries": Fault("people", "restarts of a job are lowered between two exceptions",
                           _KUBERNETES),
    "bad-switch": Fault("people", 'auto-resume is "yes"; a rank ends with exit code 1',
                        _KUBERNETES),
    "bad-counts": Fault("people", "a job requests -1 and 10^9 restarts; a rank ends with exit "
                        "code 1", _KUBERNETES),
}  # fmt: skip


_NEIGHBOR: Final = "24.11 may set the neighbor of a dead node down, too, and leave it so"
EMPTY: Final[Mapping[tuple[str, str], str]] = {
    ("partition", "Slurm/24.11"): _NEIGHBOR,
    ("power-loss", "Slurm/24.11"): _NEIGHBOR,
}
"""Why single cells have no result."""


def recorded() -> dict[str, dict[str, dict[str, Any]]]:
    """Results by fault and column."""
    if not RECORDED.exists():
        return {}
    known: dict[str, dict[str, dict[str, Any]]] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return known


def outcome(fault: str, column: str) -> dict[str, Any] | None:
    """The recorded outcome; None if there is none."""
    result = recorded().get(fault, {}).get(column)
    return None if result is None else result["outcome"]


def why_empty(name: str, column: str) -> str:
    """Why a cell has no result; of a platform instead of a column, why all its cells have none."""
    fault, platform = FAULTS[name], column.partition("/")[0]
    usual = fault.other if platform in fault.exists_on else "does not exist here"
    return EMPTY.get((name, column), usual)


def cell(result: Mapping[str, Any]) -> str:
    """A result in a few words."""
    return _end(result["outcome"]) + _total(result.get("seconds", {}))


def overview() -> Iterator[tuple[str, ...]]:
    """One row per fault: what breaks, the fault, and the results on each platform."""
    known = recorded()
    for name, fault in FAULTS.items():
        cells = (_platform_cell(name, platform, known.get(name, {})) for platform in PLATFORMS)
        yield fault.part, fault.title, *cells


def details() -> Iterator[tuple[str, ...]]:
    """One row per fault and outcome; columns with the same outcome share it."""
    for name, fault in FAULTS.items():
        alike: dict[str, list[str]] = {}
        for column, result in recorded().get(name, {}).items():
            key = json.dumps([result["outcome"], result["test"]])
            alike.setdefault(key, []).append(column)
        for key, columns in alike.items():
            outcome, test = json.loads(key)
            yield fault.title, _on(columns), *_detail_cells(outcome), f"`{test}`"


def seconds() -> Iterator[tuple[str, ...]]:
    """One row per result of which phases were timed."""
    for name, fault in FAULTS.items():
        for column, result in recorded().get(name, {}).items():
            if result.get("seconds"):
                phases = (f"{phase} {value:g}" for phase, value in result["seconds"].items())
                yield fault.title, _on([column]), ", ".join(phases), f"{result['load']:.1f}"


def rungs() -> Iterator[tuple[str, ...]]:
    """One row per result of a job with launchers."""
    for name, fault in FAULTS.items():
        for column, result in recorded().get(name, {}).items():
            if rung := result["outcome"].get("rung"):
                load = f"{result['load']:.1f}" if "load" in result else ""
                took = _took(result).removeprefix(" in ")
                yield fault.title, _on([column]), RUNGS[rung], took or "not timed", load


def _took(result: Mapping[str, Any]) -> str:
    """Seconds from the fault to the next round, or to the end where there is none."""
    seconds = result.get("seconds", {})
    if "resumed" in seconds:
        return f" in {seconds['resumed']:g} s"
    return f" in {seconds['stopped']:g} s, without the restart" if "stopped" in seconds else ""


def _platform_cell(name: str, platform: str, results: Mapping[str, Any]) -> str:
    alike: dict[str, list[str]] = {}
    for kind in PLATFORMS[platform]:
        if result := results.get(f"{platform}/{kind}"):
            took = _took(result) if "rung" in result["outcome"] else ""
            alike.setdefault(_end(result["outcome"]), []).append(kind + took)
    if not alike:
        return f"*{why_empty(name, platform)}*"
    return "; ".join(f"{end} ({', '.join(kinds)})" for end, kinds in alike.items())


def _on(columns: list[str]) -> str:
    kinds: dict[str, list[str]] = {}
    for column in columns:
        platform, _, kind = column.partition("/")
        kinds.setdefault(platform, []).append(kind)
    return "; ".join(f"{platform}: {', '.join(found)}" for platform, found in kinds.items())


def _end(outcome: Mapping[str, Any]) -> str:
    job = outcome["job"]
    if "rung" in outcome:
        return RUNGS[outcome["rung"]]
    if not job:
        return "left alone" if job is None else f"node {outcome['node']}"
    attempt = outcome.get("attempt")
    return str(job).lower() + ("" if attempt is None else f", attempt {attempt}")


def _total(seconds: Mapping[str, float]) -> str:
    return f", resumed after {seconds['resumed']:g} s" if "resumed" in seconds else ""


def _detail_cells(outcome: Mapping[str, Any]) -> tuple[str, ...]:
    causes = (
        one if " " in one else f"`{one}`" for one in dict.fromkeys(outcome.get("causes") or ())
    )
    spent = (
        f"{name} {outcome[name]}"
        for name in ("hardware", "application", "restarts")
        if outcome["job"] and outcome.get(name) is not None
    )
    events = (f"`{one}`" for one in outcome.get("events", ()))
    node = outcome.get("node") or ""
    return _end(outcome), node, ", ".join(causes), ", ".join(spent), ", ".join(events)
