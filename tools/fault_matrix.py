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
    OPERATORS: ("PyTorchJob", "MPIJob", "JobSet", "Job", "TrainJob", "RayCluster", "RayJob",
                "HyperPodPyTorchJob"),
    NODES: ("Job", "PyTorchJob", "MPIJob", "JobSet", "TrainJob", "RayCluster", "RayJob"),
    SLURM: ("22.05", "24.11"),
}  # fmt: skip
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


class Fault(NamedTuple):
    """A row: a fault, or a condition that a job is in while one happens."""

    part: str
    """What breaks."""

    title: str


FAULTS: Final[Mapping[str, Fault]] = {
    "xid-replace": Fault("hardware", "XID that calls for another machine"),
    "xid-reboot": Fault("hardware", "XID that calls for a reboot"),
    "xid-application": Fault("hardware", "XID that the application causes"),
    "dcgm-ecc": Fault("hardware", "DCGM reports a double-bit ECC error; the job keeps running"),
    "crash-with-fault": Fault("hardware", "a rank dies of an XID before the fault is known"),
    "two-faults": Fault("hardware", "both nodes of the job fail at once"),
    "fault-in-restart": Fault("hardware", "the replacement fails before the next attempt runs"),
    "fault-while-completing": Fault("hardware", "another XID while the job still ends"),
    "faults-spent": Fault("hardware", "XID, with no restart for faults of nodes"),
    "gres": Fault("hardware", "XID; the job has GRES, and --no-requeue"),
    "array": Fault("hardware", "XID under one task of an array"),
    "array-other": Fault("hardware", "the other task of that array"),
    "heterogeneous": Fault("hardware", "XID under one part of a heterogeneous job"),
    "two-on-a-node-1": Fault("hardware", "XID under two jobs; the first"),
    "two-on-a-node-2": Fault("hardware", "XID under two jobs; the second"),
    "supervised": Fault("hardware", "XID under mode=step; its supervisor requests a requeue"),
    "prolog": Fault("hardware", "the check of the Prolog finds bad GPU memory"),
    "prolog-slurmctld": Fault("hardware", "the check of PrologSlurmctld knows of a fault"),
    "prolog-while-resumed": Fault("hardware", "XID, and a Prolog of the site fails on the node of "
                                  "the next attempt"),
    "bystander": Fault("none", "nothing; jobs on other nodes are resumed"),
    "exception": Fault("rank", "a rank ends with exit code 1"),
    "killed-process": Fault("rank", "a rank is killed; no node has a fault"),
    "oom": Fault("rank", "a rank is OOM-killed"),
    "full-disk": Fault("storage", "the disk of the checkpoints is full; rank 0 saves"),
    "damaged-checkpoint": Fault("checkpoint", "the newest checkpoint is damaged when an attempt "
                                "starts"),
    "eviction": Fault("rank", "a pod is evicted"),
    "hang": Fault("rank", "the log of a job has no new lines for longer than its rule allows"),
    "heartbeat": Fault("rank", "the heartbeat files of a job get old"),
    "ignores-sigterm": Fault("rank", "XID; ranks ignore SIGTERM"),
    "failures-spent": Fault("rank", "two exceptions, with one restart for them"),
    "launch-rank": Fault("rank", "a rank under `holdfast launch` is killed"),
    "launch-node": Fault("launcher", "a launcher is killed; the job has a hot spare"),
    "launch-spent": Fault("rank", "a rank under `holdfast launch` fails, with no restart in place"),
    "launch-repair": Fault("hardware", "XID under `holdfast launch`; the job has a hot spare"),
    "launch-exchange": Fault("hardware", "XID under `holdfast launch`, then a rank fails; without "
                             "a hot spare"),
    "launch-power-loss": Fault("node", "a node loses its power under `holdfast launch`; without a "
                               "hot spare, with a spare node"),
    "launch-no-spare": Fault("node", "a node loses its power under `holdfast launch`; without any "
                             "spare"),
    "keep-pods": Fault("hardware", "XID under a job that keeps the pods on its other nodes"),
    "operators-away": Fault("launcher", "XID while all operators are down; they come back"),
    "agent-killed": Fault("agent", "the agent of a node is killed"),
    "kubelet-killed": Fault("kubelet, slurmd", "the kubelet or slurmd of a node is killed, and "
                            "starts again"),
    "controller-killed": Fault("controller", "XID; the controller is killed at each step"),
    "controller-killed-spent": Fault(
        "controller", "XID, with no restart for faults; the controller is killed at each step"),
    "unreliable-api": Fault("controller", "XID while the API server is slow, pauses, refuses, and "
                            "loses requests and answers"),
    "etcd": Fault("etcd", "XIDs while etcd stops, has no space, is killed, and is slow"),
    "leader-deleted": Fault("controller", "XID while the pod of the leader is deleted"),
    "holdfast-away": Fault("controller", "XID while Holdfast is upgraded and installed again"),
    "silent-node": Fault("node", "a node hangs: its kubelet or slurmd and its agent fall silent"),
    "power-loss": Fault("node", "a machine loses its power"),
    "partition": Fault("network", "a node is cut off from the network"),
    "clock-forward": Fault("clock", "the clock is set forward by 3 hours while a machine boots"),
    "slurmctld-killed": Fault(
        "slurmctld", "slurmctld crashes after two commands of the resume, and forgets"),
    "provider-fails": Fault("provider", "XID, and the owner of the machines refuses every order"),
    "no-spare": Fault("provider", "XID, and no machine can be had for a while"),
    "spares-used": Fault("provider", "two XIDs, with one spare node: the job waits for the first "
                         "repair"),
    "request": Fault("people", "a replacement is requested"),
    "budget": Fault("people", "XID; a PodDisruptionBudget protects a pod of the node"),
    "let-go": Fault("people", "the annotation of a job is removed while it is down"),
    "fewer-retries": Fault("people", "restarts of a job are lowered between two exceptions"),
    "bad-switch": Fault("people", 'auto-resume is "yes"; a rank ends with exit code 1'),
    "bad-counts": Fault("people", "a job requests -1 and 10^9 restarts; a rank ends with exit "
                        "code 1"),
}  # fmt: skip


