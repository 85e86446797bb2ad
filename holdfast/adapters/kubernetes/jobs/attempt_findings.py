"""What logs and heartbeats have shown of the present attempt of a job."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from holdfast.adapters.kubernetes.jobs.objects import PodState
from holdfast.adapters.kubernetes.nodes.node import NodeState
from holdfast.decisions.hangs import Hang
from holdfast.decisions.logged_steps import LoggedSteps
from holdfast.decisions.notice_lines import LoggedNotices, slow_host
from holdfast.decisions.step_progress import SuspectedHang
from holdfast.model.job_views import JobView, SlowRank
from holdfast.model.set_aside import SetAside

_NOT_RESTARTED: Final = (
    "it is restarted only by a log rule; find the rank that the others wait for with py-spy dump"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What is known of the present attempt of a job."""

    hang: Hang | None = None
    suspected: SuspectedHang | None = None
    """Why it seems to hang by what was learned of its steps; it is only reported."""

    unwatched: str = ""
    """Why a hang is not detected yet; empty if it is, or if nothing is to detect it."""

    notices: LoggedNotices = LoggedNotices()
    """What ``holdfast launch`` and ``holdfast checkpoint guard`` report in its containers."""

    moved: tuple[SetAside, ...] = ()
    """Checkpoints that ``holdfast checkpoint guard`` has moved in its containers."""

    steps: LoggedSteps = LoggedSteps()
    """What its logs have shown."""


def with_findings(
    view: JobView,
    found: Findings,
    pods: Iterable[PodState],
    node_of: Callable[[str], NodeState | None],
) -> JobView:
    """Return the view of a job with what is known of its attempt.

    Args:
        view: view without that.
        found: what logs and heartbeats have shown.
        pods: pods of the attempt.
        node_of: returns a node by its name; None if there is none.

    Raises:
        BackendError: a node of the attempt could not be read.

    """
    hang, steps = found.hang, found.steps
    if hang is not None:
        view = replace(
            view, hung_since=hang.since, hung_reason=hang.reason, hung_evidence=hang.evidence
        )
    elif found.notices.hang:
        view = replace(view, suspected_hang=f"the job seems to hang: {found.notices.hang}")
    elif found.suspected is not None:
        text = f"the job seems to hang: {found.suspected.evidence}; {_NOT_RESTARTED}"
        view = replace(view, suspected_hang=text)
    return replace(
        view,
        first_step=steps.first,
        step=steps.last,
        loss_fault=steps.fault,
        unwatched=found.unwatched,
        straggler=_slow_rank(found.notices.straggler, pods, node_of),
        checkpoint_notice="; ".join(found.notices.checkpoints),
    )


def _slow_rank(
    text: str, pods: Iterable[PodState], node_of: Callable[[str], NodeState | None]
) -> SlowRank | None:
    """Return the straggler that a line of the log reports, with its node if one pod fits."""
    if not text:
        return None
    host = slow_host(text)
    nodes = {pod.node for pod in pods if host and host in _hosts(pod, node_of)}
    return SlowRank(text=text, node=nodes.pop() if len(nodes) == 1 else "")


def _hosts(pod: PodState, node_of: Callable[[str], NodeState | None]) -> tuple[str, ...]:
    """Return what ``gethostname`` may return in a pod."""
    if pod.hostname or not pod.node:
        return (pod.hostname,)
    node = node_of(pod.node)
    return (pod.node, *(() if node is None else node.addresses))
