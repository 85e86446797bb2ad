"""Node process of one local machine: while it runs, the machine is powered on.

It runs the node's agent and one task at a time, a rank of a job or a check of the node. It ends
with its controller and leaves no process behind: as a subreaper it becomes the parent of every
orphan below it, and ends all of them before it exits. Its process group is in the session of its
controller: when that dies, the kernel resumes a stopped group.

Messages are JSON lines over the socket on ``--socket``. In: ``launch`` (task, argv, env, cwd, log)
and ``signal`` (task, signal). Out: (task, code), once no process of the task is left.
"""

import argparse
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, Final

from holdfast.kit.bounded_files import read_bounded
from holdfast.kit.files import storage_error, write_atomically, write_in_place
from holdfast.kit.processes import (
    become_subreaper,
    die_with_parent,
    kill_below,
    reap,
    start_time,
)

AGENT_RESTART_S: Final = 0.5
"""Seconds before an agent that has ended is restarted; far below the heartbeat timeout."""

AGENT_START_S: Final = 30.0
"""Limit for a restarted agent to send its first heartbeat, which takes 0.3 s on an idle machine and
was seen to take more than 5 s on one with 100 runnable processes."""

_HEARTBEAT_BYTES: Final = 256
_CANNOT_EXECUTE: Final = 126  # exit codes of POSIX shells
_NOT_FOUND: Final = 127


@dataclass(slots=True)
class _Task:
    name: str
    process: subprocess.Popen[bytes]


class RestartHeartbeat:
    """Heartbeats of a node whose agent restarts: the node itself has not failed.

    They end with the first heartbeat of the new agent, or ``limit_s`` seconds after the old one has
    ended: a node whose agent does not start counts as silent.
    """

    def __init__(self, path: Path, limit_s: float = AGENT_START_S) -> None:
        self._path = path
        self._limit_s = limit_s
        self._last = ""
        self._until: float | None = None

    @property
    def is_active(self) -> bool:
        """Return whether heartbeats are due."""
        return self._until is not None

    def begin(self) -> None:
        """Begin after an agent that has sent heartbeats has ended."""
        text = self._read()
        if text != self._last:
            self._last, self._until = text, time.monotonic() + self._limit_s

    def send(self) -> None:
        """Send one heartbeat, unless the new agent does or its time is over."""
        if self._until is None:
            return
        left = self._until - time.monotonic()
        if left < 0 or self._read() != self._last:
            self._until = None
            return
        self._last = f"{self._last.split()[0]} restarting {left:.2f}"
        with contextlib.suppress(OSError):
            write_in_place(self._path, self._last + "\n")

    def _read(self) -> str:
        try:
            return read_bounded(self._path, _HEARTBEAT_BYTES).decode("utf-8", "replace").strip()
        except OSError:
            return ""


