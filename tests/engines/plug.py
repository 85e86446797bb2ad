"""Runs a program so that its plug can be pulled, without any privilege.

``python -I -S plug.py PARENT PROGRAM [ARGUMENT ...]`` stays while anything of the program is left,
also what has made itself a daemon. SIGTERM ends all of it at once, as a power loss would; so does
the end of the thread of process ``PARENT`` that started it.

Each program of a cluster has one, so it imports next to nothing, and finds what is below it by the
kernel's lists of children instead of reading all processes of the machine.
"""

import ctypes
import os
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_POLL_S = 0.002
_END_S = 5.0
"""Seconds after which to give up: a process in uninterruptible sleep cannot be killed."""


def main(parent: int, command: list[str]) -> int:
    """Run ``command`` until nothing of it is left; returns its exit code."""
    _children(os.getpid())  # fails here if the kernel has no such list
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGTERM, _pull)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        return 128 + signal.SIGTERM
    changed = (signal.SIGPIPE, signal.SIGXFSZ)  # which Python ignores
    program = os.posix_spawnp(command[0], command, os.environ, setsigdef=changed)
    code = 0
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            return code
        if pid == program:
            code = os.waitstatus_to_exitcode(status)


def _pull(_number: int, _frame: object) -> None:
    deadline = time.monotonic() + _END_S
    while _has_children() and time.monotonic() < deadline:
        for pid in _below(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(_POLL_S)
    os._exit(128 + signal.SIGTERM)


def _has_children() -> bool:
    """Reap those that have ended. As a subreaper's, what is below it is or becomes its child."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _below(pid: int) -> list[int]:
    """All processes below it, also zombies."""
    found = [pid]
    for one in found:
        found += _children(one)
    return found[1:]


def _children(pid: int) -> list[int]:
    """The children of all its threads; none if it has ended."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                found += map(int, file.read().split())
    except (FileNotFoundError, ProcessLookupError):
        if pid == os.getpid():
            raise
    return found


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
