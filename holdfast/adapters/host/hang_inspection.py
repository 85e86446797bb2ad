"""Inspects the ranks of a job that is suspected to hang, before it is stopped; keeps the result.

Snapshots take seconds, in which reconciliation continues: they run in a thread, and a hang is
reported when they are done.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from holdfast.adapters.host.evidence_file import write_evidence
from holdfast.adapters.host.rank_stacks import rank_evidence
from holdfast.decisions.flight_recorder import RankFindings, combined, recorded_verdict
from holdfast.decisions.hang_evidence import HangEvidence
from holdfast.decisions.hang_verdict import verdict
from holdfast.model.errors import BackendError

_DEADLINE_S: Final = 10.0
"""Maximum time from the suspicion to the stop of the attempt, however long the snapshots take."""

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
    look: Callable[[], RankFindings]
    """Returns what the ranks do, within about 8 seconds."""

    file: Path
    """File for what is seen."""

    node: str | None = None
    """Node of this machine, of whose ranks arguments and environments are kept; None for all."""


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

        After 10 seconds, why that is unknown.
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
        is_late = (self._now() - known.suspected_at).total_seconds() >= _DEADLINE_S
        if known.done.is_set():
            return known.found
        text = f"the ranks could not be inspected within {_DEADLINE_S:g} s"
        return Inspected(text=text) if is_late else None

    def _run(self, suspicion: Suspicion, inspection: _Inspection) -> None:
        try:
            seen = suspicion.look()
            if not (seen.snapshots or seen.traces):
                return  # the job has no ranks that are known by their number
            found = combined(verdict(seen.snapshots), recorded_verdict(seen.traces), seen.ras)
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
            )
            with suppress(OSError):  # a full disk loses the evidence, not the verdict
                write_evidence(suspicion.file, evidence)
        except _FAILURES as error:
            why = str(error) or type(error).__name__
            if not inspection.found.text:
                inspection.found = Inspected(text=f"the ranks could not be inspected: {why}")
        finally:
            inspection.done.set()
