"""One local machine, as the controller sees it: its power and its channel."""

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from holdfast.adapters.local.layout import NodeDir
from holdfast.kit.files import storage_error, write_atomically
from holdfast.kit.processes import kill_below, kill_marked, send
from holdfast.model.errors import BackendError
from holdfast.model.names import NODE_NAME_PREFIX

MARK: Final = "HOLDFAST_MACHINE"
"""Environment variable of everything that runs on a machine: its instance ID."""


class Power(StrEnum):
    """Power state of a machine."""

    BOOTING = "booting"
    ON = "on"
    OFF = "off"


@dataclass(slots=True)
class Task:
    """The last task of a machine: a rank of a job, or a check."""

    name: str
    exit_code: int | None = None
    ended_at: datetime | None = None


def new_provider_id() -> str:
    """Return an instance ID in EC2's format: ``i-`` and 17 hexadecimal digits."""
    return f"i-{secrets.token_hex(9)[:17]}"


def node_name(provider_id: str) -> str:
    """Return HyperPod's name for the node on an instance."""
    return NODE_NAME_PREFIX + provider_id


@dataclass(slots=True)
class LocalMachine:
    """A directory, and the process tree that runs on it while the machine is powered on."""

    provider_id: str
    directory: NodeDir
    boots_at: datetime
    replaces: str = ""
    power: Power = Power.BOOTING
    boot_id: str = ""
    task: Task | None = None
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    channel: socket.socket | None = field(default=None, repr=False)
    unread: bytes = b""
    unsent: bytes = b""

    @property
    def name(self) -> str:
        """Return the name of the node on this machine."""
        return node_name(self.provider_id)

    def boot(self, agent: Sequence[str]) -> None:
        """Power on: new boot ID, empty kernel log, new agent.

        Raises:
            BackendError: its files cannot be written, or its process cannot be started;
                ``StorageFull`` if no space is left.

        """
        self.boot_id = str(uuid.uuid4())
        self._write_files()
        try:
            self._start(agent)
        except OSError as error:
            raise BackendError(f"cannot start {self.name}: {error.strerror or error}") from error
        self.task = None
        self.power = Power.ON

    def _start(self, agent: Sequence[str]) -> None:
        directory = self.directory
        own_end, child_end = socket.socketpair()
        own_end.setblocking(False)  # noqa: FBT003 - the socket's own signature
        with contextlib.ExitStack() as failed, child_end:
            failed.callback(own_end.close)
            console = failed.enter_context(directory.console.open("ab"))
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "holdfast.adapters.local.node_process",
                    "--socket", str(child_end.fileno()), "--parent", str(os.getpid()),
                    "--dir", str(directory.path), *agent,
                ],
                stdin=subprocess.DEVNULL, stdout=console, stderr=console,
                pass_fds=[child_end.fileno()], process_group=0,
                env={**os.environ, MARK: self.provider_id},
            )  # fmt: skip
            failed.pop_all()
            console.close()
        self.channel, self.unread, self.unsent = own_end, b"", b""

    def _write_files(self) -> None:
        directory = self.directory
        directory.create()
        try:
            for stale in (directory.report, directory.heartbeat, directory.kmsg):
                stale.unlink(missing_ok=True)
            for fresh in (directory.kmsg, directory.console):
                fresh.touch()
            write_atomically(directory.boot_id, self.boot_id + "\n")
        except OSError as error:
            raise storage_error(error, directory.path) from error

    def cut_power(self, now: datetime) -> None:
        """Power off: end all processes on the machine at once."""
        if self.process is not None:
            send(self.process.pid, signal.SIGSTOP)  # prevents new processes
            kill_below(self.process.pid)
        self._lose_power(now)

    def _lose_power(self, now: datetime) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            kill_marked(MARK, {self.provider_id})
        if self.channel is not None:
            self.channel.close()
        self.process, self.channel = None, None
        self.power = Power.OFF
        if self.task is not None and self.task.exit_code is None:
            self.task.exit_code = -signal.SIGKILL
            self.task.ended_at = now

    def launch(
        self,
        task: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        log: Path,
        directory: Path | None = None,
    ) -> None:
        """Run ``argv`` as ``task``; no effect if that task was launched before.

        Args:
            task: ID of the task.
            argv: program and arguments.
            env: environment of the task.
            log: file for its output.
            directory: working directory; the current one if left out.

        """
        if self.task is not None and self.task.name == task:
            return
        self.task = Task(task)
        self._order(
            do="launch", task=task, argv=[*argv], log=str(log), cwd=str(directory or Path.cwd()),
            env={**env, MARK: self.provider_id},
        )  # fmt: skip

    def signal_task(self, signum: int) -> None:
        """Send a signal to the main process group of the task."""
        if self.task is not None and self.task.exit_code is None:
            self._order(do="signal", task=self.task.name, signal=signum)

    def terminate_task(self) -> None:
        """Send SIGTERM to the main process group of the task."""
        self.signal_task(signal.SIGTERM)
        self.signal_task(signal.SIGCONT)  # a stopped process handles no other signal

    def kill_task(self, now: datetime) -> None:
        """End all processes of the task at once, even if the node process hangs."""
        task = self.task
        if task is None or task.exit_code is not None or self.process is None:
            return
        self.signal_task(signal.SIGKILL)  # in case the node process has not received its launch yet
        if kill_below(self.process.pid, spare=self.agent_processes()):
            task.exit_code, task.ended_at = -signal.SIGKILL, now

    def agent_processes(self) -> list[int]:
        """Return the processes below the node process that belong to no task."""
        try:
            noted = json.loads(self.directory.processes.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return []
        return [noted["agent"][0]] if "agent" in noted else []

    def _order(self, **message: object) -> None:
        """Send a message; dropped if the machine is off, delayed while its node process hangs."""
        if self.channel is not None:
            self.unsent += json.dumps(message).encode() + b"\n"
            self._send()

    def _send(self) -> None:
        """Send what the channel takes now: an environment may exceed the socket's buffer."""
        with contextlib.suppress(OSError):  # it is full; or the machine is off, which is read below
            while self.channel is not None and self.unsent:
                self.unsent = self.unsent[self.channel.send(self.unsent) :]

    def exchange(self, now: datetime) -> None:
        """Send what is left, and process the messages; a closed channel means that it is off."""
        if self.channel is None:
            return
        self._send()
        try:
            data = self.channel.recv(65536)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self._lose_power(now)
            return
        *lines, self.unread = (self.unread + data).split(b"\n")
        for line in lines:
            self._note(json.loads(line), now)

    def remove(self) -> None:
        """Delete the machine's directory."""
        shutil.rmtree(self.directory.path, ignore_errors=True)

    def _note(self, message: dict[str, Any], now: datetime) -> None:
        task = self.task
        if task is not None and task.name == message["task"] and task.exit_code is None:
            task.exit_code = message["code"]
            task.ended_at = now
