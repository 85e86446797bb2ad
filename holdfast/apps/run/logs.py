"""Follows the output of the ranks."""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from holdfast.adapters.local.attempt_files import has_same_logs
from holdfast.adapters.local.layout import RunDir

_CHUNK_BYTES: Final = 1 << 16
"""Bytes to read of each log at a time, so that one with much output does not delay the others."""


class Follow(StrEnum):
    """Ranks whose output is shown."""

    FIRST = "first"
    """Output of node rank 0."""

    ALL = "all"
    NONE = "none"


@dataclass(slots=True)
class _Tail:
    files: Callable[[], RunDir]
    attempt: int
    rank: int
    offset: int = 0
    rest: bytes = b""
    is_read: bool = False

    def lines(self) -> Iterator[tuple[int, str]]:
        data = self._chunk()
        self.offset += len(data)
        self.is_read = len(data) < _CHUNK_BYTES
        *whole, self.rest = (self.rest + data).split(b"\n")
        for line in whole:
            yield self._shown(line)

    def ending(self) -> Iterator[tuple[int, str]]:
        """Yield the last line, if it has no newline."""
        if self.rest:
            yield self._shown(self.rest)

    def _chunk(self) -> bytes:
        for _ in range(2):  # the deletion of a cluster moves its logs once
            path = self.files().log(self.attempt, self.rank)
            with contextlib.suppress(OSError), path.open("rb") as file:
                file.seek(self.offset)
                return file.read(_CHUNK_BYTES)
        return b""

    def _shown(self, line: bytes) -> tuple[int, str]:
        return self.rank, line.decode("utf-8", "replace").rstrip("\r")


class RankLogs:
    """Returns each line of the followed ranks once, attempt by attempt.

    Args:
        files: returns the directory of the job; called before each read.
        nodes: how many ranks the job has.
        follow: which of them are followed.

    """

    def __init__(self, files: Callable[[], RunDir], nodes: int, follow: Follow) -> None:
        self._files = files
        self._ranks = {Follow.FIRST: 1, Follow.ALL: nodes, Follow.NONE: 0}[follow]
        self._attempt = 0
        self._tails: list[_Tail] = []
        self._ended: deque[_Tail] = deque()

    def lines(self, attempt: int) -> Iterator[tuple[int, str]]:
        """Yield new ``(rank, line)``: the rest of earlier attempts, then those of ``attempt``."""
        self._follow(attempt)
        yield from self._left()
        if not self._ended:
            for tail in self._tails:
                yield from tail.lines()

    def _follow(self, attempt: int) -> None:
        """Follow all attempts up to this one: it may begin and end between two calls."""
        if attempt < self._attempt:  # in a state that was restored from its backup
            self._attempt = attempt - 1
        while self._attempt < attempt:
            self._begin(self._attempt + 1)

    def _begin(self, attempt: int) -> None:
        """Follow an attempt, whose ranks may still write the logs of the one before."""
        before, self._attempt = self._attempt, attempt
        if before == 0 or not has_same_logs(self._files(), before, attempt):
            self._ended.extend(self._tails)
            self._tails = [_Tail(self._files, attempt, rank) for rank in range(self._ranks)]

    def rest(self, attempt: int) -> Iterator[tuple[int, str]]:
        """Yield all remaining lines of a job that has ended with ``attempt``."""
        self._follow(attempt)
        self._ended.extend(self._tails)
        self._tails = []
        while self._ended:
            yield from self._left()

    def _left(self) -> Iterator[tuple[int, str]]:
        """Yield the remaining lines of the next attempt that has ended."""
        while self._ended:
            yield from self._ended[0].lines()
            if not self._ended[0].is_read:
                return
            yield from self._ended.popleft().ending()