_SLURM_ONLY: Final = ("gres", "array", "array-other", "heterogeneous", "two-on-a-node-1",
                      "two-on-a-node-2", "supervised", "prolog", "prolog-slurmctld",
                      "prolog-while-resumed", "slurmctld-killed")  # fmt: skip
_KUBERNETES_ONLY: Final = ("keep-pods", "eviction", "hang", "heartbeat", "operators-away",
                           "unreliable-api", "etcd", "leader-deleted", "holdfast-away", "budget",
                           "let-go", "fewer-retries", "bad-switch", "bad-counts")  # fmt: skip
_LAUNCHED: Final = ("launch-rank", "launch-node", "launch-spent", "launch-repair",
                    "launch-exchange", "launch-power-loss", "launch-no-spare")  # fmt: skip
_OF_KUBERNETES_ITSELF: Final = ("leader-deleted", "holdfast-away")
_OF_THE_JOB_ITSELF: Final = ("exception", "oom", "full-disk", "failures-spent")
_OF_ANNOTATIONS: Final = ("let-go", "fewer-retries", "bad-switch", "bad-counts")
_RAY: Final = ("RayCluster", "RayJob")
_RAY_ON_NODES: Final = tuple(f"{NODES}/{kind}" for kind in _RAY)
_SHARED_KINDS: Final = tuple(f"{OPERATORS}/{kind}" for kind in ("TrainJob", *_RAY))


class Reason(NamedTuple):
    """Why cells have no result."""

    text: str
    columns: tuple[str, ...]
    """Platforms, or single columns."""

    faults: tuple[str, ...] = ()
    """Rows; none for all."""

    test: str = ""
    """Test that shows the outcome without recording it; empty if there is none."""

    def has(self, fault: str, column: str) -> bool:
        """Whether it is a reason of a cell; of a platform instead of a column, of all its cells."""
        is_there = column in self.columns or column.partition("/")[0] in self.columns
        return is_there and (not self.faults or fault in self.faults)

    def __str__(self) -> str:
        return f"{self.text}: `{self.test}`" if self.test else self.text


