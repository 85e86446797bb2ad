"""What the deep health check of one node did and found."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from holdfast.model.health import Finding
from holdfast.model.names import DeepCheck

_LONGEST_DETAIL: Final = 300
"""Characters of the reasons for one kind: a record is an annotation of a Kubernetes node."""


class Level(StrEnum):
    """How long a check of a node may take."""

    QUICK = "quick"
    """Minutes, most of them for DCGM's diagnosis of level 2."""

    STANDARD = "standard"
    """Up to an hour: DCGM's level 3."""

    LONG = "long"
    """Up to two hours and more: DCGM's level 4, as in HyperPod's deep health checks."""


class Outcome(StrEnum):
    """How one part of a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """It was not begun: there is no such device, or its tool is not installed."""

    UNKNOWN = "unknown"
    """It was begun and says nothing: the tool hung, was killed, or its output has no end."""


def combined(outcomes: Iterable[Outcome]) -> Outcome:
    """Failed if one failed; passed if none did and one passed; skipped if nothing was begun.

    A part that was skipped or says nothing does not condemn a node: tools are missing, hang and
    are killed on healthy nodes as well. Nor does it speak for the node.
    """
    found = set(outcomes)
    for one in (Outcome.FAILED, Outcome.PASSED, Outcome.UNKNOWN):
        if one in found:
            return one
    return Outcome.SKIPPED


@dataclass(frozen=True, slots=True, kw_only=True)
class KindResult:
    """How the part of a check ended that SageMaker has a name for."""

    kind: DeepCheck
    outcome: Outcome
    detail: str = ""
    """Why it did not pass, or what of it was not run."""

    def __str__(self) -> str:
        return f"{self.kind} {self.outcome}" + (f": {self.detail}" if self.detail else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartResult:
    """How one part of the check of a node ended."""

    name: str
    outcome: Outcome
    kind: DeepCheck | None = None
    """The kind of check that it belongs to; None for a test between nodes."""

    detail: str = ""
    """Why it did not pass, or what else is to be said; may be empty if it passed."""

    command: tuple[str, ...] = ()
    """What was run; empty if nothing was."""

    took_s: float = 0.0
    measured: Mapping[str, float] = field(default_factory=dict)
    """What was measured, by the names of ``Thresholds``, which end with the unit."""

    bounds: Mapping[str, float] = field(default_factory=dict)
    """The thresholds of what was measured."""

    facts: Mapping[str, str] = field(default_factory=dict)
    """What its tool says of itself and of the machine, such as versions."""

    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCheck:
    """The check of one node."""

    node: str
    instance_type: str
    """Empty if it is not known."""

    level: Level
    started_at: datetime
    parts: tuple[PartResult, ...]
    peer: str = ""
    """The node at the other end, if it is a check between two nodes."""

    @property
    def outcome(self) -> Outcome:
        """See ``combined``."""
        return combined(part.outcome for part in self.parts)

    @property
    def kinds(self) -> tuple[KindResult, ...]:
        """How each kind of check ended that parts were to be made of."""
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


RESULT_VARIABLE: Final = "HOLDFAST_CHECK_RESULT"
"""Environment variable: the file to which a check writes its ``CheckSummary``."""

KINDS_VARIABLE: Final = "HOLDFAST_CHECK_KINDS"
"""Environment variable: what a check is made of, with spaces between; everything if unset."""

PEER_VARIABLE: Final = "HOLDFAST_CHECK_PEER"
"""Environment variable: the address of the node that listens in a test between two."""

TOKEN_VARIABLE: Final = "HOLDFAST_CHECK_TOKEN"  # noqa: S105 - a name
"""Environment variable: what both ends of a test must know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSummary:
    """What a check tells whoever began it."""

    summary: str = ""
    """One line; empty if it said nothing."""

    measured: Mapping[str, float] = field(default_factory=dict)
    """What all its parts measured; a name that several have is that of the smallest value."""

    bounds: Mapping[str, float] = field(default_factory=dict)
    """The thresholds of what was measured."""

    outcome: Outcome | None = None
    """None if only its exit status tells."""

    kinds: tuple[KindResult, ...] = ()
    """How each kind of check ended; empty if it does not report that."""
