"""Requests in the annotations of a job: pure."""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from holdfast.adapters.kubernetes.jobs.objects import JobState
from holdfast.kit.rejections import Rejection, excerpt
from holdfast.kit.serial import parse_value
from holdfast.kit.units import parse_duration
from holdfast.model.jobs import JobRecord
from holdfast.model.names import (
    APP_MAX_RETRY_COUNT,
    FAULT_GRACE,
    HEARTBEAT_FILE,
    HEARTBEAT_TIMEOUT,
    JOB_RECORD,
    KEEP_PODS,
    LOG_MONITORING,
    LOG_MONITORING_CONFIG_MAP,
    LOSS_ACTION,
    LOSS_TOLERANCE,
    LOSS_WINDOW,
    STARTUP_TIMEOUT,
    Labels,
)

if TYPE_CHECKING:  # only jobs that request them need these modules; a list of jobs must be quick
    from holdfast.adapters.kubernetes.jobs.heartbeat_settings import Heartbeat
    from holdfast.decisions.log_rules import JobLogRule
    from holdfast.decisions.loss_faults import LossLimits

MAX_RETRIES: Final = 1
"""Default for jobs without the annotation; HyperPod's command line writes this value."""

MAX_APP_RETRIES: Final = 3
"""Default for jobs without the annotation; also that of runs on one machine."""

_MOST: Final = 1000
"""Largest accepted number of restarts; more is taken for a typo."""

_LONGEST_PATH: Final = 256
_TIMEOUTS: Final = (timedelta(seconds=1), timedelta(days=7))
"""Shortest and longest accepted timeout."""

_CONFIG_MAP: Final = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_SWITCH: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequests:
    """Requests of a job, its record, and the values that are invalid."""

    auto_resume: bool = False
    max_retries: int = MAX_RETRIES
    max_app_retries: int = MAX_APP_RETRIES
    record: JobRecord | None = None
    is_damaged: bool = False
    """The record cannot be parsed, so the controller leaves the job alone."""

    log_rules: "tuple[JobLogRule, ...]" = ()
    log_rules_from: str = ""
    """Name of the ConfigMap with the log rules; empty if there is none."""

    loss_limits: "LossLimits | None" = None
    """When a loss in the log is a fault; None if the job does not ask for that."""

    heartbeat: "Heartbeat | None" = None
    """Heartbeat file of the ranks; None if the job has none."""

    fault_grace: timedelta | None = None
    """See ``JobSpec.fault_grace``; None if the job does not set it."""

    keeps_pods: bool = False
    """See ``JobSpec.keeps_ranks``."""

    rejected: tuple[Rejection, ...] = ()


def requests_of(state: JobState, labels: Labels) -> JobRequests:
    """Parse the annotations of a job. Never raises: invalid values are in ``rejected``."""
    rejected: list[Rejection] = []
    is_on = _SWITCH.get("false" if state.auto_resume is None else state.auto_resume.strip().lower())
    if is_on is None:
        key = labels.enable_job_auto_resume
        rejected.append(_rejection(key, state.auto_resume, '"true" or "false"'))
    elif is_on and (obstacle := state.obstacle or _belonging(state)):
        key, is_on = labels.enable_job_auto_resume, False
        rejected.append(_rejection(key, state.auto_resume, obstacle))
    retries = _count(labels.job_max_retry_count, state.max_retries, MAX_RETRIES, rejected)
    app_retries = _count(APP_MAX_RETRY_COUNT, state.max_app_retries, MAX_APP_RETRIES, rejected)
    record = None
    if state.record is not None:
        try:
            record = parse_value(JobRecord, state.record)
        except ValueError:
            rejected.append(
                _rejection(JOB_RECORD, state.record, "a value written by the controller; remove it")
            )
    log_rules, log_rules_from = _log_rules(state, rejected) if is_on else ((), "")
    loss_limits = _loss_limits(state, rejected) if is_on else None
    heartbeat = _heartbeat(state, rejected) if is_on else None
    fault_grace = _timeout(FAULT_GRACE, state.fault_grace, rejected) if is_on else None
    keeps_pods = _SWITCH.get((state.keep_pods or "false").strip().lower())
    if keeps_pods is None:
        rejected.append(_rejection(KEEP_PODS, state.keep_pods, '"true" or "false"'))
    return JobRequests(
        auto_resume=bool(is_on),
        max_retries=retries,
        max_app_retries=app_retries,
        record=record,
        is_damaged=state.record is not None and record is None,
        log_rules=log_rules,
        log_rules_from=log_rules_from,
        loss_limits=loss_limits,
        heartbeat=heartbeat,
        fault_grace=fault_grace,
        keeps_pods=bool(keeps_pods),
        rejected=tuple(rejected),
    )


