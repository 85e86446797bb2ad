"""One srun as the child of its supervisor: the same terminal, the same signals, the same end."""

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

ENDING: Final = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP))
"""Whoever sends one of these wants the step to end, and no other in its place."""

_PASSED_ON: Final = ENDING | {signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM}
_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ)
"""Ignored in Python, and not to be in what it starts."""

_SENT_BY_PROCESS: Final = 0
"""``SI_USER``. The kernel sends those of a terminal, to srun as well."""

_STDERR: Final = 2
_BY_SIGNAL: Final = 128
"""What a shell adds to the number of the signal that ended a program, and srun for its ranks."""

_RANK_ENDED: Final = re.compile(
    rb"srun: error: [^\s:]+: tasks? [0-9,-]+: (?:Exited with exit code (\d{1,3})|([A-Z][a-z ]+))"
)
_SIGNALS: Final = {signal.strsignal(one): int(one) for one in signal.valid_signals()}
_LONGEST: Final = 1000
"""Bytes of a line that is not at its end yet."""

_LAST_WORDS_S: Final = 1.0
"""For what srun said to be passed on after its end."""

_STEPD: Final = "slurmstepd"
"""Sends its signals to every process of the job's script, srun among them."""


class Signals:
    """Takes the signals of this process, for as long as it is entered, one by one."""

    def __init__(self) -> None:
        self._taken = {
            signum for signum in _PASSED_ON if signal.getsignal(signum) is not signal.SIG_IGN
        }
        self.before: set[signal.Signals | int] = set()
        """What was blocked when the process began."""

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
        """The next signal; None if none comes in time, or a child has changed its state."""
        seconds = max(0.0, timeout.total_seconds())
        info = signal.sigtimedwait(self._taken | {signal.SIGCHLD}, seconds)
        return None if info is None or info.si_signo == signal.SIGCHLD else info


class Srun:
    """A running srun, or one that has ended.

    Its standard error passes through us: of ranks that were ended because one had failed srun
    tells the signal, and only there is to be read how that one ended.
    """

    def __init__(self, argv: list[str], environment: Mapping[str, str], signals: Signals) -> None:
        """Start it.

        Raises:
            BackendError: it cannot be started.

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
        self._words = threading.Thread(target=self._pass_words_on, args=(source,), daemon=True)
        self._words.start()

    @property
    def status(self) -> int | None:
        """Its exit code, or the negative number of the signal that ended it; None while it runs."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._words.join(_LAST_WORDS_S)
                self._status = self._own_end(os.waitstatus_to_exitcode(status))
        return self._status

    def _own_end(self, status: int) -> int:
        """The end of the rank that failed first, where the others were ended for it."""
        return self._first if self._first and status > _BY_SIGNAL else status

    def _pass_words_on(self, source: int) -> None:
        begun = b""
        with os.fdopen(source, "rb", buffering=0) as words:
            while said := words.read(1 << 16):
                with suppress(OSError):  # whoever read it has gone; srun must not wait for that
                    _write(said)
                if self._first is None:
                    *lines, begun = (begun + said).split(b"\n")
                    begun = begun[-_LONGEST:]
                    self._first = next(filter(None, map(_end_in, lines)), None)

    def send(self, signum: int) -> None:
        """Send it a signal; one that has ended gets none."""
        if self.status is None:
            os.kill(self.pid, signum)

    def pass_on(self, info: signal.struct_siginfo) -> None:
        """Send it a signal that was sent to us, unless it has got it as well."""
        if info.si_code == _SENT_BY_PROCESS and _name(info.si_pid) != _STEPD:
            self.send(info.si_signo)


def _end_in(line: bytes) -> int:
    """How a rank ended by what srun says of it, as a shell counts; 0 if it says nothing of that."""
    found = _RANK_ENDED.match(line)
    if found is None:
        return 0
    if found[1] is not None:
        return int(found[1])
    signum = _SIGNALS.get(found[2].decode("ascii").strip(), 0)
    return _BY_SIGNAL + signum if signum else 0


def _write(said: bytes) -> None:
    while said:
        said = said[os.write(_STDERR, said) :]


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    return ""


def write_message(text: str) -> None:
    """Write a message into the output of the job."""
    write_line(f"holdfast: {text}")


def write_line(line: str) -> None:
    """Write a line to standard error."""
    with suppress(OSError):  # whoever read it has gone; the step goes on
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
