"""What a test between two nodes is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from holdfast.adapters.host.deep_checks.contract import Series, Skip, Target
from holdfast.adapters.host.pairs.channel import PairConnection
from holdfast.detectors.judgement import LONGEST_MESSAGE
from holdfast.model.health import Finding, Remedy, Severity
from holdfast.model.names import Condition, Reason

FAMILY: Final = "pair-test"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The node at the other end, as seen from the one that asks."""

    host: str
    channel: PairConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPart:
    """One kind of test; both ends have it under the same name."""

    name: str
    what: str
    """What it makes sure of."""

    ask: Callable[[Target, Peer], Series | Skip]
    """The side that begins and measures."""

    serve: Callable[[Target, PairConnection, Mapping[str, Any]], None]
    """The side that answers; is given the message that began it. Raises BackendError."""


def pair_finding(message: str, now: datetime) -> Finding:
    """What is wrong between two nodes; which of them is bad, a test does not tell."""
    return Finding(
        family=FAMILY,
        condition=Condition.NETWORK,
        reason=Reason.PAIR_FAILED,
        severity=Severity.FATAL,
        remedy=Remedy.NONE,
        message=message[:LONGEST_MESSAGE],
        observed_at=now,
    )
