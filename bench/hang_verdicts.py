"""Runs schedules of hangs under ``holdfast launch``, several jobs at a time."""

import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from bench.hang_schedules import EXPECTED, TIMEOUT_S, Outcome, Results, Schedule
from bench.hanging_job import LIMIT_S, HangingJob, hanging_job, launch_command, storage, wait_s

_NO_VERDICT: Final = {"ranks": [], "kind": "", "text": "no verdict"}
_TRIES: Final = 2
"""Jobs in which a hang is tried; a second one only if it never came about."""


class Pending:
    """Schedules that no job has taken yet.

    Args:
        schedules: in the order in which they are run.
        kinds: number of kinds of hangs. A job takes one of each, in the order of their numbers.

    """

    def __init__(self, schedules: Sequence[Schedule], kinds: int) -> None:
        jobs: dict[int, list[Schedule]] = {}
        for one in schedules:
            jobs.setdefault(one.number // kinds, []).append(one)
        self._waiting = deque((batch, 1) for batch in jobs.values())
        self._lock = threading.Lock()

    def take(self) -> tuple[list[Schedule], int]:
        """Return the hangs of the next job, and how often the first one was tried with this job."""
        with self._lock:
            return self._waiting.popleft() if self._waiting else ([], 0)

    def put_back(self, schedules: list[Schedule], tries: int) -> None:
        """Take back hangs that did not come about; the first one is given up in the end."""
        left = schedules if tries < _TRIES else schedules[1:]
        with self._lock:
            if left:
                self._waiting.append((left, tries + 1 if left is schedules else 1))


def run_schedules(
    schedules: Sequence[Schedule], results: Results, *, kinds: int, concurrency: int
) -> None:
    """Run schedules; their outcomes are added to the results.

    Args:
        schedules: the hangs.
        results: where their outcomes are kept.
        kinds: number of kinds of hangs.
        concurrency: jobs at a time. A hung job needs no CPU, but 2 to 3 GB of memory.

    """
    pending = Pending(schedules, kinds)
    results.begin(len(schedules))
    threads = [
        threading.Thread(target=_run_pending, args=(pending, results)) for _ in range(concurrency)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


def _run_pending(pending: Pending, results: Results) -> None:
    with storage() as frozen:
        while True:
            batch, tries = pending.take()
            if not batch:
                return
            done = _run_job(batch, frozen, results)
            if done < len(batch):
                pending.put_back(batch[done:], tries if done == 0 else 1)


def _run_job(batch: Sequence[Schedule], frozen: Path | None, results: Results) -> int:
    """Run one job; return the number of its hangs with an outcome."""
    command = launch_command(
        "--max-restarts", "0", "--straggler-factor", "0", "--stall-floor", f"{TIMEOUT_S}s"
    )
    with hanging_job(command, batch, frozen) as job:
        watch = Watch(job)
        for place, one in enumerate(batch):
            outcome = watch.outcome(one, place)
            if outcome is None:
                sys.stderr.write(f"{one.number}: {one}: nothing hung: {job.log[-1500:]}\n")
                return place
            results.add(outcome)
            if outcome.text == _NO_VERDICT["text"]:
                sys.stderr.write(job.log[-1500:])
            state = "ok" if outcome.is_right else "WRONG"
            times = f"{outcome.hung_s:.0f} s after the hang, {outcome.verdict_s:.1f} s after"
            load = f"load average {os.getloadavg()[0]:.0f}"
            sys.stderr.write(
                f"{one.number}: {one}: {state} {times} the suspicion, {load}: {outcome.text}\n"
                f"{results.progress}\n"
            )
            job.release(place)
    return len(batch)


@dataclass(frozen=True, slots=True)
class _Stored:
    """Evidence that the launcher has stored."""

    verdict: dict[str, Any]
    suspected_at: float
    at: float
    """Time at which it was stored, in seconds since 1970."""


class Watch:
    """Reads the verdicts on one job."""

    def __init__(self, job: HangingJob) -> None:
        self._job = job
        self._last = 0
        """Modification time of the evidence that was read, in nanoseconds."""

        self._healthy_since: float | None = None

    def outcome(self, one: Schedule, place: int) -> Outcome | None:
        """Wait for the verdict on a hang; None if the job has ended before it."""
        found, is_false = self._next(one, place), False
        while found is not None and self._is_early(found, place):
            sys.stderr.write(f"{one.number}: {one}: false verdict: {found.verdict['text']}\n")
            found, is_false = self._next(one, place), True
        hung_at = self._job.time_of(f"hung-{place}")
        if hung_at is None:
            return None
        since = self._healthy_since or self._job.time_of("began") or hung_at
        self._healthy_since = time.time()
        verdict = (
            found.verdict if found is not None else {"ranks": [], "kind": "", "text": "no verdict"}
        )
        return Outcome(
            one.number, one.framework, one.kind,
            is_rank=verdict["ranks"] == [one.rank],
            is_kind=verdict["kind"] == EXPECTED[one.kind],
            is_false=is_false,
            verdict_s=found.at - found.suspected_at if found is not None else LIMIT_S,
            hung_s=found.at - hung_at if found is not None else LIMIT_S,
            healthy_s=hung_at - since,
            text=verdict["text"],
        )  # fmt: skip

    def _is_early(self, found: _Stored, place: int) -> bool:
        hung_at = self._job.time_of(f"hung-{place}")
        return hung_at is None or found.suspected_at < hung_at

    def _next(self, one: Schedule, place: int) -> _Stored | None:
        """Return the next evidence; None if there is none in time."""
        until = time.monotonic() + LIMIT_S
        while wait_s(until):
            self._job.stop_rank_or_storage(one, place)
            for file in self._job.folder.glob("logs/*/attempt_0/evidence.json"):
                if (changed := file.stat().st_mtime_ns) > self._last:
                    self._last = changed
                    stored = json.loads(file.read_text(encoding="utf-8"))
                    began = datetime.fromisoformat(stored["suspected_at"]).timestamp()
                    return _Stored(stored["verdict"], began, changed / 1e9)
            if self._job.has_ended():
                return None
        return None
