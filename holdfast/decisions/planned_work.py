"""Planned work on nodes, apart from faults: requested and scheduled repairs and checks."""

from typing import Final

from holdfast.model.names import Reason
from holdfast.model.requests import Request, Verb
from holdfast.model.sagemaker import EventLevel

_PLANNED: Final = {
    Reason.REQUESTED_REBOOT: EventLevel.INFO,
    Reason.REQUESTED_REPLACE: EventLevel.INFO,
    Reason.REQUESTED_DEEP_CHECK: EventLevel.INFO,
    Reason.SCHEDULED_DEEP_CHECK: EventLevel.INFO,
    Reason.DEEP_CHECK_PARTNER: EventLevel.INFO,
    Reason.JOBS_KEEP_FAILING: EventLevel.WARN,
    Reason.FAULT_UNCORROBORATED: EventLevel.WARN,
    Reason.STRAGGLER_FOUND: EventLevel.WARN,
}
"""Requested or scheduled work; a suspicion may still prove unfounded."""


def level_of(reason: str) -> EventLevel:
    """Return the event level at which a remediation for ``reason`` is reported."""
    return next((level for one, level in _PLANNED.items() if one == reason), EventLevel.ERROR)


def is_planned(reason: str) -> bool:
    """Return whether a remediation for ``reason`` is planned work on a node without a fault."""
    return level_of(reason) is EventLevel.INFO


def is_requested_check(request: Request | None) -> bool:
    """Return whether a person requests a deep health check; that of a suspect is Holdfast's."""
    return request is not None and request.verb is Verb.DEEP_CHECK and request.reason is None
