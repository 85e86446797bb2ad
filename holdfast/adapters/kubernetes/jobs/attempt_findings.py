"""What logs and heartbeats have shown of the present attempt of a job."""

from dataclasses import dataclass, replace
from typing import Final

from holdfast.decisions.hangs import Hang
from holdfast.decisions.logged_steps import LoggedSteps
from holdfast.decisions.notice_lines import LoggedNotices
from holdfast.decisions.step_progress import SuspectedHang
from holdfast.model.jobs import JobView
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


def with_findings(view: JobView, found: Findings) -> JobView:
    """Return the view of a job with what is known of its attempt."""
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
        straggler=found.notices.straggler,
        checkpoint_notice="; ".join(found.notices.checkpoints),
    )
