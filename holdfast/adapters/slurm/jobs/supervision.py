"""What the supervisor of a step does when the step has ended, or its nodes fail: pure.

One ladder: the same step on other nodes of the allocation, or on the same ones when they are back,
or on those that the job gets in exchange, and at last the whole job again. A step that ends while
nothing is wrong with its nodes is not resumed at all.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from holdfast.adapters.slurm.jobs.comment import Mode
from holdfast.adapters.slurm.nodes.boots import is_other_boot, is_other_slurmd
from holdfast.adapters.slurm.nodes.reasons import DEFERRED, Author
from holdfast.adapters.slurm.nodes.text import NodeFacts

_BAD: Final = frozenset(("FAIL", "DOWN", "INVALID_REG"))
_MANY: Final = ":"
"""Separates the parts of a heterogeneous step on the command line of srun."""


class Verdict(StrEnum):
    """What comes next."""

    WAIT = "wait"
    END = "end"
    """Not resumed: the end of the step is the end of the supervisor."""

    RELAUNCH = "relaunch"
    RESIZE = "resize"
    """The job exchanges its bad nodes first; then it is judged anew."""

    REQUEUE = "requeue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long is waited for what."""

    grace: timedelta = timedelta(seconds=10)
    """For a fault of a node to become known after a step ended. HyperPod's diagnosis takes 10 to
    30 s; a report of an agent, 1 s."""

    fence: timedelta = timedelta(minutes=2)
    """For a node that does not answer to answer or to be off: its rank may run on. By then, the
    controller has ordered its reboot or replacement, and EC2 has powered it off."""

    swap: timedelta = timedelta(minutes=30)
    """For nodes to come back. HyperPod replaces a machine in 20 to 30 minutes."""

    requeue: timedelta = timedelta(seconds=60)
    """For the controller to requeue the job, before the supervisor does it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A step that ended with an error, and what is known of its nodes."""

    mode: Mode
    step_nodes: tuple[str, ...]
    allocation: tuple[str, ...]
    nodes: Mapping[str, NodeFacts]
    """Those of the allocation and of the step, as they are now."""

    faults: Mapping[str, str]
    """Nodes of the step, and what was seen to be wrong with them since it began."""

    since: timedelta
    """Time since the step ended."""

    relaunches: int
    max_retry: int
    stalled: int = 0
    """Relaunches in a row between which no checkpoint was written."""

    stall_limit: int = 3
    batch_host: str = ""
    """The node on which the supervisor runs, if it is one of the job's."""

    is_bound: bool = False
    """Whether the step can run on its own nodes only."""

    cannot_resize: str = ""
    """Why the job could not exchange its nodes, when that was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What comes next, where, and why."""

    verdict: Verdict
    nodes: tuple[str, ...] = ()
    why: str = ""
    lacks: int = 0
    """Other nodes that the job needs beside these."""


def next_move(now: Situation, limits: Limits) -> Move:
    """Decide. ``WAIT`` is answered for a bounded time only."""
    if not now.faults:
        if now.since < limits.grace:
            return Move(verdict=Verdict.WAIT)
        return Move(verdict=Verdict.END, why="no node of the step has a fault")
    if now.relaunches >= now.max_retry:
        return Move(verdict=Verdict.END, why=f"all {now.max_retry} retries are used")
    if now.stalled >= now.stall_limit:
        why = f"no checkpoint was written in {now.stalled} attempts"
        return Move(verdict=Verdict.END, why=why)
    if now.mode is Mode.REQUEUE:
        return Move(verdict=Verdict.REQUEUE, why=reported(now.faults))
    if now.batch_host in now.faults:
        return Move(verdict=Verdict.REQUEUE, why=f"{now.batch_host} runs the script of the job")
    silent = [name for name in now.faults if name in now.nodes and _may_run_on(now.nodes[name])]
    if silent and now.since < limits.fence:
        return Move(verdict=Verdict.WAIT, why=f"ranks may run on where nobody answers: {silent}")
    return _in_place(now, limits)


