"""The demo of restarts inside a job: a killed rank, a hung rank, and a node that loses power.

``holdfast run`` runs ``holdfast launch`` on two nodes; a third one is a spare.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

from holdfast.adapters.host.progress_file import read_progress
from holdfast.adapters.local.faults import power_off, rank_processes
from holdfast.adapters.local.layout import RunDir
from holdfast.adapters.local.store import LocalStore
from holdfast.apps.demo.demo import (
    CONFIG,
    NODES,
    SPARES,
    DemoSettings,
    DemoStopped,
    command,
    delete_checkpoints,
    final_weights,
    require,
)
from holdfast.apps.run.logs import Follow
from holdfast.apps.run.screen import Screen
from holdfast.apps.run.settings import RunSettings
from holdfast.apps.run.start import started
from holdfast.model.errors import BackendError
from holdfast.model.jobs import JobPhase, JobRecord
from holdfast.model.nodes import Phase

_T = TypeVar("_T")

_JOB: Final = "demo-in-job"
_RANK: Final = 1
"""Node rank whose node gets the faults. The coordinator runs on the other one."""

_POLL_S: Final = 0.02
_NEXT_STEP: Final = 2
"""Lines of progress after a restart: the first one is the step that a rank resumes from."""

_OPTIONS: Final = (
    "--lease-timeout", "2s", "--shutdown-timeout", "1s", "--hang-timeout", "3s",
    "--max-restarts", "5", "--join-timeout", "2m",
)  # fmt: skip
"""A hang is noticed after 3 s without a step; a step takes some milliseconds."""


class InJobFault(StrEnum):
    """Faults of this demo."""

    KILL = "rank killed"
    HANG = "rank hung"
    NODE = "node powered off"


class InJobAction(StrEnum):
    """Responses to the faults."""

    IN_PLACE = "restarted in place"
    EXCHANGE = "node exchanged"
    WHOLE_JOB = "whole job restarted"


@dataclass(frozen=True, slots=True, kw_only=True)
class InJobRecovery:
    """One fault and its recovery."""

    fault: InJobFault
    node: str
    action: InJobAction
    new_node: str
    """Node that has the rank since; ``node`` after a restart in place."""

    down_s: float
    """Seconds from the fault to the next step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InJobResult:
    """Result of the demo."""

    ok: bool
    """Whether the job recovered from each fault as planned, and has the same weights."""

    steps: int
    final_sha256: str
    reference_sha256: str
    recoveries: tuple[InJobRecovery, ...]
    seconds: float


_PLAN: Final = (
    (InJobFault.KILL, InJobAction.IN_PLACE),
    (InJobFault.HANG, InJobAction.IN_PLACE),
    (InJobFault.NODE, InJobAction.EXCHANGE),
)


def play_in_job(
    settings: DemoSettings,
    screen: Callable[[], Screen],
    reported: Callable[[str], None],
) -> InJobResult:
    """Run the job without faults, then with three faults, and compare.

    Args:
        settings: settings of the demo.
        screen: returns the screen of a run; called once per run.
        reported: prints messages of the demo itself.

    Raises:
        ConfigError: a library that the job needs is missing.
        DemoStopped: a person stopped it.

    """
    require("torch" if settings.use_torch else "numpy")
    begun = time.monotonic()
    reported("1. The job without faults.")
    with _run(settings, f"{_JOB}-reference", 0, screen()) as directory:
        reference = final_weights(directory.checkpoints)
    reported(f"   weights {reference or 'missing: the job failed'}")
    reported("2. The same job with a killed rank, a hung rank and a node that loses power.")
    injector = _Injector(settings.home, settings.steps, reported)
    with _run(settings, _JOB, SPARES, screen(), injector) as directory:
        final = final_weights(directory.checkpoints)
    found = tuple(injector.recoveries)
    return InJobResult(
        ok=final == reference != "" and [(one.fault, one.action) for one in found] == [*_PLAN],
        steps=settings.steps,
        final_sha256=final,
        reference_sha256=reference,
        recoveries=found,
        seconds=round(time.monotonic() - begun, 1),
    )


def _command(settings: DemoSettings) -> Sequence[str]:
    """Return the command line of the job under ``holdfast launch``."""
    trainer = "train_torch" if settings.use_torch else "train_numpy"
    script = (
        "-m",
        f"holdfast.apps.demo.{trainer}",
        *command(replace(settings, use_torch=False))[3:],
    )
    return (sys.executable, "-m", "holdfast", "launch", *_OPTIONS, *script)


@contextmanager
def _run(
    settings: DemoSettings,
    name: str,
    spares: int,
    screen: Screen,
    injector: "_Injector | None" = None,
) -> Iterator[RunDir]:
    run_settings = RunSettings(
        name=name,
        home=settings.home,
        command=_command(settings),
        nodes=NODES,
        spares=spares,
        config=CONFIG,
    )
    delete_checkpoints(RunDir(settings.home / "runs" / name))
    with started(run_settings, screen, Follow.NONE) as (session, directory):
        if injector is not None:
            injector.start(directory)
        try:
            session.run()
        finally:
            if injector is not None:
                injector.stop()
        if session.stopped_by is not None:
            raise DemoStopped(session.stopped_by)
        yield directory


