"""Saves and loads checkpoints, and detects damage by a crash, a full disk or a flipped bit.

A file is an archive in the form of ``torch.save``, so that ``holdfast checkpoint`` verifies it: an
uncompressed zip file with a checksum for each record. ``checkpoint/state`` holds the SHA-256 of
everything after it, a line of JSON and the state::

    <64 hex digits>                      the SHA-256, and a line feed
    {"run": "...", "step": 300}          and a line feed
    <bytes of the trainer>
"""

import errno
import hashlib
import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from holdfast.model.errors import BackendError, ConfigError, StorageFull

KEEP = 3
"""Number of checkpoints to keep. One is enough; the others are for the case that it is damaged."""

_DAMAGED = ".damaged"
_STATE = "checkpoint/state"
_SIZE_BEFORE_NAME = 8
"""Offset of a record's size before its name in the header of a zip file, in bytes."""


@dataclass(frozen=True, slots=True)
class DemoCheckpoint:
    """The state of a run after ``step`` steps."""

    step: int
    state: bytes


class DemoCheckpoints:
    """The checkpoints of one run; only one process at a time may write them.

    Args:
        path: directory; created, with its parents, if it is missing.
        run: what must be equal for a checkpoint to be resumed: the options that shape the run.

    Raises:
        ConfigError: the directory cannot be created or written.

    """

    def __init__(self, path: Path, run: str) -> None:
        self._path = path
        self._run = run
        try:
            path.mkdir(parents=True, exist_ok=True)
            for left_over in path.glob(".*.tmp"):
                left_over.unlink()
            TemporaryFile(dir=path).close()  # fail now rather than after the first hour
        except OSError as error:
            raise ConfigError(
                f"checkpoint directory {path}: {error.strerror}; choose another directory"
            ) from error

    def newest(self, warn: Callable[[str], None]) -> DemoCheckpoint | None:
        """Return the newest valid checkpoint; None if there is none.

        A damaged one is renamed, and ``warn`` is called with a message.

        Raises:
            ConfigError: the newest valid checkpoint belongs to another run.
            BackendError: a damaged one cannot be renamed.

        """
        for path in self._paths():
            try:
                run, checkpoint = _decode(path.read_bytes())
            except (OSError, ValueError) as error:
                aside = path.with_suffix(_DAMAGED)
                warn(f"checkpoint {path.name} is damaged ({error}): set aside as {aside.name}")
                _set_aside(path, aside)
                continue
            if run != self._run:
                raise ConfigError(
                    f"checkpoint {path} belongs to another run ({run}; this run: {self._run}); "
                    "choose another directory or the same options"
                )
            return checkpoint
        return None

    def save(self, checkpoint: DemoCheckpoint) -> None:
        """Store a checkpoint durably, then remove all but the newest ``KEEP``.

        Raises:
            StorageFull: there is no space left. Earlier checkpoints are unchanged.
            BackendError: it cannot be written for another reason.

        """
        path = self._path / f"step-{checkpoint.step:09d}.ckpt"
        write_durably(path, _encode(self._run, checkpoint))
        for old in self._paths()[KEEP:]:
            with suppress(OSError):  # the next save tries again
                old.unlink()

    def _paths(self) -> list[Path]:
        """Return the paths of the checkpoints, newest first."""
        return sorted(self._path.glob("step-*.ckpt"), reverse=True)


def write_durably(path: Path, data: bytes) -> None:
    """Replace a file atomically and durably: after a crash it has the old or the new content.

    Raises:
        StorageFull: there is no space left.
        BackendError: it cannot be written for another reason.

    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise storage_error(path, error) from error


def storage_error(path: Path, error: OSError) -> BackendError:
    """Return the error to raise, with a message for people, if ``path`` could not be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(
            f"{path} could not be written: {error.strerror}; "
            "free some space and start again: the job resumes from its last checkpoint"
        )
    return BackendError(f"{path} could not be written: {error.strerror}")


def _set_aside(path: Path, aside: Path) -> None:
    try:
        path.replace(aside)
    except OSError as error:
        raise storage_error(aside, error) from error


def _encode(run: str, checkpoint: DemoCheckpoint) -> bytes:
    body = json.dumps({"run": run, "step": checkpoint.step}).encode() + b"\n" + checkpoint.state
    records = {
        "checkpoint/data.pkl": pickle.dumps({"step": checkpoint.step}, protocol=2),
        _STATE: _digest(body) + b"\n" + body,
        "checkpoint/version": b"3\n",
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in records.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return buffer.getvalue()


def _decode(data: bytes) -> tuple[str, DemoCheckpoint]:
    start = data.find(_STATE.encode()) + len(_STATE)
    size = int.from_bytes(data[max(0, start - len(_STATE) - _SIZE_BEFORE_NAME) :][:4], "little")
    digest, _, body = data[start : start + size].partition(b"\n")
    if _digest(body) != digest:
        raise ValueError("its SHA-256 does not match")
    header, _, state = body.partition(b"\n")
    fields = json.loads(header)
    run, checkpoint = fields["run"], DemoCheckpoint(fields["step"], state)
    if _encode(run, checkpoint) != data:  # the state is right, and the archive is not
        raise ValueError("its archive is corrupt")
    return run, checkpoint


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()
