"""Control groups (cgroup v2) for the ranks of a launcher.

The kernel kills all processes of a control group at once, also those that fork meanwhile or have
left their session and their parents, and lists those that are left. Control groups are made only
below that of the launcher, so limits and accounting stay. Where that is not allowed, there are
none: an unprivileged container, a service or session without delegation, Linux before 5.14.
"""

import fcntl
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.kit.cgroup_paths import mounted

_PREFIX: Final = "holdfast-launch-"
_SLURM_STEP: Final = re.compile(r"/job_[^/]+/step_")
_LIMIT: Final = 1 << 22
"""Maximum number of bytes that are read from a kernel file."""

_END_S: Final = 5.0
"""Time for killed processes to end; one in uninterruptible sleep does not."""

_POLL_S: Final = 0.002
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One control group. A missing one has no processes, and no operation on it fails."""

    folder: Path

    def below(self, name: str) -> "Cgroup | None":
        """Create a control group in this one; None if that is not possible any more."""
        folder = self.folder / name
        try:
            folder.mkdir()
        except OSError:
            return None
        return Cgroup(folder)

    def add(self, pid: int = 0) -> None:
        """Move a process into it, where that is allowed; 0 for the one that calls."""
        self._write("cgroup.procs", str(pid))

    def kill(self) -> None:
        """Send SIGKILL to all processes in it and below."""
        self._write("cgroup.kill", "1")

    def processes(self) -> list[int]:
        """Return the processes in it and below, except zombies."""
        found = []
        for folder, _, _ in os.walk(self.folder):
            with suppress(OSError):
                found += [int(pid) for pid in _read(Path(folder, "cgroup.procs")).split()]
        return found

    def remove(self) -> bool:
        """Remove it, and those that its processes made; return whether it is gone.

        It stays while a process is in it.
        """
        for folder, _, _ in os.walk(self.folder, topdown=False):
            with suppress(OSError):
                os.rmdir(folder)
        return not self.folder.exists()

    def end(self) -> None:
        """Kill all processes, wait until they are gone (5 s at most), and remove it."""
        deadline = time.monotonic() + _END_S
        while not self.remove() and time.monotonic() < deadline:
            self.kill()
            time.sleep(_POLL_S)

    def _write(self, name: str, text: str) -> None:
        with suppress(OSError):
            handle = os.open(self.folder / name, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(handle, text.encode())
            finally:
                os.close(handle)


def create_cgroup(environment: Mapping[str, str]) -> Cgroup | None:
    """Create the control group of this launch; None where that is not allowed.

    It is locked until this process and those that it forks have ended, in any way.

    Args:
        environment: of this process. Slurm tracks only the processes that are directly in the
            control group of a task, so those of its steps get none: they are in one already.

    """
    parent = None if "SLURM_JOB_ID" in environment else own_cgroup()
    if parent is None:
        return None
    remove_unused(parent)
    for _ in range(_TRIES):
        created = Cgroup(parent).below(f"{_PREFIX}{os.getpid()}-{os.urandom(4).hex()}")
        if created is None:
            return None
        if not (created.folder / "cgroup.kill").exists():
            created.remove()
            return None
        if (lock := _lock(created.folder)) is not None:
            if created.folder.exists():
                return created
            os.close(lock)  # another launcher took it for an unused one before it was locked
        created.remove()
    return None


def remove_unused(parent: Path) -> None:
    """Kill what launches that have ended, also by SIGKILL, left in their control groups."""
    for folder in parent.glob(f"{_PREFIX}*"):
        if (lock := _lock(folder)) is not None:
            Cgroup(folder).end()
            os.close(lock)


def _lock(folder: Path) -> int | None:
    """Lock a directory until the descriptor is closed; None if another process has locked it."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def own_cgroup() -> Path | None:
    """Return the directory of this process's control group; None if it may create none in it."""
    try:
        lines = _read(Path("/proc/self/cgroup")).splitlines()
        own = next((line[3:] for line in lines if line.startswith("0::")), None)
        mounts = _read(Path("/proc/self/mountinfo"))
        if own is None or _SLURM_STEP.search(own):
            return None
        folder = mounted(own, mounts)
        if folder is None or not os.access(folder, os.W_OK):
            return None
        # In a namespace, paths may look alike that are not.
        if str(os.getpid()) not in _read(folder / "cgroup.procs").split():
            return None
    except OSError:
        return None
    return folder


def _read(path: Path) -> str:
    with path.open("rb", buffering=0) as file:
        return (file.read(_LIMIT) or b"").decode("utf-8", "surrogateescape")
