"""Runs srun as a child of the supervisor, with the same terminal, signals and exit code."""

import os
import re
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from holdfast.model.errors import BackendError

_ENDING: Final = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP))
"""Signals that ask to end the step, without a restart."""

_PASSED_ON: Final = _ENDING | {signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM}
_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores, and that its child must not ignore."""

_SENT_BY_PROCESS: Final = 0
"""``SI_USER``. The kernel sends the signals of a terminal, also to srun."""

_STDERR: Final = 2
_BY_SIGNAL: Final = 128
"""Added to the signal number in the exit code, by shells for a program and by srun for its
ranks."""

_RANK_ENDED: Final = re.compile(
    rb"srun: error: [^\s:]+: tasks? [0-9,-]+: (?:Exited with exit code (\d{1,3})|([A-Z][a-z ]+))"
)
_SIGNALS: Final = {signal.strsignal(one): int(one) for one in signal.valid_signals()}
_LONGEST: Final = 1000
"""Maximum bytes of an incomplete line that are kept."""

_LAST_OUTPUT_S: Final = 1.0
"""Seconds to forward the rest of srun's output after its end."""

_STEPD: Final = "slurmstepd"
"""Program that sends its signals to every process of the job's script, also to srun."""


class Signals:
    """Receives the signals of this process one by one, while it is entered."""

    def __init__(self) -> None:
        self._taken = {
            signum for signum in _PASSED_ON if signal.getsignal(signum) is not signal.SIG_IGN
        }
        self.before: set[signal.Signals | int] = set()
        """Signals that were blocked when the process began."""

    def __enter__(self) -> Self:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        taken = self._taken | {signal.SIGCHLD}
        self.before = {*signal.pthread_sigmask(signal.SIG_BLOCK, taken)}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self.before)

    def wait(self, timeout: timedelta) -> signal.struct_siginfo | None:
        """Return the next signal; None on timeout, or if a child has changed its state."""
        seconds = max(0.0, timeout.total_seconds())
        info = signal.sigtimedwait(self._taken | {signal.SIGCHLD}, seconds)
        return None if info is None or info.si_signo == signal.SIGCHLD else info


class Srun:
    """A running or ended srun.

    Its standard error passes through this process: if srun ends the other ranks because one failed,
    its exit code is that of their signal, and only its messages report how the failed rank ended.
    """

    def __init__(self, argv: list[str], environment: Mapping[str, str], signals: Signals) -> None:
        """Start srun.

        Raises:
            BackendError: srun cannot be started.

        """
        self._status: int | None = None
        self._first: int | None = None
        source, sink = os.pipe()
        try:
            self.pid = os.posix_spawnp(
                argv[0], argv, environment, setsigmask=signals.before, setsigdef=_BY_PYTHON,
                file_actions=[(os.POSIX_SPAWN_DUP2, sink, _STDERR)],
            )  # fmt: skip
        except OSError as error:
            os.close(source)
            raise BackendError(f"cannot run {argv[0]}: {error}") from error
        finally:
            os.close(sink)
        self._forwarder = threading.Thread(target=self._forward, args=(source,), daemon=True)
        self._forwarder.start()

    @property
    def status(self) -> int | None:
        """Return the exit code, or the negative signal number; None while srun runs."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._forwarder.join(_LAST_OUTPUT_S)
                self._status = self._own_end(os.waitstatus_to_exitcode(status))
        return self._status

    def _own_end(self, status: int) -> int:
        """Return the status of the rank that failed first, if srun ended the others for it."""
        return self._first if self._first and status > _BY_SIGNAL else status

    def _forward(self, source: int) -> None:
        begun = b""
        with os.fdopen(source, "rb", buffering=0) as words:
            while data := words.read(1 << 16):
                with suppress(OSError):  # the reader is gone; srun must not wait for it
                    _write(data)
                if self._first is None:
                    *lines, begun = (begun + data).split(b"\n")
                    begun = begun[-_LONGEST:]
                    self._first = next(filter(None, map(_end_in, lines)), None)

    def send(self, signum: int) -> None:
        """Send a signal to srun; no effect after its end."""
        if self.status is None:
            os.kill(self.pid, signum)

    def pass_on(self, info: signal.struct_siginfo) -> None:
        """Forward a signal that this process received, unless srun has received it as well."""
        if info.si_code == _SENT_BY_PROCESS and _name(info.si_pid) != _STEPD:
            self.send(info.si_signo)


def _end_in(line: bytes) -> int:
    """Return the exit code of a rank in a message of srun, as shells count; 0 if there is none."""
    found = _RANK_ENDED.match(line)
    if found is None:
        return 0
    if found[1] is not None:
        return int(found[1])
    signum = _SIGNALS.get(found[2].decode("ascii").strip(), 0)
    return _BY_SIGNAL + signum if signum else 0


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(_STDERR, data) :]


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    return ""


class ForegroundSrun:
    """See ``Foreground``: a context manager that forwards signals to the srun that it launched."""

    def __init__(self) -> None:
        self.is_ending = False
        self._signals = Signals()
        self._srun: Srun | None = None

    def __enter__(self) -> Self:
        self._signals.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._signals.__exit__(kind, error, trace)

    def launch(self, argv: list[str], environment: Mapping[str, str]) -> Srun:
        """See ``Foreground.launch``."""
        self._srun = Srun(argv, environment, self._signals)
        return self._srun

    def wait(self, timeout: timedelta) -> None:
        """See ``Foreground.wait``; a signal is forwarded to srun."""
        info = self._signals.wait(timeout)
        if info is not None and self._srun is not None:
            self.is_ending |= info.si_signo in _ENDING
            self._srun.pass_on(info)

    def write(self, line: str) -> None:
        """See ``Foreground.write``."""
        with suppress(OSError):  # the reader is gone; the step continues
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
