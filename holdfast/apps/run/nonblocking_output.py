"""Non-blocking output through a queue and a thread."""

import errno
import io
from queue import Queue
from threading import Thread
from typing import Final, TextIO

from holdfast.model.errors import StorageFull

_BEHIND: Final = 1_000
"""Queue length from which output that can be read again later should wait."""

_MOST: Final = 100_000
"""Maximum queue length."""


class NonblockingOutput(io.TextIOBase):
    """Writes to a stream from its own thread.

    A stopped terminal, a stalled connection or a pager that shows one page would otherwise block
    all repairs.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._error: Exception | None = None
        self._full: OSError | None = None
        self._texts: Queue[str | None] = Queue(_MOST)
        self._writer = Thread(target=self._write_all, daemon=True)
        self._writer.start()

    @property
    def waiting(self) -> int:
        """Return the number of texts that are not yet written."""
        return self._texts.qsize()

    @property
    def is_behind(self) -> bool:
        """Whether the queue is so long that more output should be added later."""
        return self.waiting > _BEHIND

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Return the encoding of the stream."""
        return self._out.encoding

    def isatty(self) -> bool:
        """Whether the stream is a terminal."""
        return self._out.isatty()

    def write(self, text: str) -> int:
        """Queue a text.

        Raises:
            OSError, ValueError: an earlier text could not be written, and not for lack of space.

        """
        if self._error is not None:
            raise self._error
        self._texts.put(text)
        return len(text)

    def finish(self) -> None:
        """Wait until all is written; no further writes are allowed.

        Raises:
            OSError, ValueError: something could not be written.
            StorageFull: there was no space for the last lines.

        """
        if self._writer.is_alive():
            self._texts.put(None)
            self._writer.join()
        if self._error is not None:
            raise self._error
        if self._full is not None:
            raise StorageFull(
                "no space left on device for the output: its last lines are missing; free some "
                "space, and see: holdfast jobs list --all"
            ) from self._full

    def _write_all(self) -> None:
        for text in iter(self._texts.get, None):
            if self._error is None:
                try:
                    self._out.write(text)
                    self._out.flush()
                    self._full = None
                except (OSError, ValueError) as error:
                    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                        self._full = error  # until there is space: no reason to end a job
                    else:
                        self._error = error
