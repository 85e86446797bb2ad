"""Inspects the ranks of a job that is suspected to hang, before it is stopped; keeps the result.

Snapshots take seconds, in which reconciliation continues: they run in a thread, and a hang is
reported when they are done.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from holdfast.adapters.host.rank_findings import inspect_ranks
from holdfast.adapters.host.rank_stacks import NodeRanks, command_line, environment, take_snapshots
from holdfast.decisions.flight_recorder import combined, recorded_verdict
from holdfast.decisions.hang_verdict import Verdict, verdict
from holdfast.decisions.rank_snapshots import RankSnapshot
from holdfast.kit.files import write_atomically
from holdfast.kit.serial import to_plain

_DEADLINE_S: Final = 10.0
"""Maximum time from the suspicion to the stop of the attempt, however long the snapshots take."""

_FAILURES: Final = (
    OSError, ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError,
    ValueError,
)  # fmt: skip
"""What an inspection may raise: a machine without resources, or a rank that writes nonsense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """A job that seems to hang."""

    job: str
    attempt: int
    since: datetime
    evidence: str
    nodes: Sequence[NodeRanks]
    file: Path
    """File for what is seen."""

    dumps: Path
    """Directory in which the ranks dump their flight recorders."""


@dataclass(slots=True)
class _Inspection:
    suspected_at: datetime
    done: threading.Event = field(default_factory=threading.Event)
    text: str = ""


class HangInspector:
    """Inspects each suspected hang once.

    Args:
        now: current time.

    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._inspections: dict[tuple[str, int, datetime], _Inspection] = {}

    def inspect(self, suspicion: Suspicion) -> str | None:
        """Return what the ranks do, for people to read; None until that is known.

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
            return known.text
        return f"the ranks could not be inspected within {_DEADLINE_S:g} s" if is_late else None

    def _run(self, suspicion: Suspicion, inspection: _Inspection) -> None:
        try:
            seen = inspect_ranks(lambda: take_snapshots(suspicion.nodes), suspicion.dumps)
            found = combined(verdict(seen.snapshots), recorded_verdict(seen.traces))
            inspection.text = found.text
            _write(suspicion, seen.snapshots, found, inspection.suspected_at)
        except _FAILURES as error:
            why = str(error) or type(error).__name__
            inspection.text = inspection.text or f"the ranks could not be inspected: {why}"
        finally:
            inspection.done.set()


def _write(
    suspicion: Suspicion, seen: Sequence[RankSnapshot], found: Verdict, at: datetime
) -> None:
    """Store what was seen; a full disk loses it, not the verdict."""
    report = {
        "job": suspicion.job,
        "attempt": suspicion.attempt,
        "suspected_at": to_plain(at),
        "hung_since": to_plain(suspicion.since),
        "evidence": suspicion.evidence,
        "verdict": to_plain(found),
        "ranks": [{**to_plain(one), **_process_details(one.pid)} for one in seen],
    }
    try:
        suspicion.file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(suspicion.file, json.dumps(report, indent=1) + "\n")
    except OSError:
        return


def _process_details(pid: int | None) -> Mapping[str, Any]:
    if pid is None:
        return {"command": [], "environment": {}}
    return {"command": list(command_line(pid)), "environment": dict(environment(pid))}
