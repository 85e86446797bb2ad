"""Checks of nodes with all their parts, as the process that runs them reports them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from holdfast.model.deep_checks import KindResult, Outcome, combined
from holdfast.model.health import Finding
from holdfast.model.names import DeepCheck

_LONGEST_DETAIL: Final = 300
"""Maximum length of the reasons for one kind, in characters: a record is an annotation of a
Kubernetes node."""


class Level(StrEnum):
    """Maximum duration of a check of a node."""

    QUICK = "quick"
    """Minutes, most of them for DCGM's diagnostics level 2."""

    STANDARD = "standard"
    """Up to an hour: DCGM's level 3."""

    LONG = "long"
    """Up to two hours and more: DCGM's level 4, as in HyperPod's deep health checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartResult:
    """Result of one part of the check of a node."""

    name: str
    outcome: Outcome
    kind: DeepCheck | None = None
    """Kind of check that it belongs to; None for a test between nodes."""

    detail: str = ""
    """Why it did not pass, or other remarks; may be empty if it passed."""

    command: tuple[str, ...] = ()
    """Command that was run; empty if none was."""

    took_s: float = 0.0
    measured: Mapping[str, float] = field(default_factory=dict)
    """Measured values, by the names of ``Thresholds``, which end with the unit."""

    bounds: Mapping[str, float] = field(default_factory=dict)
    """Thresholds of the measured values."""

    facts: Mapping[str, str] = field(default_factory=dict)
    """Facts that its tool reports about itself and the machine, such as versions."""

    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCheck:
    """The check of one node."""

    node: str
    instance_type: str
    """Empty if unknown."""

    level: Level
    started_at: datetime
    parts: tuple[PartResult, ...]
    peer: str = ""
    """Node at the other end, if it is a check between two nodes."""

    @property
    def outcome(self) -> Outcome:
        """Combined outcome of the parts; see ``combined``."""
        return combined(part.outcome for part in self.parts)

    @property
    def kinds(self) -> tuple[KindResult, ...]:
        """Result of each kind of check that has parts."""
        return tuple(
            _kind_result(kind, parts)
            for kind in DeepCheck
            if (parts := [part for part in self.parts if part.kind is kind])
        )


def _kind_result(kind: DeepCheck, parts: Sequence[PartResult]) -> KindResult:
    outcome = combined(part.outcome for part in parts)
    notable = [part for part in parts if part.outcome is outcome and part.detail]
    why = (
        [f"{part.name}: {part.detail}" for part in notable] if outcome is not Outcome.PASSED else []
    )
    return KindResult(kind=kind, outcome=outcome, detail="; ".join(why)[:_LONGEST_DETAIL])


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSummary:
    """Result that a check reports to the process that started it."""

    summary: str = ""
    """One line; empty if the check printed nothing."""

    measured: Mapping[str, float] = field(default_factory=dict)
    """Values measured by all its parts; the smallest if several parts measured the same."""

    bounds: Mapping[str, float] = field(default_factory=dict)
    """Thresholds of the measured values."""

    outcome: Outcome | None = None
    """None if only its exit status is known."""

    kinds: tuple[KindResult, ...] = ()
    """Result of each kind of check; empty if the check does not report kinds."""