@dataclass(frozen=True, slots=True)
class _Before:
    """State of the job at a fault."""

    record: JobRecord
    launcher: int
    """Process on the node without the fault; it stays if a node is exchanged."""

    rounds: int


@dataclass(slots=True)
class _Injector:
    """Injects the faults one after the other from its own thread, as a person would."""

    home: Path
    steps: int
    reported: Callable[[str], None]
    recoveries: list[InJobRecovery] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self, run: RunDir) -> None:
        """Start the thread; the run must have been prepared."""
        target, name = self._inject_all, "fault-injector"
        self._thread = threading.Thread(target=target, args=(run,), name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, even if faults are left."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _inject_all(self, run: RunDir) -> None:
        store = LocalStore(run.state)
        try:
            for number, (fault, _) in enumerate(_PLAN, start=1):
                self._inject(fault, run, store, self.steps * number // (len(_PLAN) + 1))
        finally:
            store.close()

    def _inject(self, fault: InJobFault, run: RunDir, store: LocalStore, step: int) -> None:
        """Inject a fault once the job is at a step, and wait for the step after it."""
        before = self._wait(lambda: _injected(fault, _ready(run, store, step), run))
        if before is None:
            return
        began, node = time.monotonic(), before.record.placement[_RANK]
        self.reported(f"   >>> {fault} on {node}")
        steps = self._wait(lambda: _restarted(run, store, before))
        after = self._wait(lambda: _resumed(store, steps)) if steps is not None else None
        if after is None:
            return
        one = InJobRecovery(
            fault=fault,
            node=node,
            action=_action(run, before, after),
            new_node=after.placement[_RANK],
            down_s=round(time.monotonic() - began, 3),
        )
        self.recoveries.append(one)
        kept = ", and the launcher of the other node stayed"
        shown = kept if one.action is InJobAction.EXCHANGE else ""
        self.reported(f"   <<< {one.action}{shown}; next step after {one.down_s:.2f} s")

    def _wait(self, condition: Callable[[], _T | None]) -> _T | None:
        """Return the value of a condition once it has one; None if the run ends before."""
        while (value := condition()) is None:
            if self._over.wait(_POLL_S):
                return None
        return value


def in_job_timeline(result: InJobResult) -> list[list[str]]:
    """Return the recoveries as the rows of a table, the titles first."""
    titles = ["fault", "node", "action", "rank continues on", "down"]
    rows = [
        [one.fault, one.node, one.action, one.new_node, f"{one.down_s:.2f}s"]
        for one in result.recoveries
    ]
    return [titles, *rows]


def _ready(run: RunDir, store: LocalStore, step: int) -> _Before | None:
    """Return the state of the job; None before a step, or while a node is not in service."""
    record = _record(store)
    nodes = store.nodes().values()
    if (
        record is None
        or record.phase is not JobPhase.RUNNING
        or any(node.phase is not Phase.SCHEDULABLE for _, _, node in nodes)
        or (read_progress(run.progress(record.attempt)).last or 0) < step
    ):
        return None
    try:
        launcher = rank_processes(run.node(record.placement[0]))[0]
    except BackendError:
        return None
    return _Before(record, launcher, _rounds(run, record))


def _injected(fault: InJobFault, before: _Before | None, run: RunDir) -> _Before | None:
    """Cause a fault; return None if there was nothing to hit."""
    if before is None:
        return None
    node = run.node(before.record.placement[_RANK])
    try:
        if fault is InJobFault.NODE:
            power_off(node)
        else:
            _, _, rank, *_ = rank_processes(node)  # below the launcher and its guard
            os.kill(rank, signal.SIGKILL if fault is InJobFault.KILL else signal.SIGSTOP)
    except (BackendError, ProcessLookupError, ValueError):
        return None  # it has just ended
    return before


def _restarted(run: RunDir, store: LocalStore, before: _Before) -> tuple[Path, int] | None:
    """Return the file for the steps of the next round, and its present size, once it starts."""
    record = _record(store)
    if record is None:
        return None
    is_whole = record.attempt > before.record.attempt and not record.exchanged
    if not is_whole and _rounds(run, record) <= before.rounds:
        return None
    file = run.progress(record.attempt)
    return (file, file.stat().st_size) if file.exists() else None


def _resumed(store: LocalStore, steps: tuple[Path, int]) -> JobRecord | None:
    """Return the record of the job after the first step of the next round."""
    file, size = steps
    lines = file.read_bytes()[size:].count(b"\n")
    return _record(store) if lines >= _NEXT_STEP else None


def _action(run: RunDir, before: _Before, after: JobRecord) -> InJobAction:
    if after.attempt == before.record.attempt:
        return InJobAction.IN_PLACE
    try:
        has_stayed = rank_processes(run.node(after.placement[0]))[0] == before.launcher
    except BackendError:
        has_stayed = False
    return InJobAction.EXCHANGE if after.exchanged and has_stayed else InJobAction.WHOLE_JOB


def _record(store: LocalStore) -> JobRecord | None:
    found = store.jobs().get(_JOB)
    return None if found is None else found[1]


def _rounds(run: RunDir, record: JobRecord) -> int:
    """Return how many rounds the coordinator, at node rank 0, has started."""
    try:
        return run.log(record.attempt, 0).read_bytes().count(b"RoundStarted: ")
    except OSError:
        return 0