_TESTED: Final = "tested, but not recorded here"
_NOT_THE_JOB: Final = "the fault is not one of the job, so its kind makes no difference"

_ABSENT: Final = (
    Reason("exists on Slurm only", (LOCAL, OPERATORS, NODES), _SLURM_ONLY),
    Reason("exists on Kubernetes only", (LOCAL, SLURM), _KUBERNETES_ONLY),
    Reason("the nodes of one machine have no network between them", (LOCAL,), ("partition",)),
    Reason("a run has one job", (LOCAL,), ("bystander",)),
    Reason("one machine has neither", (LOCAL,), ("kubelet-killed",)),
    Reason("the controller is `holdfast run`; the job ends with it", (LOCAL,),
           ("controller-killed", "controller-killed-spent"),
           "tests/local/test_run_faults.py::test_no_process_survives_holdfast_being_killed"),
    Reason("without containers, a rank that the kernel kills is the killed rank above", (LOCAL,),
           ("oom",)),
    Reason("its pods run no launchers", tuple(f"{OPERATORS}/{kind}" for kind in _RAY),
           ("keep-pods",)),
    Reason("its pods run no launchers", _RAY_ON_NODES, (*_LAUNCHED, "keep-pods")),
)  # fmt: skip
"""What breaks does not exist there."""

_RECORDED_ELSEWHERE: Final = (
    Reason(_TESTED, (LOCAL,), ("exception",),
           "tests/local/test_run_job.py::"
           "test_the_reason_of_a_crash_is_the_exception_of_the_rank_that_failed_first"),
    Reason(_TESTED, (LOCAL,), ("failures-spent",),
           "tests/local/test_run_job.py::test_an_application_that_keeps_failing_spends_its_own_"
           "budget_and_ends_with_the_reason"),
    Reason(_TESTED, (LOCAL,), ("ignores-sigterm",),
           "tests/local/test_run_job.py::"
           "test_a_rank_that_ignores_sigterm_is_killed_after_the_grace_period"),
    Reason(_TESTED, (LOCAL,), ("faults-spent",),
           "tests/local/test_run_faults.py::test_hardware_retries_have_their_own_limit"),
    Reason(_TESTED, (LOCAL,), ("no-spare",),
           "tests/local/test_run_faults.py::"
           "test_without_a_spare_the_job_waits_for_the_replacement"),
    Reason(_TESTED, (SLURM,), ("no-spare",),
           "tests/slurm/test_slurm_resume_nodes.py::"
           "test_a_job_is_given_the_spare_node_and_waits_when_there_is_none"),
    Reason(_TESTED, (SLURM,), ("request",),
           "tests/slurm/test_slurm_recovery.py::test_what_people_and_slurm_ask_for_is_done_when_"
           "the_job_has_ended_and_with_down_at_once"),
    Reason(_TESTED, (SLURM,), ("damaged-checkpoint",),
           "tests/slurm/test_slurm_checkpoint_incidents.py::"
           "test_a_checkpoint_that_a_supervisor_moves_is_an_incident"),
    Reason(_TESTED, (NODES,), ("damaged-checkpoint",),
           "tests/realnodes/test_chart_on_real_nodes.py::"
           "test_the_guard_verifies_checkpoints_in_an_init_container"),
    Reason("tested without a job", (OPERATORS,), ("budget",),
           "tests/kubernetes/test_drain.py::"
           "test_a_disruption_budget_is_respected_until_it_has_room"),
)  # fmt: skip

_SIMULATED: Final = (
    Reason("simulated kubelets run no launchers", (OPERATORS,), _LAUNCHED),
    Reason("Holdfast does not run in pods there", (OPERATORS,), _OF_KUBERNETES_ITSELF),
    Reason("simulated machines hang instead, see that row", (OPERATORS,),
           ("power-loss", "partition")),
    Reason("simulated kubelets run no processes", (OPERATORS,),
           ("killed-process", "full-disk", "heartbeat", "ignores-sigterm", "agent-killed",
            "damaged-checkpoint", "kubelet-killed")),
)  # fmt: skip

