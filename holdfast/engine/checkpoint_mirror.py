"""Keeps verified copies of checkpoints in a second location, and restores them from there.

Layout of the location: ``<copy>/files/<path>`` (``<copy>/file`` if the checkpoint is one file) and
``<copy>/manifest.json``, which is written last. ``<copy>`` is the quoted name of the checkpoint,
``@`` and the time of its save.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final
from urllib.parse import quote

from holdfast.decisions.checkpoint_copies import RetentionPolicy, expired_copies, missing_copies
from holdfast.decisions.checkpoint_trust import Trust, is_suspected
from holdfast.engine.checkpoint_guard import verified
from holdfast.engine.checkpoint_wording import why_suspected
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
    """The content of a copy cannot be read, or does not match its manifest."""


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

    def plan(self, policy: RetentionPolicy, trust: Trust | None = None) -> tuple[Checkpoint, ...]:
        """Return the checkpoints that ``run_once`` would verify and copy, newest first.

        Raises:
            BackendError: the directory or the location cannot be read.

        """
        survey = self._dated(self._checkpoints.survey())
        return missing_copies(survey.checkpoints, self.copies(), policy, self._clock.now(), trust)

    def run_once(
        self, policy: RetentionPolicy, depth: Depth = Depth.HASHES, trust: Trust | None = None
    ) -> MirrorRound:
        """Copy the newest complete checkpoints, then delete the copies beyond the policy.

        A suspected checkpoint is not copied, and its copy is the first to be deleted.

        Args:
            policy: copies to keep.
            depth: depth of the verification before a copy.
            trust: history of the directory; without one, only NaN makes a checkpoint suspected.

        Raises:
            BackendError: the directory cannot be read, or the location cannot be read or written.

        """
        trust = trust or Trust()
        self._delete_partial()
        survey = self._dated(self._checkpoints.survey())
        have = [self._scanned(survey, copy) for copy in self.copies()]
        copied: list[CheckpointCopy] = []
        skipped: dict[str, str] = {}
        left = list(survey.checkpoints)
        now = self._clock.now()
        while missing := [
            one
            for one in missing_copies(left, (*have, *copied), policy, now, trust)
            if one.name not in skipped
        ]:
            one = missing[0]
            try:
                copied.append(self._copy(survey, one, depth, trust))
            except _Skipped as why:
                skipped[one.name] = str(why)
                if why.is_suspected:  # an older one is copied instead
                    left.remove(one)
        deleted = expired_copies((*have, *copied), policy, now, trust)
        for copy in deleted:
            self._delete(copy)
        return MirrorRound(copied=tuple(copied), deleted=deleted, skipped=tuple(skipped.items()))

    def restore(
        self,
        candidates: Sequence[CheckpointCopy],
        make_room: Callable[[CheckpointCopy], None] | None = None,
    ) -> tuple[CheckpointCopy, tuple[str, ...]]:
        """Create the checkpoint of the first copy that is not damaged in the directory.

        Nothing is changed before all files of the copy are there and match its manifest.

        Args:
            candidates: copies in order of preference.
            make_room: called with the copy before its checkpoint appears, to move another one of
                its name away; without it, none may exist.

        Returns:
            The copy, and a line for each damaged one.

        Raises:
            BackendError: there is no undamaged copy, the checkpoint exists in the directory, or
                the directory cannot be written.

        """
        damaged: list[str] = []
        for copy in candidates:
            room = None if make_room is None else partial(make_room, copy)
            try:
                self._files.place(copy, self._contents(copy), room)
            except CopyDamaged as error:
                damaged.append(str(error))
            else:
                return copy, tuple(damaged)
        found = "; ".join(damaged) or "none is complete"
        raise BackendError(f"{self._store.url}: no usable copy: {found}")

    def _copy(self, survey: Survey, one: Checkpoint, depth: Depth, trust: Trust) -> CheckpointCopy:
        if not survey.is_copyable:
            raise _Skipped(
                f"a checkpoint of {survey.format} is files in several directories, which cannot be"
                " copied; mirror the checkpoints on shared storage"
            )
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
        if is_suspected(found, trust):
            raise _Skipped(f"suspected: {why_suspected(found, trust)}", is_suspected=True)
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
            changed_at=found.changed_at,
            nan=found.nan,
        )
        self._write_manifest(copy)
        return copy

    def _scanned(self, survey: Survey, copy: CheckpointCopy) -> CheckpointCopy:
        """Return a copy with the NaN that was found in its checkpoint since; it is recorded."""
        one = survey.named(copy.name)
        if copy.nan or one is None or one.changed_at != copy.saved_at:
            return copy
        found = verified(self._checkpoints, survey, one, Depth.SIZES).named(copy.name)
        if found is None or not found.nan:
            return copy
        copy = replace(copy, nan=found.nan)
        self._write_manifest(copy)
        return copy

    def _write_manifest(self, copy: CheckpointCopy) -> None:
        text = json.dumps(to_plain(copy)).encode()
        self._store.write(f"{_folder_of(copy)}/{_MANIFEST}", [text])

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
        for chunk in self._counted(self._fetched(copy, file)):
            digest.update(chunk)
            yield chunk
        if digest.hexdigest() != file.sha256:
            where = f"{self._store.url}/{_key(_folder_of(copy), file.path)}"
            raise CopyDamaged(f"{where}: SHA-256 does not match the manifest")

    def _fetched(self, copy: CheckpointCopy, file: CopiedFile) -> Iterator[bytes]:
        try:
            yield from self._store.read(_key(_folder_of(copy), file.path))
        except BackendError as error:  # an older copy may be readable
            raise CopyDamaged(str(error)) from error

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

    def __init__(self, why: str, *, is_suspected: bool = False) -> None:
        super().__init__(why)
        self.is_suspected = is_suspected


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
