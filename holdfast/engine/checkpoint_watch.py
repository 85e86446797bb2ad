"""Verifies each checkpoint soon after its save, and keeps a manifest of it.

A save that the script reports as done is verified at once. The result counts only after no file has
changed for the same time as without a report: the report may be early, and ranks may still write.
Nothing in the checkpoint directory is changed.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.decisions.save_age import summary_after
from holdfast.decisions.save_reports import IncompleteSave, incomplete_saves
from holdfast.engine.checkpoint_guard import verified
from holdfast.model.checkpoint_manifests import (
    CheckpointManifest,
    ManifestFile,
    SaveSummary,
    WeightScan,
)
from holdfast.model.checkpoints import Checkpoint, CheckpointState, Depth, Survey
from holdfast.model.errors import BackendError
from holdfast.ports.checkpoint_files import CheckpointFiles, SourceFile
from holdfast.ports.checkpoint_manifests import ManifestStore
from holdfast.ports.checkpoints import CheckpointStore
from holdfast.ports.clock import Clock

_NEWEST: Final = 3
"""Checkpoints that are verified. Jobs rarely resume from an older one, and each costs a read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRound:
    """What one look at a directory has found."""

    verified: CheckpointManifest | None = None
    """Checkpoint that was verified; others may be left."""

    damaged: tuple[Checkpoint, ...] = ()
    """Checkpoints that differ from their manifest, and were not reported before."""

    incomplete: tuple[IncompleteSave, ...] = ()
    """Saves that were reported as done and are incomplete, and were not returned before."""

    has_early: bool = False
    """Whether the result for a reported save waits until its files are old enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Reads the content of checkpoints. Each function raises ``BackendError``."""

    files: CheckpointFiles
    record: Callable[[str, SourceFile], ManifestFile]
    """Returns the record of a file of a checkpoint, by name of the checkpoint."""

    scan: Callable[[str], WeightScan]
    """Searches a checkpoint for values that are not finite."""


@dataclass(frozen=True, slots=True)
class _Early:
    """Result for a save that was reported, before its files are old enough."""

    files: tuple[SourceFile, ...]
    manifest: CheckpointManifest


