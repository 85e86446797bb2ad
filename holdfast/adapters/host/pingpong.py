"""Runs ``fi_pingpong`` servers and clients; a client retries until its server listens."""

import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from holdfast.adapters.host.commands import NotStarted, run_command
from holdfast.detectors.pingpong import Exchange, is_refused, read_pingpong
from holdfast.model.errors import BackendError

RUNS: Final = (("-I", "10", "-c"), ("-I", "100"))
"""First a few messages with data verification, which is slow; then the measured ones."""

TIMEOUT: Final = timedelta(seconds=30)
"""Timeout of one run, which normally takes a second: at 10 MB/s the 200 messages of 1 MiB take
21 s, and a slower rate is below any threshold."""

_STARTS_IN: Final = timedelta(seconds=5)
_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """``fi_pingpong`` program and the libfabric provider and domain that it uses."""

    program: str
    """Path of ``fi_pingpong``."""

    provider: str
    domain: str = ""
    """Such as ``rdmap0s29-rdm``; the first available domain if empty."""

    def server(self, run: Sequence[str], port: int) -> tuple[str, ...]:
        """Return the command of the server."""
        return (*self._argv(run), "-B", str(port))

    def client(self, run: Sequence[str], port: int, host: str) -> tuple[str, ...]:
        """Return the command of the client, which measures."""
        return (*self._argv(run), "-P", str(port), host)

    def _argv(self, run: Sequence[str]) -> tuple[str, ...]:
        domain = ("-d", self.domain) if self.domain else ()
        # Otherwise a device that connects to itself would use shared memory instead of the device.
        environment = ("/usr/bin/env", "FI_EFA_ENABLE_SHM_TRANSFER=0")
        return (*environment, self.program, "-p", self.provider, "-e", "rdm", *domain, *run)


def run_client(argv: Sequence[str], *, is_over: Callable[[], bool] = lambda: False) -> Exchange:
    """Run a client, retrying while its server does not listen yet, unless ``is_over``.

    Raises:
        NotStarted: the client cannot be started.
        BackendError: the client exceeded the timeout.

    """
    deadline = time.monotonic() + _STARTS_IN.total_seconds()
    while True:
        try:
            result = run_command(argv, timeout=TIMEOUT)
        except NotStarted:
            raise
        except BackendError as error:
            seconds = f"{TIMEOUT.total_seconds():g} s"
            raise BackendError(f"fi_pingpong did not end within {seconds}") from error
        if not is_refused(result.status) or is_over() or time.monotonic() > deadline:
            return read_pingpong(result.stdout, result.stderr, result.status)
        time.sleep(_PAUSE_S)


def free_port() -> int:
    """Return a TCP port on which nothing listens at present."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
