"""The reason of a node: what people ask for with it, and what we say with it. Pure."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from holdfast.model.health import Remedy, Urgency
from holdfast.model.names import DeepCheckStatus, SlurmReason
from holdfast.model.nodes import NodeRecord, Phase
from holdfast.model.requests import Verb

DEFERRED: Final = "(deferred)"
"""Ends a reason of ours where the jobs on the node run on until they end."""

_VERBS: Final = {SlurmReason.REBOOT: Verb.REBOOT, SlurmReason.REPLACE: Verb.REPLACE}
_ASKS: Final = re.compile(r"\W*action\s*:", re.IGNORECASE)
_NOT_LETTERS: Final = re.compile(r"[^a-z]+")

RESUME_TIMEOUT: Final = "ResumeTimeout reached"
"""What slurmctld says of a node that did not register in time after it was powered up."""

_SLURMS_OWN: Final = (
    "Not responding",
    "Node unexpectedly rebooted",
    RESUME_TIMEOUT,
    "reboot ",
    "gres/gpu count",
    "Low RealMemory",
    "Low socket",
    "Low Cores",
    "Low CPUs",
    "Low TmpDisk",
    "Prolog error",
    "Epilog error",
)
"""How reasons begin that slurmctld gives by itself, for what a repair may change."""

_REBOOT_HELPS: Final = ("Kill task failed", "Duplicate jobid", "batch job complete failure")
"""The same where it drains a node for good: processes that do not end, or that nobody knows of.
Without us, such nodes wait for a person."""


class Author(StrEnum):
    """Whose word a reason is."""

    NOBODY = "nobody"
    SLURM = "slurm"
    HOLDFAST = "holdfast"
    REQUEST = "request"
    """A person's, or slurmctld's, and a request to us."""

    OTHER = "other"
    """A person's or another program's."""


@dataclass(frozen=True, slots=True)
class Word:
    """A reason, read. Slurm may have added to it, as in ``Action:Replace : Not responding``."""

    text: str
    author: Author
    verb: Verb | None = None
    meant: str = ""
    """What may have been meant by words that are nearly those of a request."""

    asks: bool = False
    """Whether it begins as a request does, of whatever kind."""


def parse_annotations(text: str) -> Word:
    """Read a reason: its leading token counts, to the letter."""
    text = text.strip().removeprefix(":").strip()  # Slurm adds to a reason that is blank, too
    if not text or text == "none":
        return Word("", Author.NOBODY)
    token, _, rest = text.partition(" ")
    if text.startswith(SlurmReason.OURS) or (token in _VERBS and rest.startswith(SlurmReason.OURS)):
        return Word(text, Author.HOLDFAST)
    if token in _VERBS:
        return Word(text, Author.REQUEST, verb=_VERBS[SlurmReason(token)])
    if text.startswith(_REBOOT_HELPS):
        return Word(text, Author.REQUEST, verb=Verb.REBOOT)
    if text.startswith(_SLURMS_OWN):
        return Word(text, Author.SLURM)
    letters = _NOT_LETTERS.sub("", text.lower())
    meant = (one for one in _VERBS if letters.startswith(_NOT_LETTERS.sub("", one.lower())))
    asks = _ASKS.match(text) is not None
    return Word(text, Author.OTHER, meant=next(meant, ""), asks=asks)


def our_reason(record: NodeRecord) -> str:
    """What we say of a node that is kept from jobs, with what is done about it in front."""
    remediation = record.remediation
    if remediation is None or record.phase in (Phase.JOINING, Phase.CHECKING):
        after = "" if remediation is None else f" after {remediation.reason}"
        is_deep = record.phase is Phase.CHECKING
        deep = f" (deep health check {DeepCheckStatus.IN_PROGRESS})" if is_deep else ""
        return f"{SlurmReason.OURS} checking{after}{deep}"
    if remediation.remedy is Remedy.NONE:
        return f"{SlurmReason.OURS} {remediation.reason}"
    is_replaced = remediation.remedy is Remedy.REPLACE
    action = SlurmReason.REPLACE if is_replaced else SlurmReason.REBOOT
    when = f" {DEFERRED}" if remediation.urgency is Urgency.DEFERRED else ""
    return f"{action} {SlurmReason.OURS} {remediation.reason}{when}"
