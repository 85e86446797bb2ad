"""Files of ranks, and the part of their output that is copied to this process's output."""

import fcntl
import os
import select
import shutil
import socket
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from holdfast.apps.launch.failure_text import TAIL_BYTES
from holdfast.apps.launch.stderr_relay import StderrRelay
from holdfast.kit.bounded_files import end_text
from holdfast.model.errors import ConfigError

_CHUNK: Final = 65536
_LONGEST_LINE: Final = 65536
"""Bytes after which a line without an end is copied in parts."""

_LAST_COPY_S: Final = 0.5
"""Time for a full pipe or a slow terminal to accept more, at the end of a round."""

ERROR_FILE: Final = "error.json"
"""In the directory of a rank: the file for PyTorch's ``@record``."""

_DUMPS: Final = "flight_recorder"
_SECTIONS: Final = "sections"
_EVIDENCE: Final = "evidence.json"
_STREAMS: Final = (("stdout", 1), ("stderr", 2))
_LOCK: Final = ".lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Where the output of ranks goes."""

    directory: str
    """Directory of log and error files; empty for a temporary directory without logs."""

    to_file: int
    """Streams of ranks that go to a file only: 1 stdout, 2 stderr, 3 both."""

    to_both: int
    """Streams of ranks that go to a file and to this process's output."""

    shown: frozenset[int]
    """Local ranks whose output is shown; empty for all."""


@dataclass(frozen=True, slots=True)
class RankStreams:
    """Standard output and standard error of a rank; None: those of the launcher."""

    stdout: IO[bytes] | None
    stderr: IO[bytes] | None

    def close(self) -> None:
        """Close the files; the rank has its own descriptors."""
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()


class RankOutput:
    """Log and error files of the ranks of a node: ``DIR/RUN_ID/attempt_N/LOCAL_RANK/stdout.log``.

    The layout is that of torchrun, without its random suffix. Ranks write their files themselves:
    neither a slow terminal nor the end of the launcher blocks them. Where a file cannot be created,
    as on a full disk, a warning is printed, and ranks write to the output of this process. A job
    that finds another one in its directory, which would take the steps and losses of that one for
    its own, writes below it.

    Args:
        options: where the output goes.
        run_id: name of the job.
        role: prefix of lines that are copied.
        relay: passes standard error on.
        launcher: name of the launcher, below ``RUN_ID``, if others may write to the same ``DIR``;
            empty if none does.

    Raises:
        ConfigError: the directory cannot be created.
        OSError: no temporary directory can be created.

    """

    def __init__(
        self, options: LogOptions, run_id: str, role: str, relay: StderrRelay, launcher: str = ""
    ) -> None:
        self._options = options
        self._role = role
        self._is_temporary = not options.directory
        self._base = Path(options.directory or tempfile.mkdtemp(prefix="holdfast-launch-"))
        self._root = self._base / run_id.replace("/", "_") / launcher
        self._followed: list[_FollowedFile] = []
        self._relay = relay
        self._warned: set[str] = set()
        try:
            self._root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"--log-dir: cannot create {error.filename}: {error.strerror}; select a directory "
                "that can be written"
            ) from None
        self._lock = -1 if launcher or self._is_temporary else _locked(self._root / _LOCK)
        if self._lock is None:
            root, self._root = self._root, self._root / f"{socket.gethostname()}-{os.getpid()}"
            sys.stderr.write(
                f"holdfast: another job writes to {root}; logs are in {self._root}; give each job "
                "its own --rdzv-id or --log-dir\n"
            )

    def folder(self, attempt: int, local_rank: int) -> Path:
        """Return the directory of a rank's files; created if it is missing."""
        return self._made(self._attempt(attempt) / str(local_rank))

    def dumps(self, attempt: int) -> Path:
        """Return the directory of the ranks' flight recorder dumps; created if it is missing."""
        return self._made(self.dumps_folder(attempt))

    def dumps_folder(self, attempt: int) -> Path:
        """Return the directory of the flight recorder dumps, without creating it."""
        return self._attempt(attempt) / _DUMPS

    def sections(self, attempt: int) -> Path:
        """Return the directory of the section times; created if it is missing."""
        return self._made(self._attempt(attempt) / _SECTIONS)

    def evidence(self, attempt: int) -> Path:
        """Return the file for the evidence of a hang."""
        return self._attempt(attempt) / _EVIDENCE

    def logs(self, attempt: int, local_rank: int) -> tuple[Path, ...]:
        """Return the files to which the output of a rank goes; none where it has no files."""
        to_files = self._options.to_file | self._options.to_both
        folder = self.folder(attempt, local_rank)
        return tuple(folder / f"{name}.log" for name, bit in _STREAMS if to_files & bit)

    def open_streams(self, attempt: int, local_rank: int) -> RankStreams:
        """Return where a rank writes. Files that are also shown are followed from now on."""
        opened: list[IO[bytes] | None] = []
        is_shown = not self._options.shown or local_rank in self._options.shown
        for name, bit in _STREAMS:
            is_copied = bool(self._options.to_both & bit)
            file: IO[bytes] | None = None
            if is_copied or self._options.to_file & bit or not is_shown:
                path = self.folder(attempt, local_rank) / f"{name}.log"
                file = self._opened(path, local_rank, name if is_copied and is_shown else "")
            if file is None and name == "stderr":
                file = self._relay.open(local_rank)
            opened.append(file)
        return RankStreams(*opened)

    def _opened(self, path: Path, local_rank: int, shown: str) -> IO[bytes] | None:
        """Return the file of a stream, which is followed if it is shown; None if it has none."""
        try:
            file = path.open("ab")
            if shown:
                target = sys.stdout if shown == "stdout" else sys.stderr
                prefix = f"[{self._role}{local_rank}]:".encode()
                self._followed.append(_FollowedFile(path, target.fileno(), prefix))
        except OSError as error:
            self._warn(error)
            return None
        return file

    def end_of_stderr(self, attempt: int, local_rank: int) -> str:
        """Return the end of the standard error of a rank."""
        relayed = self._relay.end_of(local_rank)
        if relayed is not None:
            return relayed.decode("utf-8", errors="replace")
        return end_text(self.folder(attempt, local_rank) / "stderr.log", TAIL_BYTES)

    def is_following(self) -> bool:
        """Return whether ``copy`` must be called from time to time."""
        return bool(self._followed)

    def copy(self, *, is_over: bool = False) -> None:
        """Copy new lines to this process's output.

        Args:
            is_over: whether the ranks have ended: the last line may then lack its end.

        """
        full: set[int] = set()  # waited for once for all ranks: the lease is short
        for file in self._followed:
            limit_s = _LAST_COPY_S if is_over and file.target not in full else 0.0
            if not file.copy(limit_s, is_over=is_over):
                full.add(file.target)
        if is_over:
            for file in self._followed:
                file.close()
            self._followed.clear()
            self._relay.end_round()

    def close(self, *, keeps_evidence: bool) -> None:
        """Remove the directory if no one asked for it.

        Args:
            keeps_evidence: whether flight recorder dumps and the evidence of hangs are kept, and
                named.

        """
        if self._lock is not None and self._lock >= 0:
            os.close(self._lock)
        if not self._is_temporary:
            return
        kept: list[Path] = []
        if keeps_evidence:
            kept += self._root.glob(f"attempt_*/{_DUMPS}/*[0-9]")
            kept += self._root.glob(f"attempt_*/{_EVIDENCE}")
        if not kept:
            shutil.rmtree(self._base, ignore_errors=True)
            return
        for folder in self._root.glob("attempt_*/[0-9]*"):
            shutil.rmtree(folder, ignore_errors=True)
        sys.stderr.write(
            f"holdfast: evidence and flight recorder dumps of the ranks are in {self._root}\n"
        )

    def _made(self, folder: Path) -> Path:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:  # a rank without its files is better than none
            self._warn(error)
        return folder

    def _warn(self, error: OSError) -> None:
        text = f"{error.filename}: {error.strerror}"
        if text not in self._warned:
            self._warned.add(text)
            sys.stderr.write(f"holdfast: cannot create {text}; the ranks run without it\n")

    def _attempt(self, number: int) -> Path:
        return self._root / f"attempt_{number}"


