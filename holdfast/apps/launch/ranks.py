"""Processes of the ranks of one round on this node."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from holdfast.adapters.launch.cgroups import Cgroup
from holdfast.apps.launch.rank_output import RankStreams
from holdfast.kit.open_files import restore_limit
from holdfast.kit.processes import descendants, die_with_parent, has_children, send

_CANNOT_EXECUTE: Final = 126  # exit codes of POSIX shells
_NOT_FOUND: Final = 127


@dataclass(slots=True)
class Rank:
    """A rank's process, leader of its session and process group."""

    local_rank: int
    process: subprocess.Popen[bytes] | None
    """None if it could not be started."""

    descriptor: int
    """pidfd, readable when the process has ended; -1 if there is none."""

    error: str = ""
    code: int | None = None
    """Exit code, or the negative number of the signal; None while the process runs."""

    is_stopped: bool = False
    """Whether it ended after the ranks had been sent a signal to end."""

    @property
    def pid(self) -> int | None:
        """Return its process; None if it has ended."""
        return self.process.pid if self.process is not None and self.code is None else None


@dataclass(slots=True)
class RankProcesses:
    """Ranks of one round, and processes that they started."""

    cgroup: Cgroup | None = None
    """Control group of the round, where there is one."""

    ranks: list[Rank] = field(default_factory=list)

    def start(
        self,
        local_rank: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        streams: RankStreams,
        warm: subprocess.Popen[bytes] | None = None,
    ) -> Rank:
        """Start a rank, or take a warm one that runs the command already.

        A program that cannot be executed gives a rank that has ended.
        """
        try:
            process = warm or subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=streams.stdout,
                stderr=streams.stderr,
                env=environment,
                start_new_session=True,
                preexec_fn=partial(become_rank, os.getpid(), self.cgroup),
            )
        except OSError as error:
            code = _NOT_FOUND if isinstance(error, FileNotFoundError) else _CANNOT_EXECUTE
            text = f"cannot run {command[0]!r}: {error.strerror}"
            rank = Rank(local_rank, None, -1, text, code)
        else:
            rank = Rank(local_rank, process, os.pidfd_open(process.pid))
        finally:
            streams.close()
        self.ranks.append(rank)
        return rank

    def reap(self, *, is_stopping: bool = False) -> list[Rank]:
        """Return the ranks that have ended since the last call.

        Args:
            is_stopping: whether they have been sent a signal to end.

        """
        ended = []
        for rank in self.ranks:
            if rank.process is not None and rank.code is None:
                rank.code, rank.is_stopped = rank.process.poll(), is_stopping
                if rank.code is not None:
                    os.close(rank.descriptor)
                    ended.append(rank)
        return ended

    def are_running(self) -> bool:
        """Return whether a rank runs."""
        return any(rank.code is None for rank in self.ranks)

    def signal(self, signum: int) -> None:
        """Send a signal to the process group of each running rank; SIGKILL to all processes."""
        if signum == signal.SIGKILL and self.cgroup is not None:
            self.cgroup.kill()
        for rank in self.ranks:
            if rank.process is not None and rank.code is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(rank.process.pid, signum)

    def kill_left(self, spare: Collection[int] = ()) -> list[int]:
        """Send SIGKILL to what the ranks left running, in any session. Returns the processes left.

        Args:
            spare: processes below this one that are not of the round.

        """
        own: list[int] = []
        if self.cgroup is not None:
            self.cgroup.kill()
            own = self.cgroup.processes()
        below = descendants(os.getpid()) if has_children() else []
        left = [pid for pid in below if pid not in spare]
        for pid in left:
            send(pid, signal.SIGKILL)
        left += [pid for pid in own if pid not in left]
        if not left and self.cgroup is not None:
            self.cgroup.remove()
        return left


def become_rank(launcher: int, cgroup: Cgroup | None = None) -> None:
    """Prepare a child process for the program of a rank."""
    if cgroup is not None:
        cgroup.add()
    die_with_parent(launcher)
    restore_limit()


def describe_unkillable(pids: list[int]) -> str:
    """Return lines about processes that did not end, with their kernel stacks.

    A thread of this process is one that waits for storage.
    """
    lines = []
    for pid in pids:
        what = f"process {pid} did not end after SIGKILL"
        then = "reboot this node before it is used again"
        if os.path.exists(f"/proc/self/task/{pid}"):
            what = "the storage of the ranks' files does not respond"
            then = "start the job again once it does"
        try:
            with open(f"/proc/{pid}/stack", encoding="utf-8") as file:
                stack = ", ".join(line.split()[-1] for line in file.read(4096).splitlines()[:8])
        except OSError as error:
            stack = f"stack not readable: {error.strerror}"
        lines.append(f"holdfast: {what} ({stack}); {then}\n")
    return "".join(lines)