@dataclass(slots=True)
class CheckpointWatch:
    """Verification of the saves in one directory.

    Args:
        checkpoints: verifies the checkpoints of the directory.
        contents: reads their files.
        manifests: store of the manifests.
        is_kept: whether a checkpoint that left the directory may come back.
        clock: clock.
        settle: time without a change after which a save may have ended.

    """

    checkpoints: CheckpointStore
    contents: Contents
    manifests: ManifestStore
    is_kept: Callable[[str], bool]
    clock: Clock
    settle: timedelta
    _known: dict[str, datetime] = field(default_factory=dict, init=False)
    """``changed_at`` of the checkpoints of which nothing is left to do."""

    _reported: dict[str, datetime] = field(default_factory=dict, init=False)
    """Reports that have led to an early verification, by name of the checkpoint."""

    _incomplete: dict[str, IncompleteSave] = field(default_factory=dict, init=False)
    """Reported saves that were incomplete in the last look at all newest checkpoints, by name."""

    _early: dict[str, _Early] = field(default_factory=dict, init=False)
    """Results that are not written yet, by name of the checkpoint."""

    def run_once(self) -> WatchRound:
        """Verify the newest checkpoint that was saved since the last call.

        Raises:
            BackendError: the directory cannot be read, or a manifest cannot be written.

        """
        survey = self.checkpoints.survey()
        damaged: list[Checkpoint] = []
        seen: list[Checkpoint] = []
        self._forget_deleted(survey)
        for one in survey.checkpoints[:_NEWEST]:
            if self._known.get(one.name) == one.changed_at:
                continue
            found = self._looked_at(survey, one, seen)
            if isinstance(found, CheckpointManifest):
                self._summarize(survey, found)
                return WatchRound(verified=found, damaged=tuple(damaged))
            if found is not None:
                damaged.append(found)
        return WatchRound(
            damaged=tuple(damaged),
            incomplete=self._new_incomplete(replace(survey, checkpoints=tuple(seen))),
            has_early=bool(self._early),
        )

    def _new_incomplete(self, seen: Survey) -> tuple[IncompleteSave, ...]:
        """Return reported saves that have become incomplete, and store how many there are."""
        now = self.clock.now()
        found = {one.name: one for one in incomplete_saves(seen, now)}
        before, self._incomplete = self._incomplete, found
        summary = self.manifests.read_summary() or SaveSummary(at=now)
        if summary.incomplete != len(found):
            self.manifests.write_summary(replace(summary, incomplete=len(found)))
        return tuple(one for name, one in found.items() if before.get(name) != one)

    def _summarize(self, survey: Survey, new: CheckpointManifest) -> None:
        manifests = (self.manifests.read(one.name) for one in survey.checkpoints[:_NEWEST])
        newest = [one for one in manifests if one is not None]
        self.manifests.write_summary(summary_after(self.manifests.read_summary(), new, newest))

    def _looked_at(
        self, survey: Survey, one: Checkpoint, seen: list[Checkpoint]
    ) -> CheckpointManifest | Checkpoint | None:
        """Return a new manifest, or a checkpoint that differs from its own; None if neither.

        Adds a checkpoint that is incomplete to ``seen``.
        """
        try:
            before = self.contents.files.files(one.name)
            if not before:
                return None
            is_settled = self._is_settled(before)
            early = self._early.get(one.name)
            if early is not None and early.files == before:
                return self._written(one, early.manifest) if is_settled else None
            self._early.pop(one.name, None)
            if not is_settled and not self._is_newly_reported(one):
                return None
            found = verified(self.checkpoints, survey, one, Depth.SIZES).named(one.name)
        except BackendError:  # deleted by the job meanwhile
            return None
        if found is None or found.state is CheckpointState.INCOMPLETE:
            seen += [found] if found is not None else []
            return None
        manifest = self.manifests.read(one.name)
        if found.watched_at is not None and manifest is not None:
            if not is_settled:  # being written again, which is no damage
                return None
            self._known[one.name] = one.changed_at
            if found.problems != manifest.problems:
                return found
            if {file.path for file in manifest.files} == {file.path for file in before}:
                return None
        return self._verified(survey, one, before)

    def _is_settled(self, files: tuple[SourceFile, ...]) -> bool:
        return self.clock.now() - _saved_at(files) >= self.settle

    def _is_newly_reported(self, one: Checkpoint) -> bool:
        """Return whether a report has come that has not led to a verification yet."""
        if one.reported_at is None or self._reported.get(one.name) == one.reported_at:
            return False
        self._reported[one.name] = one.reported_at
        return True

    def _verified(
        self, survey: Survey, one: Checkpoint, before: tuple[SourceFile, ...]
    ) -> CheckpointManifest | None:
        """Read a checkpoint; None if it changes meanwhile, or if it may still change."""
        started = self.clock.now()
        try:
            found = verified(self.checkpoints, survey, one, Depth.HASHES).named(one.name)
            files = tuple(self.contents.record(one.name, file) for file in before)
            weights = self.contents.scan(one.name)
            is_unchanged = self.contents.files.files(one.name) == before
        except BackendError:  # deleted by the job meanwhile
            return None
        if found is None or found.state is CheckpointState.INCOMPLETE or not is_unchanged:
            return None
        now = self.clock.now()
        manifest = CheckpointManifest(
            name=one.name,
            step=one.step,
            format=survey.format,
            state=found.state,
            problems=found.problems,
            saved_at=_saved_at(before),
            verified_at=now,
            seconds=(now - started).total_seconds(),
            files=files,
            weights=weights,
        )
        if not self._is_settled(before):
            self._early[one.name] = _Early(before, manifest)
            return None
        return self._written(one, manifest)

    def _written(self, one: Checkpoint, manifest: CheckpointManifest) -> CheckpointManifest:
        self.manifests.write(manifest)
        self._early.pop(one.name, None)
        self._known[one.name] = one.changed_at
        return manifest

    def _forget_deleted(self, survey: Survey) -> None:
        """Delete the manifests of checkpoints that the job has deleted."""
        present = {one.name for one in survey.checkpoints}
        for name in self.manifests.names() - present:
            if not self.is_kept(name):
                with suppress(BackendError):
                    self.manifests.delete(name)
        for kept in (self._known, self._reported, self._early):
            for name in kept.keys() - present:
                del kept[name]


def _saved_at(files: tuple[SourceFile, ...]) -> datetime:
    """Return the newest modification time."""
    nanoseconds = max(file.changed_ns for file in files)
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=nanoseconds // 1000)
