"""Results of the deep health check of one node."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from holdfast.model.names import DeepCheck

_LONGEST_DETAIL: Final = 300
"""Maximum length of the reasons for one kind, in characters: a record is an annotation of a
Kubernetes node."""


class Outcome(StrEnum):
    """Outcome of one part of a check."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """It was not started: there is no such device, or its tool is not installed."""

    UNKNOWN = "unknown"
    """It was started without a result: the tool hung, was killed, or its output is cut off."""


def combined(outcomes: Iterable[Outcome]) -> Outcome:
    """Return failed if one failed, else passed if one passed, else skipped if none was started.

    A part that was skipped or inconclusive does not count against a node: tools are missing, hang
    and are killed on healthy nodes as well. Nor does it count for the node.
    """
    found = set(outcomes)
    for one in (Outcome.FAILED, Outcome.PASSED, Outcome.UNKNOWN):
        if one in found:
            return one
    return Outcome.SKIPPED


@dataclass(frozen=True, slots=True, kw_only=True)
class KindResult:
    """Result of the part of a check that has a name in SageMaker."""

    kind: DeepCheck
    outcome: Outcome
    detail: str = ""
    """Why it did not pass, or what of it was not run."""

    def __str__(self) -> str:
        return f"{self.kind} {self.outcome}" + (f": {self.detail}" if self.detail else "")


RESULT_VARIABLE: Final = "HOLDFAST_CHECK_RESULT"
"""Environment variable: file to which a check writes its ``CheckSummary``."""

KINDS_VARIABLE: Final = "HOLDFAST_CHECK_KINDS"
"""Environment variable: kinds of a check, separated by spaces; all kinds if unset."""

PEER_VARIABLE: Final = "HOLDFAST_CHECK_PEER"
"""Environment variable: address of the node that listens in a test between two nodes."""

TOKEN_VARIABLE: Final = "HOLDFAST_CHECK_TOKEN"  # noqa: S105 - a name
"""Environment variable: shared secret of both nodes of a test."""
