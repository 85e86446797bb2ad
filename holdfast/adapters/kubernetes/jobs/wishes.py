"""What people ask for with the annotations of a job: pure."""

from dataclasses import dataclass
from typing import Final

from holdfast.adapters.kubernetes.encoding import Rejection, parsed, shown
from holdfast.adapters.kubernetes.jobs.objects import JobState
from holdfast.model.jobs import JobRecord
from holdfast.model.names import APP_MAX_RETRY_COUNT, JOB_RECORD, Labels

MAX_RETRIES: Final = 1
"""Where a job does not say; HyperPod's command line writes this."""

MAX_APP_RETRIES: Final = 3
"""Where a job does not say; that of a run on one machine, too."""

_MOST: Final = 1000
"""More restarts than that are a slip of the pen."""

_SWITCH: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a job asks for, what is remembered about it, and what of that cannot be used."""

    auto_resume: bool = False
    max_retries: int = MAX_RETRIES
    max_app_retries: int = MAX_APP_RETRIES
    record: JobRecord | None = None
    is_damaged: bool = False
    """There is a record that cannot be read, so nothing is to be done with the job."""

    rejected: tuple[Rejection, ...] = ()


def wishes_of(state: JobState, labels: Labels) -> Wishes:
    """Read the annotations of a job. Never raises: what cannot be read is rejected."""
    rejected: list[Rejection] = []
    is_on = _SWITCH.get("false" if state.auto_resume is None else state.auto_resume.strip().lower())
    if is_on is None:
        key = labels.enable_job_auto_resume
        rejected.append(_rejection(key, state.auto_resume, '"true" or "false"'))
    elif is_on and state.obstacle:
        key, is_on = labels.enable_job_auto_resume, False
        rejected.append(_rejection(key, state.auto_resume, state.obstacle))
    retries = _count(labels.job_max_retry_count, state.max_retries, MAX_RETRIES, rejected)
    app_retries = _count(APP_MAX_RETRY_COUNT, state.max_app_retries, MAX_APP_RETRIES, rejected)
    record = None
    if state.record is not None:
        try:
            record = parsed(JobRecord, state.record)
        except ValueError:
            rejected.append(
                _rejection(JOB_RECORD, state.record, "what the controller wrote; remove it")
            )
    return Wishes(
        auto_resume=bool(is_on),
        max_retries=retries,
        max_app_retries=app_retries,
        record=record,
        is_damaged=state.record is not None and record is None,
        rejected=tuple(rejected),
    )


def _count(key: str, value: str | None, default: int, rejected: list[Rejection]) -> int:
    if value is None:
        return default
    text = value.strip()
    if text.isascii() and text.isdecimal() and len(text) < 10 and int(text) <= _MOST:
        return int(text)
    rejected.append(
        _rejection(key, value, f"a whole number from 0 to {_MOST}; {default} is used instead")
    )
    return default


def _rejection(key: str, value: str | None, expected: str) -> Rejection:
    return Rejection(key=key, value=shown(value or ""), expected=expected)
