"""Timeouts of the repairs that a provider has accepted, and delays after its refusals."""

from datetime import datetime, timedelta
from typing import Final

from holdfast.decisions.policy import RemediationPolicy
from holdfast.kit.backoff import Backoff
from holdfast.model.nodes import NodeRecord, Phase

_LONGEST: Final = 8
"""Longest timeout of a replacement, in units of ``replace_timeout``: a working day by default."""


def due_at(record: NodeRecord, policy: RemediationPolicy) -> datetime | None:
    """When the repair that the provider has taken on is overdue; None while it has taken on none.

    Each replacement ordered in place of one that never came is waited for twice as long.
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


def is_refused_for_good(record: NodeRecord, policy: RemediationPolicy, now: datetime) -> bool:
    """Whether a provider has refused to reboot a machine for as long as a reboot may take."""
    is_refused = record.remediation is not None and record.remediation.retry_at is not None
    return is_refused and now >= record.phase_since + policy.reboot_timeout


def pause_after_refusal(
    record: NodeRecord, requested: timedelta | None, policy: RemediationPolicy, now: datetime
) -> timedelta:
    """How long to leave a provider alone that refused the order of ``record``.

    At least as long as it ``requested``, and at least as long as the order has waited until now:
    so pauses double, up to ``provider_retry_max``.
    """
    waited = min(now - record.phase_since, policy.provider_retry_max)
    return max(policy.provider_retry if requested is None else requested, waited)
