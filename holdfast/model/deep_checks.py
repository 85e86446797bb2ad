"""What the deep health check of one node did and found."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from holdfast.model.health import Finding


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PartResult:
    """How one part of the check of a node ended."""

    name: str
    outcome: Outcome
    detail: str = ""
    """Why it did not pass, or what else is to be said; may be empty if it passed."""

    command: tuple[str, ...] = ()
    """What was run; empty if nothing was."""

    took_s: float = 0.0
    measured: Mapping[str, float] = field(default_factory=dict)
    """What was measured, by the names of ``Floors``, which end with the unit."""

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

    @property
    def outcome(self) -> Outcome:
        """Failed if a part failed; passed if none did and one passed.

        A part that was skipped or says nothing does not condemn a node: tools are missing, hang and
        are killed on healthy nodes as well.
        """
        outcomes = {part.outcome for part in self.parts}
        if Outcome.FAILED in outcomes:
            return Outcome.FAILED
        if Outcome.PASSED in outcomes:
            return Outcome.PASSED
        return Outcome.UNKNOWN if Outcome.UNKNOWN in outcomes else Outcome.SKIPPED
