"""Rules of the doctors: what prevents jobs from resuming, how severe it is, and how to fix it.

A rule checks a subject: a job of Kubernetes, or the configuration of a Slurm cluster. Each
violation becomes a diagnostic. Pure: adapters read the subject and own the tables of rules.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, TypeVar

S_contra = TypeVar("S_contra", contravariant=True)
S = TypeVar("S")


class RuleSeverity(StrEnum):
    """Effect of a violated rule on jobs, the worst first."""

    ERROR = "error"
    """Jobs are not resumed, or fail permanently at the first failure."""

    WARNING = "warning"
    """Some jobs are not resumed, or lose time, work or devices."""

    NOTE = "note"
    """Jobs are resumed; for information only."""


_ORDER: Final = list(RuleSeverity)


@dataclass(frozen=True, slots=True)
class LineChange:
    """A line of a manifest to change."""

    path: str
    """Path of the line in the object, such as ``spec.backoffLimit``."""

    value: object
    """Value to write there; None to remove the line."""

    def __str__(self) -> str:
        """Return the change as YAML, or the line to remove."""
        if self.value is None:
            return f"remove {self.path}"
        is_text = self.path.startswith("metadata.")  # annotations take nothing else
        return f"{self.path}: {json.dumps(self.value) if is_text else self.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One place where a subject violates a rule."""

    severity: RuleSeverity
    why: str
    """Why jobs would not be resumed, or resumed late."""

    remedy: LineChange | str
    """The line to change, or what else to do."""

    found: str = ""
    """Value or names that violate the rule; empty if ``why`` suffices."""


class Rule(Protocol[S_contra]):
    """One row of a table of rules. Several rows may share a name."""

    @property
    def name(self) -> str:
        """Name of the rule, stable for programs."""

    def check(self, subject: S_contra, /) -> Iterator[Violation]:
        """Yield each violation of the rule by a subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One violation of a named rule, for people and programs."""

    rule: str
    severity: RuleSeverity
    found: str
    why: str
    remedy: str
    line: LineChange | None
    """The line to change, for programs; None if the remedy is none."""


def diagnostic(rule: str, violation: Violation) -> Diagnostic:
    """Return the diagnostic of one violation of a rule."""
    remedy = violation.remedy
    return Diagnostic(
        rule=rule,
        severity=violation.severity,
        found=violation.found,
        why=violation.why,
        remedy=str(remedy),
        line=remedy if isinstance(remedy, LineChange) else None,
    )


def diagnose(rules: Iterable[Rule[S]], subject: S) -> list[Diagnostic]:
    """Return the diagnostics of a subject, the worst first, else in the order of the rules."""
    found = [diagnostic(rule.name, one) for rule in rules for one in rule.check(subject)]
    return sorted(found, key=lambda one: _ORDER.index(one.severity))


def is_failure(diagnostics: Iterable[Diagnostic], *, strict: bool) -> bool:
    """Return whether a diagnostic is an error or, with ``strict``, a warning."""
    failing = {RuleSeverity.ERROR, RuleSeverity.WARNING} if strict else {RuleSeverity.ERROR}
    return any(one.severity in failing for one in diagnostics)
