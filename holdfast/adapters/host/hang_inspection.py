"""Inspects the ranks of a job that is suspected to hang, before it is stopped; keeps the result.

Snapshots take seconds, in which reconciliation continues: they run in a thread, and a hang is
reported when they are done. A hang that is only reported is inspected up to three times, each time
for longer: see ``decisions.inspection_tries``.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.host.evidence_file import write_evidence
from holdfast.adapters.host.rank_stacks import rank_evidence
from holdfast.decisions.evidence_precedence import recent, verdict_of
from holdfast.decisions.flight_recorder import RankFindings
from holdfast.decisions.hang_evidence import HangEvidence
from holdfast.decisions.hang_verdict import Verdict
from holdfast.decisions.inspection_tries import deadline_of, is_incomplete, is_repeated, limit_of
from holdfast.model.errors import BackendError

_FAILURES: Final = (
    OSError, ArithmeticError, AttributeError, BackendError, LookupError, MemoryError, RuntimeError,
    TypeError, ValueError,
)  # fmt: skip
"""What an inspection may raise: a machine without resources, or a rank that writes nonsense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """A job that seems to hang."""

    job: str
    attempt: int
    since: datetime
    evidence: str
    look: Callable[[timedelta], RankFindings]
    """Returns what the ranks do, within the given time."""

    file: Path
    """File for what is seen."""

    node: str | None = None
    """Node of this machine, of whose ranks arguments and environments are kept; None for all."""

    restarts: bool
    """Whether a restart waits for the verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """Snapshots of the ranks of a job."""

    text: str
    """For people to read; empty if the job has no ranks that are known by their number."""

    node: str = ""
    """Node of the rank that the others wait for; empty if none stands out."""


@dataclass(slots=True)
class _Inspection:
    suspected_at: datetime
    done: threading.Event = field(default_factory=threading.Event)
    found: Inspected = Inspected(text="")


class HangInspector:
    """Inspects each suspected hang once.

    Args:
        now: current time.

    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._inspections: dict[tuple[str, int, datetime], _Inspection] = {}

    def inspect(self, suspicion: Suspicion) -> Inspected | None:
        """Return what the ranks do; None until that is known.

        After 10 seconds, or 70 for a hang that is only reported, why that is unknown.
        """
        key = (suspicion.job, suspicion.attempt, suspicion.since)
        known = self._inspections.get(key)
        if known is None:
            self._inspections = {
                other: one for other, one in self._inspections.items() if other[0] != key[0]
            }
            self._inspections[key] = known = _Inspection(self._now())
            threading.Thread(
                target=self._run, args=(suspicion, known), name="hang-inspection", daemon=True
            ).start()
        deadline = deadline_of(restarts=suspicion.restarts)
        is_late = self._now() - known.suspected_at >= deadline
        if known.done.is_set():
            return known.found
        text = f"the ranks could not be inspected within {deadline.total_seconds():g} s"
        return Inspected(text=text) if is_late else None

    def _run(self, suspicion: Suspicion, inspection: _Inspection) -> None:
        tries = 1
        while self._is_repeated(suspicion, inspection, tries):
            tries += 1
        inspection.done.set()

    def _is_repeated(self, suspicion: Suspicion, inspection: _Inspection, tries: int) -> bool:
        """Inspect the ranks once. Returns whether there was too little time."""
        limit, began, is_unread, names_rank = limit_of(tries), time.monotonic(), False, False
        try:
            seen = recent(suspicion.look(limit), suspicion.since)
            if not (seen.snapshots or seen.traces):
                return False  # the job has no ranks that are known by their number
            found = verdict_of(seen)
            is_unread, names_rank = is_incomplete(seen), bool(found.ranks)
            self._keep(suspicion, inspection, seen, found)
        except _FAILURES as error:
            why = str(error) or type(error).__name__
            is_unread = time.monotonic() - began >= limit.total_seconds()
            if not inspection.found.text:
                inspection.found = Inspected(text=f"the ranks could not be inspected: {why}")
        return is_repeated(
            names_rank=names_rank,
            is_incomplete=is_unread,
            tries=tries,
            restarts=suspicion.restarts,
        )

    def _keep(
        self,
        suspicion: Suspicion,
        inspection: _Inspection,
        seen: RankFindings,
        found: Verdict,
    ) -> None:
        named = [one.node for one in seen.snapshots if one.rank in found.ranks]
        inspection.found = Inspected(text=found.text, node=named[0] if named else "")
        evidence = HangEvidence(
            job=suspicion.job,
            attempt=suspicion.attempt,
            suspected_at=inspection.suspected_at,
            hung_since=suspicion.since,
            evidence=suspicion.evidence,
            verdict=found,
            ranks=tuple(rank_evidence(one, suspicion.node) for one in seen.snapshots),
            kernel=seen.kernel,
        )
        with suppress(OSError):  # a full disk loses the evidence, not the verdict
            write_evidence(suspicion.file, evidence)
