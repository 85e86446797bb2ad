"""Keeps verified copies of checkpoints in a second location, and restores them from there.

Layout of the location: ``<copy>/files/<path>`` (``<copy>/file`` if the checkpoint is one file) and
``<copy>/manifest.json``, which is written last. ``<copy>`` is the quoted name of the checkpoint,
``@`` and the time of its save.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import quote

from holdfast.decisions.checkpoint_copies import RetentionPolicy, expired_copies, missing_copies
from holdfast.engine.checkpoint_guard import verified
from holdfast.kit.serial import parse_value, to_plain
from holdfast.model.checkpoint_copies import CheckpointCopy, CopiedFile
from holdfast.model.checkpoints import Checkpoint, CheckpointState, Depth, Survey
from holdfast.model.errors import BackendError
from holdfast.ports.checkpoint_copies import CopyStore
from holdfast.ports.checkpoint_files import CheckpointFiles, SourceFile
from holdfast.ports.checkpoints import CheckpointStore
from holdfast.ports.clock import Clock

MANIFEST_LIMIT: Final = 64 << 20
"""Maximum bytes of a manifest: 300,000 files."""

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MANIFEST: Final = "manifest.json"


class CopyDamaged(BackendError):
    """The content of a copy does not match its manifest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorRound:
    """What one round has done."""

    copied: tuple[CheckpointCopy, ...] = ()
    deleted: tuple[CheckpointCopy, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    """Name of each checkpoint that was not copied, and why."""


class CheckpointMirror:
    """Copies of the checkpoints of one directory."""

    def __init__(
        self,
        checkpoints: CheckpointStore,
        files: CheckpointFiles,
        store: CopyStore,
        clock: Clock,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Connect a directory with a location.

        Args:
            checkpoints: verifies the checkpoints of the directory.
            files: reads and creates their files.
            store: the second location; only one process may change it at a time.
            clock: time of the copies.
            on_bytes: called with the number of bytes of each chunk before it is passed on; it may
                wait, to limit the bandwidth.

        """
        self._checkpoints = checkpoints
        self._files = files
        self._store = store
        self._clock = clock
        self._on_bytes = on_bytes

    def copies(self) -> tuple[CheckpointCopy, ...]:
        """Return the complete copies, oldest first.

        Raises:
            BackendError: the location cannot be read.

        """
        return _read_copies(self._store, dict(self._store.list_keys()))

    def plan(self, policy: RetentionPolicy) -> tuple[Checkpoint, ...]:
        """Return the checkpoints that ``run_once`` would verify and copy, newest first.

        Raises:
            BackendError: the directory or the location cannot be read.

        """
        survey = self._dated(self._checkpoints.survey())
        return missing_copies(survey.checkpoints, self.copies(), policy, self._clock.now())

    def run_once(self, policy: RetentionPolicy, depth: Depth = Depth.HASHES) -> MirrorRound:
        """Copy the newest complete checkpoints, then delete the copies beyond the policy.

        Raises:
            BackendError: the directory cannot be read, or the location cannot be read or written.

        """
        self._delete_partial()
        survey = self._dated(self._checkpoints.survey())
        have = self.copies()
        copied: list[CheckpointCopy] = []
        skipped: list[tuple[str, str]] = []
        for one in missing_copies(survey.checkpoints, have, policy, self._clock.now()):
            try:
                copied.append(self._copy(survey, one, depth))
            except _Skipped as why:
                skipped.append((one.name, str(why)))
        deleted = expired_copies((*have, *copied), policy, self._clock.now())
        for copy in deleted:
            self._delete(copy)
        return MirrorRound(copied=tuple(copied), deleted=deleted, skipped=tuple(skipped))

    def restore(self, name: str | None = None) -> tuple[CheckpointCopy, tuple[str, ...]]:
        """Create the newest copy, or that of ``name``, in the directory.

        A copy that is damaged is passed over.

        Returns:
            The copy, and a line for each damaged one.

        Raises:
            BackendError: there is no undamaged copy, the checkpoint exists in the directory, or
                something cannot be read or written.

        """
        damaged: list[str] = []
        for copy in reversed(self.copies()):
            if name not in (None, copy.name):
                continue
            try:
                self._files.place(copy.name, self._contents(copy), copy.saved_at)
            except CopyDamaged as error:
                damaged.append(str(error))
            else:
                return copy, tuple(damaged)
        suffix = "" if name is None else f" of {name}"
        found = "; ".join(damaged) or "none is complete"
        raise BackendError(f"{self._store.url}: no usable copy{suffix}: {found}")

    def _copy(self, survey: Survey, one: Checkpoint, depth: Depth) -> CheckpointCopy:
        if one.name == ".":
            raise _Skipped("the directory itself is the checkpoint; mirror the directory above it")
        try:
            before = self._files.files(one.name)
        except BackendError as error:
            raise _Skipped(str(error)) from error
        found = verified(self._checkpoints, survey, one, depth).named(one.name)
        if found is None or found.state is not CheckpointState.COMPLETE:
            state = "missing" if found is None else found.state.value
            raise _Skipped("; ".join((state, *(found.problems[:1] if found is not None else ()))))
        folder = _folder(one)
        files = tuple(self._send(folder, one.name, file) for file in before)
        if self._now(one.name) != before:
            raise _Skipped("it changed while it was copied")
        copy = CheckpointCopy(
            name=one.name,
            step=one.step,
            format=survey.format,
            saved_at=one.changed_at,
            copied_at=self._clock.now(),
            files=files,
        )
        text = json.dumps(to_plain(copy)).encode()
        self._store.write(f"{folder}/{_MANIFEST}", [text])
        return copy

    def _dated(self, survey: Survey) -> Survey:
        """Return the survey with the time of the newest file of each checkpoint.

        A framework that overwrites files does not change the time of their directory.
        """
        return replace(survey, checkpoints=tuple(map(self._dated_one, survey.checkpoints)))

    def _dated_one(self, one: Checkpoint) -> Checkpoint:
        newest = max((file.changed_ns for file in self._now(one.name) or ()), default=None)
        if newest is None:
            return one
        return replace(one, changed_at=_EPOCH + timedelta(microseconds=newest // 1000))

    def _now(self, name: str) -> tuple[SourceFile, ...] | None:
        with suppress(BackendError):
            return self._files.files(name)
        return None

    def _send(self, folder: str, name: str, file: SourceFile) -> CopiedFile:
        digest, size = hashlib.sha256(), 0

        def chunks() -> Iterator[bytes]:
            nonlocal size
            for chunk in self._counted(self._read(name, file)):
                digest.update(chunk)
                size += len(chunk)
                yield chunk

        self._store.write(_key(folder, file.path), chunks())
        return CopiedFile(path=file.path, size=size, sha256=digest.hexdigest())

    def _read(self, name: str, file: SourceFile) -> Iterator[bytes]:
        try:
            yield from self._files.read(name, file.path)
        except BackendError as error:  # deleted by the job meanwhile
            raise _Skipped(str(error)) from error

    def _contents(self, copy: CheckpointCopy) -> Iterator[tuple[str, Iterable[bytes]]]:
        for file in copy.files:
            yield file.path, self._checked(copy, file)

    def _checked(self, copy: CheckpointCopy, file: CopiedFile) -> Iterator[bytes]:
        digest = hashlib.sha256()
        for chunk in self._counted(self._store.read(_key(_folder_of(copy), file.path))):
            digest.update(chunk)
            yield chunk
        if digest.hexdigest() != file.sha256:
            where = f"{self._store.url}/{_key(_folder_of(copy), file.path)}"
            raise CopyDamaged(f"{where}: SHA-256 does not match the manifest")

    def _counted(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self._on_bytes(len(chunk))
            yield chunk

    def _delete(self, copy: CheckpointCopy) -> None:
        folder = _folder_of(copy)
        self._store.delete(f"{folder}/{_MANIFEST}")  # from now on, it is not a copy
        for file in copy.files:
            self._store.delete(_key(folder, file.path))

    def _delete_partial(self) -> None:
        """Delete what interrupted rounds have left."""
        keys = dict(self._store.list_keys())
        for key in keys:
            folder, _, rest = key.partition("/")
            if "@" in folder and rest.startswith("file") and f"{folder}/{_MANIFEST}" not in keys:
                self._store.delete(key)


class _Skipped(Exception):
    """A checkpoint cannot be copied now; the message has the reason."""


def _read_copies(store: CopyStore, keys: dict[str, int]) -> tuple[CheckpointCopy, ...]:
    found = []
    for key, size in keys.items():
        folder, _, rest = key.partition("/")
        if rest != _MANIFEST or size > MANIFEST_LIMIT:
            continue
        with suppress(ValueError):
            copy = parse_value(CheckpointCopy, b"".join(store.read(key)))
            parts = [(_key(folder, file.path), file.size) for file in copy.files]
            if folder == _folder_of(copy) and all(keys.get(part) == left for part, left in parts):
                found.append(copy)
    return tuple(sorted(found, key=lambda copy: (copy.saved_at, copy.name)))


def _key(folder: str, path: str) -> str:
    return f"{folder}/files/{path}" if path else f"{folder}/file"


def _folder(one: Checkpoint) -> str:
    return f"{quote(one.name, safe='')}@{one.changed_at.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}"


def _folder_of(copy: CheckpointCopy) -> str:
    return f"{quote(copy.name, safe='')}@{copy.saved_at.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}"
