"""What is kept of a hang, for people to read after the job was restarted: pure."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from holdfast.decisions.hang_verdict import Verdict
from holdfast.decisions.kernel_lines import LINES, NodeKernelLog, fewer_lines
from holdfast.decisions.rank_snapshots import RankSnapshot, shortened
from holdfast.kit.serial import to_plain


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEvidence:
    """What one rank did, and how it was started."""

    snapshot: RankSnapshot
    command: tuple[str, ...] = ()
    """Its arguments with secrets masked; empty if unknown."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Its environment with secrets masked; empty if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HangEvidence:
    """A suspected hang: the verdict, and what the ranks did."""

    job: str
    attempt: int
    """Attempt of the job; for ``holdfast launch`` by itself the restart count."""

    suspected_at: datetime
    """Time at which the ranks were looked at."""

    hung_since: datetime | None = None
    """Time of the last step; None if unknown."""

    evidence: str
    """Why it was suspected."""

    verdict: Verdict
    ranks: tuple[RankEvidence, ...]
    kernel: tuple[NodeKernelLog, ...] = ()
    """Kernel logs of the nodes since the last step, within bounds."""

    @property
    def snapshots(self) -> tuple[RankSnapshot, ...]:
        """Return what the ranks did."""
        return tuple(one.snapshot for one in self.ranks)


def plain_evidence(evidence: HangEvidence) -> dict[str, Any]:
    """Return the evidence for a JSON document."""
    found: dict[str, Any] = to_plain(evidence)
    return found


def bounded_text(evidence: HangEvidence, limit: int) -> str:
    """Return the evidence as JSON of at most ``limit`` bytes.

    First less is kept of each rank and of each kernel log, then fewer ranks and no kernel log.

    The verdict always fits: it has at most a few thousand characters.
    """
    for shorter in _shortened(evidence):
        text = json.dumps(plain_evidence(shorter))
        if len(text) <= limit:  # json.dumps writes ASCII
            return text
    return json.dumps(plain_evidence(replace(evidence, ranks=(), kernel=())))


def _shortened(evidence: HangEvidence) -> Iterator[HangEvidence]:
    yield evidence
    for count, snapshots in enumerate(shortened(evidence.snapshots)):
        ranks = tuple(RankEvidence(snapshot=one) for one in snapshots)
        kernel = fewer_lines(evidence.kernel, LINES >> count)
        yield replace(evidence, ranks=ranks, kernel=kernel)
