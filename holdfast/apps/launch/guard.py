"""The process that outlives the launcher, and leaves none of its processes behind.

The launcher is a child of the guard. The guard adopts every process whose parent has ended, passes
signals on, and when the launcher ends in any way, sends SIGKILL to all that is left. When it does
not renew its lease, the guard ends all processes below it. A launcher that was stopped with its
machine, or that waited for storage, then joins again; one that still does not respond is ended,
too.
"""

import contextlib
import math
import os
import select
import signal
import struct
import sys
import time
from dataclasses import dataclass
from typing import Final

from holdfast.adapters.launch.cgroups import Cgroup, remove_unused
from holdfast.apps.launch.stderr_relay import StderrRelay
from holdfast.kit.processes import become_subreaper, die_with_parent, kill_below, reap
from holdfast.kit.signals import heeded

FORWARDED: Final = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
"""Signals that the guard passes to the launcher, except those that the caller ignores."""

_DEADLINE: Final = struct.Struct("=d")
_REAP_MS: Final = 10_000
_AGAIN_MS: Final = 50
"""Interval at which the processes below a launcher without a lease are ended: it may resume and
start another one."""

_RESPONSE_S: Final = 30.0
"""Time from the end of its lease for a launcher to respond; the same as for processes to end after
SIGKILL."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Launcher's end of the lease that the guard monitors."""

    descriptor: int

    def renew(self, until: float) -> None:
        """Let ranks run until a monotonic time; infinity: without a limit."""
        # The guard has not read older ones, or has been killed: this process then ends its ranks.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self.descriptor, _DEADLINE.pack(until))


def fork_under_guard(cgroup: Cgroup | None) -> Lease | int:
    """Continue in a child process that this one guards.

    Args:
        cgroup: control group of all ranks, where there is one.

    Returns:
        The lease, in the child; in the guard, the exit code of the child, once it has ended.

    """
    become_subreaper()
    parent = os.getpid()
    leases, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    child = os.fork()
    if child == 0:
        os.close(leases)
        os.setpgid(0, 0)  # Ctrl-C reaches it once, through the guard
        die_with_parent(parent, signal.SIGTERM)  # it then ends its ranks
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        return Lease(writer)
    os.close(writer)
    # Without it, a signal just before ``poll`` would be passed on only when that returns.
    wake, wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
    for signum in heeded(FORWARDED):
        signal.signal(signum, lambda number, _: _pass_on(child, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    with StderrRelay():
        return _outlive(child, leases, wake, cgroup)


def _pass_on(child: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signum)


def _outlive(child: int, leases: int, wake: int, cgroup: Cgroup | None) -> int:
    ended = os.pidfd_open(child)
    poll = select.poll()
    for descriptor in (ended, leases, wake):
        poll.register(descriptor, select.POLLIN)
    until = give_up_at = math.inf
    while True:
        ready = [descriptor for descriptor, _ in poll.poll(_pause_ms(until, give_up_at))]
        if ended in ready:
            break
        if wake in ready:
            os.read(wake, 4096)
        if leases in ready:
            data = os.read(leases, 4096)  # whole records: a pipe does not split small writes
            if not data:
                poll.unregister(leases)
                continue
            (until,) = _DEADLINE.unpack(data[-_DEADLINE.size :])
        now = time.monotonic()
        if now < until:
            give_up_at = math.inf
        elif leases not in ready:
            give_up_at = _without_lease(child, cgroup, now, give_up_at)
            until = math.inf if math.isinf(give_up_at) else until
        reap([child])
    _, status = os.waitpid(child, 0)
    _end_all(cgroup)
    if cgroup is not None:
        remove_unused(cgroup.folder.parent)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        sys.stderr.write(
            f"holdfast: launcher ended by signal {-code}; its ranks were sent SIGKILL\n"
        )
        return 128 - code
    return code


def _pause_ms(until: float, give_up_at: float) -> float:
    if math.isfinite(give_up_at):
        return _AGAIN_MS
    return min(_REAP_MS, max(0.0, (until - time.monotonic()) * 1000))


def _without_lease(child: int, cgroup: Cgroup | None, now: float, give_up_at: float) -> float:
    """End the processes below a launcher without a lease, and at last the launcher.

    Returns:
        The monotonic time at which the launcher is ended; infinity once it is.

    """
    if math.isinf(give_up_at):
        sys.stderr.write("holdfast: the launcher does not respond; ending its ranks\n")
        give_up_at = now + _RESPONSE_S
    if now < give_up_at:
        if cgroup is not None:
            cgroup.kill()
        kill_below(child, timeout_s=0.0)
        return give_up_at
    os.kill(child, signal.SIGKILL)
    _end_all(cgroup)
    return math.inf


def _end_all(cgroup: Cgroup | None) -> None:
    if cgroup is not None:
        cgroup.kill()
    kill_below(os.getpid())
    if cgroup is not None:
        cgroup.end()