_OF_SLURM: Final = (
    Reason("Slurm ends a job that fails by itself, as after the killed rank above", (SLURM,),
           _OF_THE_JOB_ITSELF),
    Reason("Slurm sends SIGKILL itself, after its KillWait", (SLURM,), ("ignores-sigterm",)),
    Reason("to Slurm, it is a machine that loses its power, see that row", (SLURM,),
           ("silent-node",)),
)  # fmt: skip

_ALIKE: Final = (
    Reason("the launchers are those of the platforms with a result", (NODES, SLURM), _LAUNCHED),
    Reason("on real nodes only at random, in `make chaos`", (NODES,), ("unreliable-api", "etcd")),
    Reason("only at random, in `make chaos`", (OPERATORS, SLURM), ("clock-forward",)),
    Reason("decided as on the platforms with a result; all nodes of the tests have one clock",
           (NODES,), ("clock-forward",)),
    Reason(_NOT_THE_JOB, (OPERATORS,), ("unreliable-api", "etcd")),
    Reason("annotations of all kinds are read alike", (OPERATORS,), _OF_ANNOTATIONS),
    Reason("the row above has these kinds, with restarts left", (OPERATORS,),
           ("controller-killed-spent",)),
    Reason("this row does not depend on the number of operators that run a kind", _SHARED_KINDS,
           ("xid-reboot", "two-faults", "fault-in-restart", "bystander", "oom", "eviction", "hang",
            "operators-away", "controller-killed", "no-spare")),
    Reason(_NOT_THE_JOB, (NODES,),
           ("xid-reboot", *_OF_KUBERNETES_ITSELF, "ignores-sigterm", "budget", "agent-killed",
            "kubelet-killed")),
    Reason("logs and files of pods of all kinds are read alike", (NODES,), ("hang", "heartbeat")),
    Reason("its pods end like those of a JobSet, which consists of such jobs", (f"{NODES}/Job",),
           ("killed-process", "full-disk")),
    Reason("API server, scheduler and operators are those of the simulated nodes", (NODES,),
           ("two-faults", "fault-in-restart", "faults-spent", "bystander", "exception", "eviction",
            "failures-spent", "keep-pods", "operators-away", "controller-killed",
            "controller-killed-spent", "silent-node", "no-spare", *_OF_ANNOTATIONS)),
)  # fmt: skip
"""Another cell shows the same."""

_DECIDED_ALIKE: Final = (
    Reason(
        "not tested; decided as on the platforms with a result",
        (LOCAL, OPERATORS, NODES, SLURM),
        ("xid-application", "dcgm-ecc", "crash-with-fault", "two-faults",
         "fault-in-restart", "fault-while-completing",
         "controller-killed-spent", "provider-fails", "spares-used", "request"),
    ),
    Reason("not tested; see the results on real nodes", (LOCAL,), ("full-disk",)),
    Reason("not tested for this kind; its pods are those of a PyTorchJob",
           (f"{OPERATORS}/HyperPodPyTorchJob",)),
)  # fmt: skip

REASONS: Final = (
    *_ABSENT, *_RECORDED_ELSEWHERE, *_SIMULATED, *_OF_SLURM, *_ALIKE, *_DECIDED_ALIKE,
)  # fmt: skip
"""The first that has a cell is its reason."""


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
    """Why a cell has no result.

    Raises:
        LookupError: ``REASONS`` has none.

    """
    for reason in REASONS:
        if reason.has(name, column):
            return str(reason)
    raise LookupError(f"no reason for {name} on {column}; add one to REASONS")


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
    cells = [f"{end} ({', '.join(kinds)})" for end, kinds in alike.items()]
    missing: dict[str, list[str]] = {}
    for kind in PLATFORMS[platform]:
        if f"{platform}/{kind}" not in results:
            missing.setdefault(why_empty(name, f"{platform}/{kind}"), []).append(kind)
    for why, kinds in missing.items():
        is_all = len(kinds) == len(PLATFORMS[platform])
        cells.append(f"*{why}*" if is_all else f"*{', '.join(kinds)}: {why}*")
    return "; ".join(cells)


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
