"""What supervisors report of their steps in the Comment of a job. Pure."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from holdfast.model.jobs import LossAction, LossFault

_LOSS_FAULT: Final = re.compile(
    r"([0-9]{1,13}):(LossNotFinite|LossSpiked):([0-9]{1,18}):(ask|stop|rollback|skip)"
)
_SUSPECTED_HANG: Final = re.compile(r"([0-9]{1,13}):([0-9]{1,18})?:([0-9]{1,11})")
_PROGRESS: Final = re.compile(r"([0-9]{1,13}):([0-9]{1,18}):([0-9]{1,9}(?:\.[0-9]{1,9})?)")
_STRAGGLER: Final = re.compile(r"([0-9]{1,13}):([A-Za-z0-9_.-]{1,64})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedLoss:
    """A supervisor's report of a loss that is not finite, or that spiked."""

    attempt: int
    """Number of the attempt, as in ``HOLDFAST_ATTEMPT``."""

    reason: str
    step: int
    action: LossAction


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedHang:
    """A supervisor's report of a step that seems to hang."""

    attempt: int
    """Number of the attempt, as in ``HOLDFAST_ATTEMPT``."""

    step: int | None
    """Last step of training; None if it has reached none."""

    since: datetime
    """Time of that step, or of the start of the attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedProgress:
    """A supervisor's report of the steps of training."""

    attempt: int
    """Number of the attempt, as in ``HOLDFAST_ATTEMPT``."""

    step: int
    steps_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedStraggler:
    """A supervisor's report of the node of a rank that the others wait for."""

    attempt: int
    """Number of the attempt, as in ``HOLDFAST_ATTEMPT``."""

    node: str


def loss_fault(attempt: int, fault: LossFault) -> str:
    """Return the value of ``Key.LOSS_FAULT`` for a fault of an attempt."""
    return f"{attempt}:{fault.reason}:{fault.step}:{fault.action}"


def parse_loss(value: str) -> ReportedLoss | None:
    """Return the loss that a value reports; None if it reports none."""
    found = _LOSS_FAULT.fullmatch(value)
    if found is None:
        return None
    return ReportedLoss(
        attempt=int(found[1]), reason=found[2], step=int(found[3]), action=LossAction(found[4])
    )


def suspected_hang(hang: ReportedHang) -> str:
    """Return the value of ``Key.SUSPECTED_HANG``."""
    step = "" if hang.step is None else hang.step
    return f"{hang.attempt}:{step}:{hang.since.timestamp():.0f}"


def parse_hang(value: str) -> ReportedHang | None:
    """Return the hang that a value reports; None if it reports none."""
    found = _SUSPECTED_HANG.fullmatch(value)
    if found is None:
        return None
    return ReportedHang(
        attempt=int(found[1]),
        step=None if found[2] is None else int(found[2]),
        since=datetime.fromtimestamp(int(found[3]), UTC),
    )


def progress(reported: ReportedProgress) -> str:
    """Return the value of ``Key.PROGRESS``."""
    return f"{reported.attempt}:{reported.step}:{reported.steps_per_second:.6f}"


def parse_progress(value: str) -> ReportedProgress | None:
    """Return the progress that a value reports; None if it reports none."""
    found = _PROGRESS.fullmatch(value)
    if found is None:
        return None
    return ReportedProgress(
        attempt=int(found[1]), step=int(found[2]), steps_per_second=float(found[3])
    )


def straggler(reported: ReportedStraggler) -> str:
    """Return the value of ``Key.STRAGGLER``."""
    return f"{reported.attempt}:{reported.node}"


def parse_straggler(value: str) -> ReportedStraggler | None:
    """Return the straggler that a value reports; None if it reports none."""
    found = _STRAGGLER.fullmatch(value)
    return None if found is None else ReportedStraggler(attempt=int(found[1]), node=found[2])
