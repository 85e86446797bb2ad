"""The faults of the demo, and the thread that injects them while the job trains."""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.host.progress_file import read_progress
from holdfast.adapters.local.faults import (
    XID_TEXTS,
    hang_rank,
    kill_rank,
    power_off,
    write_kernel_line,
    xid_line,
)
from holdfast.adapters.local.layout import NodeDir, RunDir
from holdfast.adapters.local.store import LocalStore
from holdfast.model.errors import BackendError
from holdfast.model.jobs import JobPhase
from holdfast.model.nodes import Phase

_POLL_S: Final = 0.01
_DEVICE: Final = "0000:b9:00"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFault:
    """One fault: its kind, the rank whose node it hits, and the progress at which it is due."""

    fault: str
    rank: int
    share: float
    """Fraction of all steps after which the fault is due."""

    inject: Callable[[NodeDir], object]
    damages: bool = False
    """Whether a bit of the newest checkpoint is flipped right after the fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    """A fault that was injected."""

    fault: str
    node: str
    attempt: int
    """The attempt that it hit."""

    at: datetime
    damaged: str = ""
    """Checkpoint that was damaged; empty if none was."""


def xid(code: int) -> Callable[[NodeDir], object]:
    """Return a function that logs an XID on a node, as HyperPod's public test does."""

    def inject(node: NodeDir) -> object:
        line = xid_line(code, _DEVICE, XID_TEXTS[code])
        uptime = timedelta(seconds=time.monotonic())
        return write_kernel_line(node, line, now=datetime.now(UTC), since_boot=uptime)

    return inject


FAULTS: Final = (
    PlannedFault(fault="xid 74", rank=1, share=0.2, inject=xid(74)),
    PlannedFault(fault="xid 73", rank=0, share=0.4, inject=xid(73)),
    PlannedFault(fault="kill-rank", rank=1, share=0.6, inject=kill_rank),
    PlannedFault(fault="power-off", rank=0, share=0.8, inject=power_off),
)

DAMAGE: Final = (
    PlannedFault(fault="power-off", rank=0, share=0.5, inject=power_off, damages=True),
)

HANG: Final = (PlannedFault(fault="hang-rank", rank=1, share=0.5, inject=hang_rank),)


def flip_bit(folder: Path) -> str:
    """Flip one bit in the middle of the newest checkpoint, and return its name.

    Its size and times stay as they are, as after a silent error of a disk.

    Raises:
        BackendError: there is no checkpoint, or it cannot be written.

    """
    try:
        newest = max(folder.glob("step-*.ckpt"))
        status = newest.stat()
        with newest.open("r+b") as file:
            file.seek(status.st_size // 2)
            [byte] = file.read(1)
            file.seek(status.st_size // 2)
            file.write(bytes([byte ^ 1]))
        os.utime(newest, ns=(status.st_atime_ns, status.st_mtime_ns))
    except (OSError, ValueError) as error:
        raise BackendError(f"{folder}: no checkpoint could be damaged: {error}") from error
    return newest.name


@dataclass(slots=True)
class FaultInjector:
    """Injects the faults into a run, from its own thread.

    A fault is injected once the job has reached its step, runs, and has its spare node again. It is
    injected from outside, as ``holdfast inject`` does: the run is not notified.
    """

    run: RunDir
    job: str
    steps: int
    reported: Callable[[Injected], None]
    planned: tuple[PlannedFault, ...] = FAULTS
    injected: list[Injected] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread; the run must have been prepared."""
        self._thread = threading.Thread(target=self._inject_all, name="fault-injector", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, even if faults are left."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _inject_all(self) -> None:
        store = LocalStore(self.run.state)
        try:
            for fault in self.planned:
                while not self._over.is_set() and not self._try(fault, store):
                    self._over.wait(_POLL_S)
        finally:
            store.close()

    def _try(self, fault: PlannedFault, store: LocalStore) -> bool:
        """Inject the fault if it is due. Returns whether it was injected."""
        try:
            if self.job not in (jobs := store.jobs()):
                return False
            record = jobs[self.job][1]
            nodes = store.nodes().values()
            if record.phase is not JobPhase.RUNNING or not all(
                node.phase is Phase.SCHEDULABLE for _, _, node in nodes
            ):
                return False
            step = read_progress(self.run.progress(record.attempt)).last
            if step is None or step < fault.share * self.steps:
                return False
            if fault.damages and not self._has_two():
                return False
            node = record.placement[fault.rank]
            at = datetime.now(UTC)
            fault.inject(self.run.node(node))
            damaged = flip_bit(self.run.checkpoints) if fault.damages else ""
        except BackendError:
            return False  # the rank has just ended: retried later
        one = Injected(fault=fault.fault, node=node, attempt=record.attempt, at=at, damaged=damaged)
        self.injected.append(one)
        self.reported(one)
        return True

    def _has_two(self) -> bool:
        """Whether there is a checkpoint before the newest one, to resume from."""
        return len(list(self.run.checkpoints.glob("step-*.ckpt"))) > 1
