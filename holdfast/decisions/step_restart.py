"""The restart ladder of one step of a job, after the step has ended or its nodes have failed: pure.

From the cheapest restart to the most expensive: relaunch the step on other nodes of the allocation,
or on the same nodes once they are back; exchange the faulty nodes and relaunch; requeue the whole
job. A step that ends while none of its nodes has a fault is not restarted.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class RestartMode(StrEnum):
    """How a job is resumed."""

    REQUEUE = "requeue"
    """By the controller: the whole job restarts on good nodes."""

    STEP = "step"
    """By the supervisor in the job: its step restarts on good nodes of the allocation."""

    SWAP = "swap"
    """By the supervisor in the job: its step restarts on the same nodes once they are back."""

    RESIZE = "resize"
    """By the supervisor in the job: its step restarts after an exchange of its faulty nodes."""


class StepAction(StrEnum):
    """Next action for a step that has ended."""

    WAIT = "wait"
    END = "end"
    """Do not restart: the supervisor ends as the step did."""

    RELAUNCH = "relaunch"
    EXCHANGE = "exchange"
    """Exchange the faulty nodes of the allocation, then decide again."""

    REQUEUE = "requeue"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartTimeouts:
    """How long to wait before the next rung of the ladder."""

    grace: timedelta = timedelta(seconds=10)
    """For a fault of a node to be reported after a step ended. HyperPod's diagnosis takes 10 to
    30 s; a report of an agent, 1 s."""

    fence: timedelta = timedelta(minutes=2)
    """For a node that does not answer to answer or to be off: its rank may still run. By then, the
    controller has ordered its reboot or replacement, and EC2 has powered it off."""

    swap: timedelta = timedelta(minutes=30)
    """For nodes to come back. HyperPod replaces a machine in 20 to 30 minutes."""

    requeue: timedelta = timedelta(seconds=60)
    """For the controller to requeue the job, before the supervisor does it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedStep:
    """A step that ended with an error, and the state of its nodes."""

    mode: RestartMode
    step_nodes: tuple[str, ...]
    allocation: tuple[str, ...]
    usable: Set[str]
    """Nodes on which a step can be launched: they answer and need no repair."""

    unreachable: Set[str]
    """Nodes that do not answer and may be running: ranks of the step may still run there."""

    faults: Mapping[str, str]
    """Faults of the step's nodes since it began, by node."""

    since: timedelta
    """Time since the step ended."""

    relaunches: int
    max_retries: int
    stalled: int = 0
    """Consecutive attempts in which no checkpoint was saved."""

    stall_limit: int = 3
    batch_host: str = ""
    """Node that runs the supervisor, if it is a node of the job."""

    is_bound: bool = False
    """Whether the step can run on its own nodes only."""

    cannot_exchange: str = ""
    """Why an exchange of nodes failed or is refused; empty if none was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartDecision:
    """Next action, with its nodes and its reason."""

    action: StepAction
    nodes: tuple[str, ...] = ()
    """Nodes to launch on; for an exchange, the nodes to keep."""

    why: str = ""
    missing: int = 0
    """Number of nodes to get by an exchange."""


def decide_restart(step: EndedStep, timeouts: RestartTimeouts) -> RestartDecision:
    """Return the next action for a step that has ended. ``WAIT`` is returned for a bounded time."""
    if not step.faults:
        if step.since < timeouts.grace:
            return RestartDecision(action=StepAction.WAIT)
        return RestartDecision(action=StepAction.END, why="no node of the step has a fault")
    if step.relaunches >= step.max_retries:
        why = f"retries exhausted ({step.relaunches} of {step.max_retries})"
        return RestartDecision(action=StepAction.END, why=why)
    if step.stalled >= step.stall_limit:
        why = f"no checkpoint was saved in {step.stalled} attempts"
        return RestartDecision(action=StepAction.END, why=why)
    if step.mode is RestartMode.REQUEUE:
        return _requeue(format_faults(step.faults))
    if step.batch_host in step.faults:
        return _requeue(f"{step.batch_host} runs the job script")
    silent = sorted(name for name in step.faults if name in step.unreachable)
    if silent and step.since < timeouts.fence:
        why = f"ranks may still run on nodes that do not respond: {', '.join(silent)}"
        return RestartDecision(action=StepAction.WAIT, why=why)
    return _within_allocation(step, timeouts)


def _within_allocation(step: EndedStep, timeouts: RestartTimeouts) -> RestartDecision:
    others = () if step.is_bound or step.mode is RestartMode.SWAP else step.allocation
    candidates = dict.fromkeys((*step.step_nodes, *others))
    allocated = [name for name in candidates if name in step.allocation]
    good = [name for name in allocated if name in step.usable]
    wanted = len(step.step_nodes)
    why = format_faults(step.faults)
    if len(good) >= wanted:
        nodes = tuple(good[:wanted])
        return RestartDecision(action=StepAction.RELAUNCH, nodes=nodes, why=why)
    if step.mode is RestartMode.RESIZE and not step.is_bound:
        if step.cannot_exchange:
            return _requeue(step.cannot_exchange)
        missing = wanted - len(good)
        return RestartDecision(
            action=StepAction.EXCHANGE, nodes=tuple(good), missing=missing, why=why
        )
    if len(allocated) < wanted:
        return _requeue("the job has lost nodes of its allocation")
    if step.since < timeouts.swap:
        return RestartDecision(action=StepAction.WAIT, why=f"{len(good)} of {wanted} nodes usable")
    return _requeue("timed out waiting for nodes to come back")


def _requeue(why: str) -> RestartDecision:
    return RestartDecision(action=StepAction.REQUEUE, why=why)


def format_faults(faults: Mapping[str, str]) -> str:
    """Return faults as one line, sorted by node."""
    return "; ".join(f"{name}: {why}" for name, why in sorted(faults.items()))
