"""Site-specific command, run once for each order, without a shell.

It submits the repair and exits, without waiting until the machine is back. Exit codes:

- 0: accepted;
- 68 (``EX_NOHOST``): the machine no longer exists;
- 75 (``EX_TEMPFAIL``): temporary failure, retried later;
- anything else: refused, with the reason on standard error.

If Holdfast ends while the command runs, it runs again with the same token, perhaps while the first
is still running. So it must accept a token that it has seen before, and a machine that is
already being replaced.
"""

import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from datetime import timedelta
from typing import IO, Final

from holdfast.adapters.providers.settings import PLACEHOLDER, CommandSettings, ProviderConfig
from holdfast.kit.units import one_line
from holdfast.model.errors import NodeGone, ProviderError, RetryLater
from holdfast.model.nodes import NodeView

EX_NOHOST: Final = 68  # sysexits.h
EX_TEMPFAIL: Final = 75  # sysexits.h

_PAUSE: Final = timedelta(seconds=30)
_TAIL: Final = 500  # bytes of its standard error


class Command:
    """Runs a command for each order."""

    def __init__(self, settings: CommandSettings) -> None:
        self._settings = settings

    def reboot(self, node: NodeView, token: str) -> None:
        """Run the command for reboots."""
        self._order(self._settings.reboot, "reboot", node, token)

    def replace(self, node: NodeView, token: str) -> None:
        """Run the command for replacements."""
        self._order(self._settings.replace, "replace", node, token)

    def _order(self, argv: tuple[str, ...], action: str, node: NodeView, token: str) -> None:
        values = {
            "action": action,
            "node": node.name,
            "provider_id": node.provider_id,
            "addresses": " ".join(node.addresses),
            "token": token,
            "reason": node.record.remediation.reason if node.record.remediation is not None else "",
        }
        with tempfile.TemporaryFile() as stderr:
            status = self._run([_filled(one, values) for one in argv], values, stderr)
            reported = _tail(stderr)
        what = f"{argv[0]} to {action} {node.name} ended with {status}"
        what += f": {reported}" if reported else ""
        match status:
            case 0:
                return
            case _ if status < 0:
                raise RetryLater(f"{what} (a signal)", after=_PAUSE, is_outcome_unknown=True)
            case _ if status == EX_NOHOST:
                raise NodeGone(what)
            case _ if status == EX_TEMPFAIL:
                raise RetryLater(what, after=_PAUSE)
        raise ProviderError(what)

    def _run(self, argv: list[str], values: dict[str, str], stderr: IO[bytes]) -> int:
        variables = {f"HOLDFAST_{name.upper()}": value for name, value in values.items()}
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env={**os.environ, **variables},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:  # ValueError: a NUL in a name
            raise ProviderError(f"cannot run {argv[0]}: {error}") from error
        with process:
            try:
                return process.wait(self._settings.timeout.total_seconds())
            except subprocess.TimeoutExpired as error:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                seconds = f"{self._settings.timeout.total_seconds():g} s"
                raise RetryLater(
                    f"{argv[0]} timed out after {seconds} and was killed; the command must order"
                    " the repair and not wait for it",
                    after=_PAUSE,
                    is_outcome_unknown=True,
                ) from error


def _filled(argument: str, values: dict[str, str]) -> str:
    return PLACEHOLDER.sub(lambda found: values[found[1]], argument)


def _tail(stderr: IO[bytes]) -> str:
    size = stderr.seek(0, os.SEEK_END)
    stderr.seek(max(0, size - _TAIL))
    return one_line(stderr.read().decode("utf-8", errors="replace"), _TAIL)


def build(config: ProviderConfig) -> Command:
    """Build the provider."""
    return Command(config.command)
