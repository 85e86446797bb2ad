"""A person at a terminal, who types and looks at what comes."""

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence

TIMEOUT_S = 180


class Person:
    def __init__(self, terminal: int, process: subprocess.Popen[bytes]) -> None:
        self._terminal = terminal
        self.process = process
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def sees(self, pattern: str) -> re.Match[str]:
        """Wait until something is on the screen; what is before it is forgotten."""
        deadline = time.monotonic() + TIMEOUT_S
        while (found := re.search(pattern, self.seen)) is None:
            assert time.monotonic() < deadline, self.seen
            if select.select([self._terminal], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self._terminal, 1 << 16).decode(errors="replace")
                except OSError:  # nobody has the terminal open any more
                    raise AssertionError(self.seen) from None
        self.seen = self.seen[found.end() :]
        return found

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def ends(self) -> int:
        """The exit code, once everything is read."""
        deadline = time.monotonic() + TIMEOUT_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.seen
            if select.select([self._terminal], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):
                    self.seen += os.read(self._terminal, 1 << 16).decode(errors="replace")
        return self.process.wait()


@contextlib.contextmanager
def at_terminal(argv: Sequence[str]) -> Iterator[Person]:
    """``holdfast`` on a terminal of 100 columns and 30 lines."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    process = subprocess.Popen(
        ["setsid", "--ctty", sys.executable, "-m", "holdfast", *argv],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    os.close(theirs)
    try:
        yield Person(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
