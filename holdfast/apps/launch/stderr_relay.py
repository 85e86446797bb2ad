"""Relays the standard error of ranks to that of this process, and keeps its end.

Without a log directory, ranks would inherit the descriptor, and the exception that ended one would
be unknown. The messages of this process are written in the same way: otherwise it would block
while nobody reads them, and neither notice failed ranks nor renew leases.
"""

import contextlib
import io
import os
import select
import sys
import threading
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import IO, Final, Self

_STDERR: Final = 2
_CHUNK: Final = 65536
_KEPT: Final = 65536
"""Bytes that are kept of the standard error of each rank."""

_UNWRITTEN: Final = 16 * _CHUNK
"""Bytes of all ranks that wait for a slow reader; then ranks wait, as with an inherited one."""

_MESSAGES: Final = 16 * _CHUNK
"""Bytes beyond ``_UNWRITTEN`` for messages of this process, which does not wait: thousands of
messages. More are lost."""

_FLUSH_S: Final = 0.2
"""Time for a reader to accept what a rank wrote, before the launcher reports its end. There is none
for a reader that was too slow, until it has accepted all."""

_ACCEPT_S: Final = 5.0
"""Timeout for a reader to accept more, at the end of the process."""

_JOIN_S: Final = 1.0
"""Time for the thread to end; only a terminal that blocks a write keeps it."""

_PIECE: Final = select.PIPE_BUF
"""Bytes that a pipe which polls as writable accepts without blocking."""


@dataclass(slots=True)
class _Source:
    """Standard error of one rank. The lock of the relay is held while it is used."""

    reader: int
    end: bytearray = field(default_factory=bytearray)
    is_over: bool = False


class StderrRelay:
    """Standard error of the ranks of a round, and of this process while it is entered.

    A thread reads and writes, so that a slow reader does not block the launcher, and ranks only
    when much is unwritten. Where standard error is a terminal, ranks get one, too: progress bars
    look as they would without this relay.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_shown = threading.Condition(self._lock)
        self._sources: dict[int, _Source] = {}
        """By local rank."""

        self._unwritten = bytearray()
        self._is_slow = False
        """Whether the reader did not accept all in time, and has not done so since."""

        self._wake, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._redirected = contextlib.redirect_stderr(_Messages(self))

    def __enter__(self) -> Self:
        """Relay what this process writes to ``sys.stderr``."""
        self._redirected.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Wait while a slow reader accepts what is unwritten: this process ends next.

        The thread ends before: Python 3.11 aborts a process whose thread it must end itself where
        ``libgcc_s.so.1`` is missing, as in small images.
        """
        self._redirected.__exit__(kind, error, traceback)
        self._notify()
        with self._lock:
            is_accepted = True
            while (left := len(self._unwritten)) and is_accepted:
                is_accepted = self._is_shown.wait_for(
                    partial(self._has_fewer_than, left), _ACCEPT_S
                )
            self._is_closed = True
        self._notify()
        if self._thread is not None:
            self._thread.join(_JOIN_S)

    def write(self, message: bytes) -> None:
        """Show a message of this process, after what the ranks have written. Does not block."""
        with self._lock:
            for source in self._sources.values():
                self._read(source)
            if len(self._unwritten) + len(message) <= _UNWRITTEN + _MESSAGES:
                self._unwritten += message
        self._run()

    def open(self, local_rank: int) -> IO[bytes]:
        """Return the file to which a rank writes; the caller closes it."""
        reader, writer = _terminal() if os.isatty(_STDERR) else os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reader, False)
        with self._lock:
            self._sources[local_rank] = _Source(reader)
        self._run()
        return os.fdopen(writer, "wb", buffering=0)

    def end_of(self, local_rank: int) -> bytes | None:
        """Return the end of what a rank has written; None if it writes elsewhere.

        What it has written is shown by now, unless the reader of this process is slow.
        """
        with self._lock:
            source = self._sources.get(local_rank)
            if source is None:
                return None
            self._read(source)
            self._flush()
            return bytes(source.end)

    def end_round(self) -> None:
        """Read the remaining output and close the descriptors; all ranks must have ended."""
        with self._lock:
            for source in self._sources.values():
                self._read(source, limit=sys.maxsize)
            self._flush()
            for source in self._sources.values():
                os.close(source.reader)
            self._sources.clear()

    def _has_fewer_than(self, count: int) -> bool:
        return len(self._unwritten) < count

    def _flush(self) -> None:
        self._notify()
        if not self._is_slow:  # once for all ranks that fail together: the lease is short
            self._is_slow = not self._is_shown.wait_for(lambda: not self._unwritten, _FLUSH_S)

    def _read(self, source: _Source, limit: int = _UNWRITTEN) -> None:
        """Read the available output, while less than ``limit`` bytes are unwritten."""
        while not source.is_over and len(self._unwritten) < limit:
            try:
                data = os.read(source.reader, _CHUNK)
            except BlockingIOError:
                return
            except OSError:  # a terminal that nobody has open any more
                data = b""
            if not data:
                source.is_over = True
                return
            self._unwritten += data
            source.end += data
            del source.end[:-_KEPT]

    def _relay(self) -> None:
        while not self._is_closed:
            ready = {file for file, _ in self._poll().poll()}
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, _CHUNK)
            if _STDERR in ready:
                self._write()
            with self._lock:
                for source in self._sources.values():
                    self._read(source)

    def _poll(self) -> select.poll:
        """Return what to wait for: output, while there is room for it, and a reader of it."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        with self._lock:
            if self._unwritten:
                poll.register(_STDERR, select.POLLOUT)
            if len(self._unwritten) < _UNWRITTEN:
                for source in self._sources.values():
                    if not source.is_over:
                        poll.register(source.reader, select.POLLIN)
        return poll

    def _write(self) -> None:
        """Write a piece: without the lock, as a terminal may block in spite of its poll."""
        with self._lock:
            piece = bytes(self._unwritten[:_PIECE])
        try:
            count = os.write(_STDERR, piece)
        except BlockingIOError:  # another process has filled it, and made it non-blocking
            return
        except OSError:  # nobody reads it any more
            count = len(piece)
        with self._lock:
            del self._unwritten[:count]
            self._is_slow = self._is_slow and bool(self._unwritten)
            self._is_shown.notify_all()

    def _run(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._relay, name="stderr", daemon=True)
            self._thread.start()
        self._notify()

    def _notify(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"\0")


class _Messages(io.TextIOBase):
    """Text stream of the messages of this process."""

    def __init__(self, relay: StderrRelay) -> None:
        self._relay = relay

    def write(self, text: str) -> int:
        self._relay.write(text.encode("utf-8", "backslashreplace"))
        return len(text)

    def fileno(self) -> int:
        return _STDERR


def _terminal() -> tuple[int, int]:
    """Return a terminal in raw mode, with the size of the present one."""
    import fcntl  # noqa: PLC0415 - in a terminal only
    import struct  # noqa: PLC0415 - in a terminal only
    import termios  # noqa: PLC0415 - in a terminal only
    import tty  # noqa: PLC0415 - in a terminal only

    reader, writer = os.openpty()
    tty.setraw(writer)
    with contextlib.suppress(OSError):
        size = os.get_terminal_size(_STDERR)
        rows = struct.pack("HHHH", size.lines, size.columns, 0, 0)
        fcntl.ioctl(writer, termios.TIOCSWINSZ, rows)
    return reader, writer
