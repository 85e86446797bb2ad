"""Linux process trees: listing descendants, and ending all of them."""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER: Final = 36  # linux/prctl.h
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_POLL_S: Final = 0.002
_END_S: Final = 0.5
"""Time for killed children to end."""

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}): {os.strerror(error)}")


def die_with_parent(parent: int, signum: int = signal.SIGKILL) -> None:
    """Make the kernel send ``signum`` to this process when process ``parent`` ends.

    Exits at once if the parent has already ended.
    """
    _prctl(_PR_SET_PDEATHSIG, signum)
    if os.getppid() != parent:
        raise SystemExit(128 + signum)


def become_subreaper() -> None:
    """Make descendants whose own parent ends children of this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def start_time(pid: int) -> int | None:
    """Return clock ticks from boot to the start of ``pid``; None if there is no such process.

    Together with the PID it identifies a process uniquely: PIDs are reused.
    """
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def is_alive(pid: int, started: int) -> bool:
    """Return whether the process that started at ``started`` still runs (a zombie does not)."""
    fields = _stat(pid)
    return bool(fields) and int(fields[19]) == started and fields[0] not in ("Z", "X")


def descendants(root: int) -> list[int]:
    """Return all processes below ``root`` except zombies, parents before children."""
    return _below(root, _children())


def trees(roots: Collection[int]) -> dict[int, list[int]]:
    """Return each of ``roots`` with all processes below it except zombies, from one look."""
    children = _children()
    return {root: [root, *_below(root, children)] for root in roots}


def cpu_use(pid: int) -> tuple[int, float] | None:
    """Return start time in clock ticks, and CPU seconds of a process and its ended children.

    None if there is no such process, or it is a zombie.
    """
    fields = _stat(pid)
    if not fields or fields[0] in ("Z", "X"):
        return None
    return int(fields[19]), sum(map(int, fields[11:15])) / _TICKS_PER_S


def send(pid: int, signum: int) -> None:
    """Send a signal; a missing process is no error."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)


def end_children(children: Sequence[subprocess.Popen[bytes]]) -> None:
    """Send SIGKILL to children and wait for their end, but not long.

    One that waits for storage or a driver in the kernel does not end, and the caller must not wait
    for it.
    """
    for child in children:
        child.kill()
    until = time.monotonic() + _END_S
    for child in children:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(max(0.0, until - time.monotonic()))


def kill_below(root: int, *, spare: Collection[int] = (), timeout_s: float = 5.0) -> bool:
    """Send SIGKILL to all processes below ``root`` until none is left.

    Args:
        root: process whose descendants are killed; it is not killed itself.
        spare: processes that are kept with all their descendants.
        timeout_s: seconds after which to give up, as a process in uninterruptible sleep cannot be
            killed.

    Returns:
        Whether no process is left.

    """
    deadline = time.monotonic() + timeout_s
    while True:
        children = _children()
        spared = {child for pid in spare for child in (pid, *_below(pid, children))}
        left = [pid for pid in _below(root, children) if pid not in spared]
        if not left:
            return True
        for pid in left:
            send(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)


def _children() -> dict[int, list[int]]:
    """Return ``parent -> children`` of all processes except zombies."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))) and fields[0] not in ("Z", "X"):
            children.setdefault(int(fields[1]), []).append(int(entry))
    return children


def _below(root: int, children: Mapping[int, list[int]]) -> list[int]:
    found: list[int] = []
    front = [root]
    while front:
        front = [child for parent in front for child in children.get(parent, ())]
        found += front
    return found


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; empty if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # on the path of a rank's end
            text = file.read(4096)
    except (FileNotFoundError, ProcessLookupError):
        return []
    # The name before it may hold spaces and brackets.
    return text.rpartition(b")")[2].decode("ascii").split()


def reap(spare: Collection[int]) -> None:
    """Reap ended children of this process, except those in ``spare``.

    A subreaper inherits children that it never started; until it waits for them, their entries stay
    in the system's process table.
    """
    try:
        while (pid := _ended_child()) is not None:
            if pid in spare:  # the kernel would return it again and again
                _reap_listed(spare)
                return
            os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def has_children() -> bool:
    """Return whether this process has a child, which may have ended.

    If a subreaper has none, no descendant of it is left. It takes one system call, where
    ``descendants`` reads the state of all processes of the machine.
    """
    try:
        _ended_child()
    except ChildProcessError:
        return False
    return True


def _ended_child() -> int | None:
    """Return a child that has ended and was not waited for; None if all run.

    Raises:
        ChildProcessError: there are no children.

    """
    ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return None if ended is None else ended.si_pid


def _reap_listed(spare: Collection[int]) -> None:
    me = os.getpid()
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) not in spare:
            fields = _stat(int(entry))
            if fields and fields[0] == "Z" and int(fields[1]) == me:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(int(entry), os.WNOHANG)


def reap_all(timeout_s: float = 5.0) -> bool:
    """Wait until this process has no children any more; return whether it has none."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if not ended:
            time.sleep(_POLL_S)
    return False


def kill_marked(variable: str, values: Collection[str]) -> int:
    """Send SIGKILL to every process with one of ``values`` in its initial environment.

    Finds processes whose parents are all gone. Returns how many were sent the signal.

    Args:
        variable: environment variable.
        values: values of it.

    """
    entries = {f"{variable}={value}".encode() for value in values}
    found = 0
    for entry in os.listdir("/proc") if entries else ():
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if entries.intersection(Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")):
                send(int(entry), signal.SIGKILL)
                found += 1
    return found