def opened_log(path: Path) -> FileIO:
    """Open the log of a task; without space for it, its output is lost, but it runs."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("ab", buffering=0)
    except OSError as error:
        with contextlib.suppress(OSError):  # console.log is on the same disk
            print(f"the output is lost: {storage_error(error, path)}", file=sys.stderr)  # noqa: T201
        return Path(os.devnull).open("ab", buffering=0)


class _Node:
    def __init__(self, channel: socket.socket, directory: Path, agent: list[str]) -> None:
        self._channel = channel
        self._directory = directory
        self._agent_argv = agent
        self._agent: subprocess.Popen[bytes] | None = None
        self._restart = RestartHeartbeat(directory / "agent" / "heartbeat")
        self._task: _Task | None = None
        self._unread = b""
        self._are_noted = False
        self._die_with_us = partial(die_with_parent, os.getpid())

    def run(self) -> None:
        """Serve until the controller closes the channel or a signal asks to end."""
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._start_agent()
        while True:
            is_steady = self._agent and self._are_noted and not self._restart.is_active
            pause = None if is_steady else AGENT_RESTART_S
            ready, _, _ = select.select([self._channel.fileno(), wake_read], [], [], pause)
            if wake_read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, 4096)
            if self._agent is None and not ready:
                self._start_agent()
            elif not self._are_noted:
                self._note_processes()
            if self._channel.fileno() in ready and not self._receive():
                return
            self._reap()
            self._restart.send()

    def _start_agent(self) -> None:
        """Start the agent; a start that fails for lack of processes or memory is retried."""
        with contextlib.suppress(OSError), (self._directory / "console.log").open("ab") as console:
            self._agent = subprocess.Popen(
                self._agent_argv,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                preexec_fn=self._die_with_us,
            )
        self._note_processes()

    def _receive(self) -> bool:
        data = self._channel.recv(65536)
        if not data:
            return False
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._handle_command(json.loads(line))
        return True

    def _handle_command(self, order: dict[str, Any]) -> None:
        if order["do"] == "launch":
            self._launch(order)
        elif self._task is not None and self._task.name == order["task"]:
            self._signal(order["signal"])

    def _launch(self, order: dict[str, Any]) -> None:
        if self._task is not None:
            return  # a repeated launch
        task = order["task"]
        with opened_log(Path(order["log"])) as output:
            try:
                process = subprocess.Popen(
                    order["argv"],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=order["env"],
                    cwd=order["cwd"],
                    start_new_session=True,
                    preexec_fn=self._die_with_us,
                )
            except OSError as error:
                with contextlib.suppress(OSError):  # the disk is full
                    output.write(f"holdfast: cannot run {order['argv'][0]!r}: {error}\n".encode())
                code = _NOT_FOUND if isinstance(error, FileNotFoundError) else _CANNOT_EXECUTE
                self._send(task, code)
                return
        self._task = _Task(task, process)
        self._note_processes()

    def _signal(self, signum: int) -> None:
        assert self._task is not None  # noqa: S101 - the caller has looked
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._task.process.pid, signum)

    def _reap(self) -> None:
        if self._agent is not None and self._agent.poll() is not None:
            self._agent = None
            self._restart.begin()
            self._note_processes()
        if self._task is not None and (code := self._task.process.poll()) is not None:
            kill_below(os.getpid(), spare=self._spared())  # processes that the task left running
            over, self._task = self._task, None
            self._note_processes()
            self._send(over.name, code)
        self._reap_orphans()

    def _reap_orphans(self) -> None:
        """Reap ended processes that this one adopted."""
        own = set(self._spared())
        if self._task is not None:
            own.add(self._task.process.pid)
        reap(own)

    def _spared(self) -> list[int]:
        return [self._agent.pid] if self._agent is not None else []

    def _send(self, task: str, code: int) -> None:
        message = {"task": task, "code": code}
        self._channel.sendall(json.dumps(message).encode() + b"\n")

    def _note_processes(self) -> None:
        pids = {
            "node": os.getpid(),
            "agent": self._agent.pid if self._agent is not None else None,
            "task": self._task.process.pid if self._task is not None else None,
        }
        noted = {role: (pid, start_time(pid)) for role, pid in pids.items() if pid is not None}
        try:
            write_atomically(self._directory / "processes.json", json.dumps(noted))
        except OSError:  # only `holdfast inject` reads it: a full disk must not end the node
            self._are_noted = False
        else:
            self._are_noted = True


def main(argv: list[str]) -> int:
    """Run one local machine until the controller ends or closes the channel."""
    parser = argparse.ArgumentParser(prog="holdfast _node", description=__doc__)
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("agent", nargs=argparse.REMAINDER)
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGHUP, _end)
    become_subreaper()
    try:
        die_with_parent(options.parent, signal.SIGTERM)
        _Node(socket.socket(fileno=options.socket), options.dir, options.agent).run()
    except (ConnectionError, SystemExit):
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        kill_below(os.getpid())
    return 0


def _end(*_: object) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
