"""Follows what the ranks print."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from holdfast.adapters.local.layout import RunDir

_CHUNK_BYTES: Final = 1 << 16
"""Read at most so much of each log at a time, so that a talkative rank cannot hold up the rest."""


class Follow(StrEnum):
    """Whose output is shown."""

    FIRST = "first"
    """That of node rank 0."""

    ALL = "all"
    NONE = "none"


@dataclass(slots=True)
class _Tail:
    path: Path
    offset: int = 0
    rest: bytes = b""

    def lines(self) -> Iterator[str]:
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                data = file.read(_CHUNK_BYTES)
        except OSError:
            return
        self.offset += len(data)
        *whole, self.rest = (self.rest + data).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace").rstrip("\r")


class RankLogs:
    """Gives each new line of the followed ranks once, attempt by attempt."""

    def __init__(self, run: RunDir, nodes: int, follow: Follow) -> None:
        self._run = run
        self._ranks = {Follow.FIRST: 1, Follow.ALL: nodes, Follow.NONE: 0}[follow]
        self._attempt = 0
        self._tails: list[_Tail] = []

    def lines(self, attempt: int) -> Iterator[tuple[int, str]]:
        """New lines of ``attempt`` and what was left of the one before: ``(rank, line)``."""
        yield from self._drain()
        if attempt != self._attempt:
            self._attempt = attempt
            self._tails = [_Tail(self._run.log(attempt, rank)) for rank in range(self._ranks)]
            yield from self._drain()

    def _drain(self) -> Iterator[tuple[int, str]]:
        for rank, tail in enumerate(self._tails):
            for line in tail.lines():
                yield rank, line