def _locked(path: Path) -> int | None:
    """Lock a file until the descriptor is closed; None if another process has locked it.

    -1 if the file system has no locks, or the file is not writable: nothing is known then.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        return -1
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        return None if isinstance(error, BlockingIOError) else -1
    return handle


class _FollowedFile:
    def __init__(self, path: Path, target: int, prefix: bytes) -> None:
        self._file = path.open("rb", buffering=0)
        self._file.seek(0, os.SEEK_END)
        self.target = target
        self._prefix = prefix
        self._partial = b""
        self._unwritten = b""

    def copy(self, limit_s: float, *, is_over: bool) -> bool:
        """Copy new lines; return whether the target has accepted all that was given to it."""
        while (is_accepted := self._write(limit_s)) and (data := self._file.read(_CHUNK)):
            *lines, self._partial = (self._partial + data).split(b"\n")
            if len(self._partial) > _LONGEST_LINE:
                lines.append(self._partial)
                self._partial = b""
            self._unwritten = b"".join(self._prefix + line + b"\n" for line in lines)
        if is_over and self._partial:
            self._unwritten += self._prefix + self._partial + b"\n"
            self._partial = b""
            is_accepted = self._write(limit_s if is_accepted else 0.0)
        return is_accepted

    def close(self) -> None:
        self._file.close()

    def _write(self, limit_s: float) -> bool:
        """Write what is unwritten while the target accepts it; return whether all was written."""
        while self._unwritten:
            if not select.select([], [self.target], [], limit_s)[1]:
                return False
            part = self._unwritten[: select.PIPE_BUF]  # such a write does not block
            try:
                self._unwritten = self._unwritten[os.write(self.target, part) :]
            except OSError:  # nobody reads it any more; the file has it
                self._unwritten = b""
        return True
