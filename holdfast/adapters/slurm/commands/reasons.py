"""Parses and formats the reason of a node in Slurm. Pure."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from holdfast.model.health import Remedy, Urgency
from holdfast.model.names import DeepCheckStatus, SlurmReason
from holdfast.model.nodes import NodeRecord, Phase
from holdfast.model.requests import Verb

DEFERRED: Final = "(deferred)"
"""Suffix of our reason if the repair waits for the jobs on the node to end."""

_VERBS: Final = {SlurmReason.REBOOT: Verb.REBOOT, SlurmReason.REPLACE: Verb.REPLACE}
_REQUEST: Final = re.compile(r"\W*action\s*:", re.IGNORECASE)
_NOT_LETTERS: Final = re.compile(r"[^a-z]+")

RESUME_TIMEOUT: Final = "ResumeTimeout reached"
"""Reason that slurmctld sets for a node that did not register in time after power-up."""

_REBOOT_HELPS: Final = ("Kill task failed", "Duplicate jobid", "batch job complete failure")
"""Reasons with which slurmctld drains a node permanently: processes that do not end or are unknown.
Without Holdfast, such nodes wait for a person."""

_PHRASE: Final = "|".join(
    (
        *_REBOOT_HELPS,
        "Not responding",
        "Node unexpectedly rebooted",
        RESUME_TIMEOUT,
        "reboot (?:requested|issued|complete|timed out)",
        r"gres/gpu count [a-z ]+\(\d+ < \d+\)",
        r"Low RealMemory(?: \(reported:\d+ < [\d.]+% of configured:\d+\))?",
        r"Low socket[a-z*]+ count",
        "Low (?:Cores|CPUs|TmpDisk)",
        "Prolog error",
        "Epilog error",
    )
)
"""Reasons that Slurm sets itself, for states that a repair may change; in full, the same from 22.05
to 26.05. Who set a reason does not distinguish them: administrators use Slurm's accounts, too."""

_BY_SLURM: Final = re.compile(rf"(?:{_PHRASE})(?:(?: : |, )(?:{_PHRASE}))*")
"""A whole reason: a person who begins one like Slurm, and continues it, means something else."""


class Author(StrEnum):
    """Who set a reason."""

    NONE = "none"
    SLURM = "slurm"
    HOLDFAST = "holdfast"
    REQUEST = "request"
    """A person or slurmctld; the reason is a request to Holdfast."""

    OTHER = "other"
    """A person or another program."""


@dataclass(frozen=True, slots=True)
class ParsedReason:
    """A parsed reason. Slurm may append to it, as in ``Action:Replace : Not responding``."""

    text: str
    author: Author
    verb: Verb | None = None
    suggestion: str = ""
    """Request that was probably intended, if the text is close to one."""

    resembles_request: bool = False
    """Whether it begins with ``Action:`` in any spelling."""


def parse_reason(text: str) -> ParsedReason:
    """Parse a reason: its first token counts, spelled exactly."""
    text = text.strip().removeprefix(":").strip()  # Slurm adds to a reason that is blank, too
    if not text or text == "none":
        return ParsedReason("", Author.NONE)
    token, _, rest = text.partition(" ")
    if text.startswith(SlurmReason.HOLDFAST) or (
        token in _VERBS and rest.startswith(SlurmReason.HOLDFAST)
    ):
        return ParsedReason(text, Author.HOLDFAST)
    if token in _VERBS:
        return ParsedReason(text, Author.REQUEST, verb=_VERBS[SlurmReason(token)])
    if _BY_SLURM.fullmatch(text):
        if text.startswith(_REBOOT_HELPS):
            return ParsedReason(text, Author.REQUEST, verb=Verb.REBOOT)
        return ParsedReason(text, Author.SLURM)
    letters = _NOT_LETTERS.sub("", text.lower())
    suggestions = (one for one in _VERBS if letters.startswith(_NOT_LETTERS.sub("", one.lower())))
    resembles_request = _REQUEST.match(text) is not None
    return ParsedReason(
        text, Author.OTHER, suggestion=next(suggestions, ""), resembles_request=resembles_request
    )


def our_reason(record: NodeRecord) -> str:
    """Return our reason for a node that is closed to jobs, with the repair in front."""
    remediation = record.remediation
    if remediation is None or record.phase in (Phase.JOINING, Phase.CHECKING):
        after = "" if remediation is None else f" after {remediation.reason}"
        is_deep = record.phase is Phase.CHECKING
        deep = f" (deep health check {DeepCheckStatus.IN_PROGRESS})" if is_deep else ""
        return f"{SlurmReason.HOLDFAST} checking{after}{deep}"
    if remediation.remedy is Remedy.NONE:
        return f"{SlurmReason.HOLDFAST} {remediation.reason}"
    is_replaced = remediation.remedy is Remedy.REPLACE
    action = SlurmReason.REPLACE if is_replaced else SlurmReason.REBOOT
    when = f" {DEFERRED}" if remediation.urgency is Urgency.DEFERRED else ""
    return f"{action} {SlurmReason.HOLDFAST} {remediation.reason}{when}"
