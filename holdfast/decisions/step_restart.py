"""The restart ladder of one step of a job, after the step has ended or its nodes have failed: pure.

The rungs are those of ``restart_rungs``: the same nodes once they are back, other nodes of the
allocation, an exchange of the faulty nodes, a requeue of the whole job. A step that ends while none
of its nodes has a fault is restarted for its loss or a hang only.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from holdfast.decisions.restart_rungs import (
    Cause,
    Means,
    RestartBudget,
    RestartHistory,
    Rung,
    choose_rung,
)
from holdfast.model.jobs import JobSpec


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
class ApplicationEnd:
    """End of a step whose ranks are the cause: its loss was not finite or spiked, or it hung."""

    why: str
    obstacle: str = ""
    """Why the step is not restarted; empty if it may be. See ``loss_faults.loss_stop``."""

    restarts: int = 0
    """Restarts of the step for such causes so far."""

    max_restarts: int = JobSpec(name="", nodes=1).max_app_retries


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
    """Restarts of the step after faults of nodes so far."""

    max_retries: int
    """Maximum number of them."""

    stalled: int = 0
    """Consecutive attempts in which no checkpoint was saved."""

    stall_limit: int = 3
    batch_host: str = ""
    """Node that runs the supervisor, if it is a node of the job."""

    is_bound: bool = False
    """Whether the step can run on its own nodes only."""

    cannot_exchange: str = ""
    """Why an exchange of nodes failed or is refused; empty if none was tried."""

    application_end: ApplicationEnd | None = None
    """That the step ended because of its loss or a hang; None if it did not."""

    @property
    def own_end(self) -> ApplicationEnd | None:
        """The same, unless a node of the step has a fault, which is then the cause."""
        return None if self.faults else self.application_end


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
        if step.own_end is None:
            return RestartDecision(action=StepAction.END, why="no node of the step has a fault")
    others = () if step.is_bound or step.mode is RestartMode.SWAP else step.allocation
    candidates = dict.fromkeys((*step.step_nodes, *others))
    allocated = [name for name in candidates if name in step.allocation]
    good = tuple(name for name in allocated if name in step.usable)
    means = _means(step, len(allocated), good, timeouts)
    used = step.relaunches if step.own_end is None else step.own_end.restarts
    history = RestartHistory(total=used)
    choice = choose_rung(_cause(step), means, history, _budget(step))
    silent = sorted(step.faults.keys() & step.unreachable)
    needed = len(step.step_nodes)
    match choice.rung:
        case Rung.FAIL:
            return RestartDecision(action=StepAction.END, why=choice.why)
        case Rung.WHOLE_JOB:
            return RestartDecision(action=StepAction.REQUEUE, why=choice.why)
        case _ if silent and step.since < timeouts.fence:
            why = f"ranks may still run on nodes that do not respond: {', '.join(silent)}"
            return RestartDecision(action=StepAction.WAIT, why=why)
        case Rung.WAIT:
            why = f"{len(good)} of {needed} nodes usable"
            return RestartDecision(action=StepAction.WAIT, why=why)
        case Rung.EXCHANGE:
            return RestartDecision(
                action=StepAction.EXCHANGE, nodes=good, missing=needed - len(good), why=choice.why
            )
    return RestartDecision(action=StepAction.RELAUNCH, nodes=good[:needed], why=choice.why)


def _cause(step: EndedStep) -> Cause:
    if step.stalled >= step.stall_limit:
        why = f"no checkpoint was saved in {step.stalled} attempts"
        return Cause(text=why, is_final=True)
    if (end := step.own_end) is not None:
        why = "; ".join(filter(None, (end.obstacle, end.why)))
        return Cause(text=why, is_final=bool(end.obstacle))
    return Cause(text=format_faults(step.faults))


def _means(
    step: EndedStep, allocated: int, good: tuple[str, ...], timeouts: RestartTimeouts
) -> Means:
    missing = len({*step.step_nodes}.difference(good))
    is_resized = step.mode is RestartMode.RESIZE and not step.is_bound
    is_whole = allocated >= len(step.step_nodes)
    obstacle = "timed out waiting for nodes to come back"
    if is_resized:
        obstacle = step.cannot_exchange
    elif not is_whole:
        obstacle = "the job has lost nodes of its allocation"
    whole_job = format_faults(step.faults) if step.mode is RestartMode.REQUEUE else ""
    if not whole_job and step.batch_host in step.faults:
        whole_job = f"{step.batch_host} runs the job script"
    return Means(
        missing=missing,
        spares=len(good) - len(step.step_nodes) + missing,
        can_exchange=is_resized and not step.cannot_exchange,
        may_return=not is_resized and is_whole and step.since < timeouts.swap,
        obstacle=obstacle,
        only_whole_job=whole_job,
    )


def _budget(step: EndedStep) -> RestartBudget:
    """Return the budget of retries; the controller has that of the whole job."""
    if (end := step.own_end) is not None:
        return RestartBudget(in_place=1, exchanges=0, job_restarts=0, total=end.max_restarts)
    return RestartBudget(
        in_place=1, exchanges=len(step.step_nodes), job_restarts=1, total=step.max_retries
    )


def format_faults(faults: Mapping[str, str]) -> str:
    """Return faults as one line, sorted by node."""
    return "; ".join(f"{name}: {why}" for name, why in sorted(faults.items()))
