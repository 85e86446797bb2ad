"""Logs of ranks in parts, for pages that follow them."""

import codecs
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.apps.views.not_found import NotFound
from holdfast.model.errors import BackendError

BEGINNING: Final = "0"
"""Cursor before the first byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRequest:
    """Selects a part of the log of a rank."""

    rank: int
    attempt: int = 0
    """Number of the attempt; 0 for the current or last one."""

    after: str = ""
    """``LogPart.cursor`` of the part before; empty for the last lines."""

    limit: int
    """Maximum size of the part in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """Part of the log of a rank. Bytes that are not UTF-8 are replaced."""

    text: str
    cursor: str
    """Position after this part, for ``LogRequest.after``."""

    attempt: int
    is_cut: bool = False
    """Whether earlier output was left out."""

    has_more: bool = False
    """Whether the log already has further output."""


def chosen_attempt(job: str, request: LogRequest, ranks: int, latest: int) -> int:
    """Return the number of the requested attempt.

    Args:
        job: name of the job.
        request: what is requested.
        ranks: number of node ranks of the job.
        latest: number of its latest attempt; 0 before it started.

    Raises:
        NotFound: the job has no such rank or attempt.

    """
    if not 0 <= request.rank < ranks:
        raise NotFound(f"{job}: rank {request.rank} not found; ranks are 0 to {ranks - 1}")
    if not 0 <= request.attempt <= latest:
        raise NotFound(f"{job}: attempt {request.attempt} not found; the latest is {latest}")
    return request.attempt or latest


def read_file(path: Path, request: LogRequest, attempt: int) -> LogPart:
    """Return a part of a log file; a file that does not exist yet is empty.

    Raises:
        BackendError: it cannot be read.

    """
    try:
        # Ranks may replace their file: a FIFO must not block, and a link must not lead elsewhere.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return LogPart(text="", cursor=BEGINNING, attempt=attempt)
    except OSError as error:
        raise BackendError(f"{path}: {error.strerror}") from error
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise BackendError(f"{path}: not a regular file")
        return _part(file, found.st_size, request, attempt)
    except OSError as error:
        raise BackendError(f"{path}: {error.strerror}") from error
    finally:
        os.close(file)


def _part(file: int, size: int, request: LogRequest, attempt: int) -> LogPart:
    after, limit = request.after, request.limit
    offset = int(after) if after.isascii() and after.isdecimal() and len(after) < 19 else size + 1
    is_tail = offset > size  # also if the file was replaced by a shorter one
    if is_tail:
        offset = max(0, size - limit)
    content = os.pread(file, limit, offset)
    if is_tail and offset:
        skipped = content.find(b"\n") + 1  # the first line is incomplete
        content, offset = content[skipped:], offset + skipped
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(content)
    end = offset + len(content) - len(decoder.getstate()[0])  # a character may be half written
    return LogPart(
        text=text,
        cursor=str(end),
        attempt=attempt,
        is_cut=is_tail and offset > 0,
        has_more=bool(text) and offset + len(content) < size,
    )
