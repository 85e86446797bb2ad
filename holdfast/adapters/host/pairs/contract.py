"""Contract of network tests between two nodes."""

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
    """Remote node, as the client sees it."""

    host: str
    channel: PairConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPart:
    """Kind of test; both ends register it under the same name."""

    name: str
    what: str
    """Description of what the test verifies."""

    measure: Callable[[Target, Peer], Series | Skip]
    """Client side, which starts the test and measures."""

    serve: Callable[[Target, PairConnection, Mapping[str, Any]], None]
    """Server side; receives the client's first message. Raises BackendError."""

    by_default: bool = True
    """Whether it is run if no test is named."""


def pair_finding(message: str, now: datetime) -> Finding:
    """Return the finding for a fault between two nodes; a test cannot identify the bad one."""
    return Finding(
        family=FAMILY,
        condition=Condition.NETWORK,
        reason=Reason.PAIR_FAILED,
        severity=Severity.FATAL,
        remedy=Remedy.NONE,
        message=message[:LONGEST_MESSAGE],
        observed_at=now,
    )
