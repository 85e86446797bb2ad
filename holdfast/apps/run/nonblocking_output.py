"""Output that keeps nobody waiting."""

import io
from queue import Queue
from threading import Thread
from typing import Final, TextIO

_BEHIND: Final = 1_000
"""Texts that may wait before nothing more should be added that can be had later."""

_MOST: Final = 100_000
"""Texts that may wait at all."""


class NonblockingOutput(io.TextIOBase):
    """Writes to a stream from a thread of its own.

    A terminal that is stopped, a connection that stalls and a pager that shows one page would
    otherwise hold up every repair.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._error: Exception | None = None
        self._texts: Queue[str | None] = Queue(_MOST)
        self._writer = Thread(target=self._write_all, daemon=True)
        self._writer.start()

    @property
    def waiting(self) -> int:
        """Texts that are not yet written."""
        return self._texts.qsize()

    @property
    def is_behind(self) -> bool:
        """Whether so much waits that more should be added later."""
        return self.waiting > _BEHIND

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """That of the stream."""
        return self._out.encoding

    def isatty(self) -> bool:
        """Whether the stream is a terminal."""
        return self._out.isatty()

    def write(self, text: str) -> int:
        """Have a text written.

        Raises:
            OSError, ValueError: what was to be written before could not be.

        """
        if self._error is not None:
            raise self._error
        self._texts.put(text)
        return len(text)

    def finish(self) -> None:
        """Wait until all is written; nothing more may come. Raises as ``write``."""
        if self._writer.is_alive():
            self._texts.put(None)
            self._writer.join()
        if self._error is not None:
            raise self._error

    def _write_all(self) -> None:
        for text in iter(self._texts.get, None):
            if self._error is None:
                try:
                    self._out.write(text)
                    self._out.flush()
                except (OSError, ValueError) as error:
                    self._error = error
