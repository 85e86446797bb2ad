"""Causes of failures that a restart does not remove. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from holdfast.model.names import Cause


class Recurrence(StrEnum):
    """When a failure is certain to recur after a restart."""

    AT_START = "at-start"
    """If it happened before the first step: the same program starts in the same way again."""

    ALWAYS = "always"
    SAME_STEP = "same-step"
    """If it happens at the same step twice in a row."""


@dataclass(frozen=True, slots=True)
class _Futile:
    recurrence: Recurrence
    remedy: str


_FUTILE: Final[Mapping[Cause, _Futile]] = MappingProxyType(
    {
        Cause.IMPORT_FAILED: _Futile(
            Recurrence.AT_START, "install the module in the environment of the job"
        ),
        Cause.SYNTAX_INVALID: _Futile(Recurrence.AT_START, "fix the code"),
        Cause.ARGUMENTS_INVALID: _Futile(Recurrence.AT_START, "fix the arguments of the job"),
        Cause.COMMAND_MISSING: _Futile(Recurrence.AT_START, "fix the command of the job"),
        Cause.FILE_MISSING: _Futile(Recurrence.AT_START, "check the path and the mounts"),
        Cause.DISK_FULL: _Futile(Recurrence.ALWAYS, "free space, or raise the quota"),
        Cause.CUDA_OUT_OF_MEMORY: _Futile(
            Recurrence.SAME_STEP, "reduce the memory that this step needs, such as the batch size"
        ),
    }
)
"""Causes that a restart does not remove."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """How a failure happened."""

    is_at_start: bool
    """Whether the ranks had made no step."""

    is_shared: bool
    """Whether ranks of more than one node failed by themselves, or the job has one node only."""

    is_repeated: bool
    """Whether the failure before had the same cause."""

    is_at_same_step: bool = False
    """Whether the failure before had the same cause at the same step."""


def may_be_futile(cause: str | None) -> bool:
    """Return whether a restart after a failure with this cause may be useless."""
    return cause in _FUTILE


def why_futile(cause: str, seen: Circumstances) -> str:
    """Return why a restart would fail in the same way; empty if it may succeed.

    If a job has several nodes, more than one must fail by itself: a file may be missing, or a disk
    be full, on a single node. Where only one rank saves, it is the only one that a full disk of all
    nodes ends: the job fails if that happens twice in a row.
    """
    row = next((row for known, row in _FUTILE.items() if known == cause), None)
    if row is None or not _recurs(row.recurrence, seen):
        return ""
    return f"a restart would fail in the same way ({cause}): {row.remedy}, then resubmit"


def _recurs(recurrence: Recurrence, seen: Circumstances) -> bool:
    if recurrence is Recurrence.SAME_STEP:
        return seen.is_at_same_step
    is_always = recurrence is Recurrence.ALWAYS
    if not seen.is_shared:
        return is_always and seen.is_repeated
    return is_always or seen.is_at_start