def _log_rules(state: JobState, rejected: list[Rejection]) -> "tuple[tuple[JobLogRule, ...], str]":
    text, name = state.log_rules, (state.log_rules_from or "").strip()
    if name and (text is not None or not _CONFIG_MAP.fullmatch(name)):
        expected = (
            "the name of a ConfigMap" if text is None else f"no value if {LOG_MONITORING} is set"
        )
        rejected.append(_rejection(LOG_MONITORING_CONFIG_MAP, name, expected))
        name = ""
    if text is None:
        return (), name
    from holdfast.adapters.host.log_rule_text import rules_of  # noqa: PLC0415 - see above

    rules, mistakes = rules_of(text, LOG_MONITORING)
    rejected.extend(mistakes)
    return rules, ""


def _loss_limits(state: JobState, rejected: list[Rejection]) -> "LossLimits | None":
    given = {
        LOSS_ACTION: state.loss_action,
        LOSS_WINDOW: state.loss_window,
        LOSS_TOLERANCE: state.loss_tolerance,
    }
    if all(one is None for one in given.values()):
        return None
    from holdfast.decisions.loss_settings import LossKeys, parse_loss_limits  # noqa: PLC0415 - see above

    keys = LossKeys(action=LOSS_ACTION, window=LOSS_WINDOW, tolerance=LOSS_TOLERANCE)
    limits, problems = parse_loss_limits(given, keys)
    rejected.extend(_rejection(one.key, one.value, one.expected) for one in problems)
    return limits


def _heartbeat(state: JobState, rejected: list[Rejection]) -> "Heartbeat | None":
    path = state.heartbeat_file
    given = {HEARTBEAT_TIMEOUT: state.heartbeat_timeout, STARTUP_TIMEOUT: state.startup_timeout}
    if path is None:
        for key, text in given.items():
            if text is not None:
                rejected.append(_rejection(key, text, f"{HEARTBEAT_FILE} as well"))
        return None
    if not path.startswith("/") or not path.isprintable() or len(path) > _LONGEST_PATH:
        expected = f"an absolute path of at most {_LONGEST_PATH} characters"
        rejected.append(_rejection(HEARTBEAT_FILE, path, expected))
        return None
    from holdfast.adapters.kubernetes.jobs.heartbeat_settings import (  # noqa: PLC0415 - see above
        DEFAULT_TIMEOUT,
        Heartbeat,
    )

    before = len(rejected)
    timeouts = {key: _timeout(key, text, rejected) for key, text in given.items()}
    if len(rejected) > before:
        return None
    return Heartbeat(
        path=path,
        timeout=timeouts[HEARTBEAT_TIMEOUT] or DEFAULT_TIMEOUT,
        startup_timeout=timeouts[STARTUP_TIMEOUT],
    )


def _timeout(key: str, text: str | None, rejected: list[Rejection]) -> timedelta | None:
    """Timeout from an annotation; None if it is absent or invalid."""
    if text is None:
        return None
    shortest, longest = _TIMEOUTS
    try:
        timeout = parse_duration(text.strip())
        if shortest <= timeout <= longest:
            return timeout
    except ValueError:
        pass
    rejected.append(_rejection(key, text, "a duration from 1s to 7d, such as 10m"))
    return None


def _belonging(state: JobState) -> str | None:
    """Object that the annotation belongs to instead, if that object starts and stops the job."""
    owner = state.controller
    return f"on {owner.kind} {owner.name}, to which it belongs" if owner is not None else None


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
    return Rejection(key=key, value=excerpt(value or ""), expected=expected)
