"""What a look at a job can find: pure."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from holdfast.adapters.kubernetes.jobs.anatomy import Anatomy
from holdfast.adapters.kubernetes.jobs.objects import JobState
from holdfast.adapters.kubernetes.jobs.requests import Wishes
from holdfast.model.names import Labels


class Severity(StrEnum):
    """What a trap means for a job."""

    ERROR = "error"
    """It is not resumed, or ends for good at the first failure."""

    WARNING = "warning"
    """It resumes, but loses time, work, or devices."""

    NOTE = "note"
    """It works; there is something to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A trap that a job is in."""

    trap: str
    severity: Severity
    why: str
    path: str
    """Of the line to change."""

    value: object
    """What to write there; None to take the line out."""

    @property
    def change(self) -> str:
        """What to do, for a person, as YAML where something is to be written."""
        if self.value is None:
            return f"remove {self.path}"
        is_text = self.path.startswith("metadata.")  # annotations take nothing else
        return f"{self.path}: {json.dumps(self.value) if is_text else self.value}"


@dataclass(frozen=True, slots=True)
class Line:
    """What a look for one trap has found."""

    severity: Severity
    path: str
    value: object
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Patient:
    """A job that is looked at."""

    kind: str
    """Of the object that has the pods: the job, or what was made for it."""

    state: JobState
    wishes: Wishes
    parts: Anatomy
    labels: Labels


@dataclass(frozen=True, slots=True)
class Trap:
    """One row of the table."""

    name: str
    look: Callable[[Patient], Iterator[Line]]
    kinds: frozenset[str] = frozenset()
    """In which it can be; empty for all."""