def _in_place(now: Situation, limits: Limits) -> Move:
    others = [] if now.is_bound or now.mode is Mode.SWAP else now.allocation
    candidates = dict.fromkeys((*now.step_nodes, *others))
    held = [name for name in candidates if name in now.allocation]
    good = [name for name in held if name in now.nodes and is_good(now.nodes[name])]
    wanted = len(now.step_nodes)
    if len(good) >= wanted:
        return Move(verdict=Verdict.RELAUNCH, nodes=tuple(good[:wanted]), why=reported(now.faults))
    if now.mode is Mode.RESIZE and not now.is_bound:
        if now.cannot_resize:
            return Move(verdict=Verdict.REQUEUE, why=now.cannot_resize)
        lacks = wanted - len(good)
        return Move(
            verdict=Verdict.RESIZE, nodes=tuple(good), lacks=lacks, why=reported(now.faults)
        )
    if len(held) < wanted:
        return Move(verdict=Verdict.REQUEUE, why="the job has lost nodes for good")
    if now.since < limits.swap:
        return Move(verdict=Verdict.WAIT, why=f"{len(good)} of {wanted} nodes are good")
    return Move(verdict=Verdict.REQUEUE, why="the nodes did not come back in time")


def _may_run_on(node: NodeFacts) -> bool:
    """Whether nothing tells that ranks of before have ended there; slurmd ends them."""
    return not node.has_heartbeat and not node.is_asleep


def is_good(node: NodeFacts) -> bool:
    """Whether a step can be launched there."""
    return node.has_heartbeat and not node.state & _BAD


def faults_behind(
    names: Iterable[str], nodes: Mapping[str, NodeFacts], before: Mapping[str, str]
) -> dict[str, str]:
    """What may explain why a step ended, by node.

    Args:
        names: the nodes of the step.
        nodes: as they are now.
        before: ``NodeFacts.slurmd`` of each when the step began.

    """
    found = {name: _fault(nodes.get(name), before.get(name, "")) for name in names}
    return {name: why for name, why in found.items() if why}


def faults_under(
    names: Iterable[str], nodes: Mapping[str, NodeFacts], before: Mapping[str, str]
) -> dict[str, str]:
    """What a step that runs on cannot survive, by node; arguments as in ``faults_behind``.

    A node that is to be repaired when its jobs have ended is none of that, nor one that does not
    answer for a while.
    """
    return {
        name: why
        for name, why in faults_behind(names, nodes, before).items()
        if (node := nodes.get(name)) is not None
        and (
            "DOWN" in node.state
            or _is_lost(node)
            or is_other_boot(node.slurmd, before.get(name, ""))
        )
    }


def _fault(node: NodeFacts | None, before: str) -> str:
    if node is None:
        return "unknown to Slurm"
    flags = sorted(node.state & _BAD)
    if flags:
        return "+".join(flags) + (f" ({node.word.text})" if node.word.text else "")
    if not node.has_heartbeat:
        return "+".join(sorted(node.state))
    if is_other_boot(node.slurmd, before):
        return "rebooted"
    return "slurmd began anew" if is_other_slurmd(node.slurmd, before) else ""


def _is_lost(node: NodeFacts) -> bool:
    """Whether the controller says that what runs there is lost."""
    word = node.word
    is_ours = word.author is Author.HOLDFAST and word.text.startswith("Action:")
    return "FAIL" in node.state and is_ours and DEFERRED not in word.text


def reported(faults: Mapping[str, str]) -> str:
    """Faults for people to read."""
    return "; ".join(f"{name}: {why}" for name, why in sorted(faults.items()))


def is_bound(srun: Sequence[str]) -> bool:
    """Whether a command line of srun names its nodes, or has several parts.

    Only what may be an option of srun is looked at, so the program's own are not. An option without
    a value right before the program hides where the options end; then the answer may be True in
    vain.
    """
    before = "-"
    for word in srun[1:]:
        if not word.startswith("-") and (not before.startswith("-") or "=" in before):
            break
        if word == "--":
            break
        if word.startswith(("-w", "--nodelist", "-F", "--nodefile")):
            return True
        before = word
    return _MANY in srun


def relaunched(
    srun: Sequence[str], nodes: Sequence[str], *, bound: bool, overlap: bool
) -> list[str]:
    """The command line for the same step on these nodes.

    Args:
        srun: as it was typed.
        nodes: where to.
        bound: it names its nodes itself.
        overlap: a dead step holds their CPUs, as it never told of its end.

    """
    place = [] if bound else [f"--nodes={len(nodes)}", f"--nodelist={','.join(nodes)}"]
    return [srun[0], *place, *(["--overlap"] if overlap else []), *srun[1:]]
