"""Timeouts of the repairs that a provider has accepted, and delays after its refusals."""

from datetime import datetime, timedelta
from typing import Final

from holdfast.decisions.policy import RemediationPolicy
from holdfast.kit.backoff import Backoff
from holdfast.model.nodes import NodeRecord, Phase

_LONGEST: Final = 8
"""Longest timeout of a replacement, in units of ``replace_timeout``: a working day by default."""


def due_at(record: NodeRecord, policy: RemediationPolicy) -> datetime | None:
    """Return when the repair that the provider accepted is overdue; None if it accepted none.

    Each replacement ordered in place of one that never came gets twice the time.
    """
    remediation = record.remediation
    if remediation is None or remediation.ordered_at is None:
        return None
    match record.phase:
        case Phase.REBOOTING:
            return remediation.ordered_at + policy.reboot_timeout
        case Phase.REPLACING:
            timeout = Backoff(policy.replace_timeout, _LONGEST * policy.replace_timeout)
            return remediation.ordered_at + timeout.delay(max(remediation.replacements, 1))
    return None


def pause_after_refusal(
    record: NodeRecord, requested: timedelta | None, policy: RemediationPolicy, now: datetime
) -> timedelta:
    """Return the delay before an order is sent again that the provider refused.

    It is at least the delay that the provider ``requested``, and at least the time that the order
    has waited until now: so delays double, up to ``provider_retry_max``.
    """
    waited = min(now - record.phase_since, policy.provider_retry_max)
    return max(policy.provider_retry if requested is None else requested, waited)
