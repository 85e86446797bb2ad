"""Running ``fi_pingpong``: a server here or elsewhere, and a client that waits until it listens."""

import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from holdfast.adapters.host.commands import run_command
from holdfast.detectors.pingpong import Exchange, is_refused, read_pingpong
from holdfast.model.errors import BackendError

RUNS: Final = (("-I", "10", "-c"), ("-I", "100"))
"""First a few messages whose content is compared, which makes it slow; then those that count."""

TIMEOUT: Final = timedelta(seconds=30)
"""For one run, of which a good one takes a second: at 10 MB/s the 200 messages of 1 MiB take 21 s,
and what is slower than that is below any threshold."""

_STARTS_IN: Final = timedelta(seconds=5)
_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """What messages go through."""

    program: str
    """The file of ``fi_pingpong``."""

    provider: str
    domain: str = ""
    """Such as ``rdmap0s29-rdm``; the first that there is if empty."""

    def server(self, run: Sequence[str], port: int) -> tuple[str, ...]:
        """The command of the side that waits."""
        return (*self._argv(run), "-B", str(port))

    def client(self, run: Sequence[str], port: int, host: str) -> tuple[str, ...]:
        """The command of the side that begins and measures."""
        return (*self._argv(run), "-P", str(port), host)

    def _argv(self, run: Sequence[str]) -> tuple[str, ...]:
        domain = ("-d", self.domain) if self.domain else ()
        # Or a device that talks to itself would do so through memory, past the device.
        environment = ("/usr/bin/env", "FI_EFA_ENABLE_SHM_TRANSFER=0")
        return (*environment, self.program, "-p", self.provider, "-e", "rdm", *domain, *run)


def converse(argv: Sequence[str], *, is_over: Callable[[], bool] = lambda: False) -> Exchange:
    """Run a client, again while its server does not listen yet, if it is not over with it.

    Raises:
        BackendError: it did not end in time.

    """
    deadline = time.monotonic() + _STARTS_IN.total_seconds()
    while True:
        try:
            result = run_command(argv, timeout=TIMEOUT)
        except BackendError as error:
            seconds = f"{TIMEOUT.total_seconds():g} s"
            raise BackendError(f"fi_pingpong did not end within {seconds}") from error
        if not is_refused(result.status) or is_over() or time.monotonic() > deadline:
            return read_pingpong(result.stdout, result.stderr, result.status)
        time.sleep(_PAUSE_S)


def free_port() -> int:
    """A TCP port on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
