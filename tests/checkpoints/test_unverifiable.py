"""Checkpoints that cannot be verified: they are neither damaged nor moved."""

from dataclasses import replace
from pathlib import Path

from recorded import content, guarded, unpacked, verified

from holdfast.adapters.checkpoints.manifests import DirectoryManifests
from holdfast.apps.run.checkpoint_watch import watch_of
from holdfast.decisions.checkpoint_choice import ResumeOutcome
from holdfast.model.checkpoints import CheckpointState

NEWEST = "checkpoint_000300.pt"
MANY = b"\x80\x02" + b"N0" * 12_000_000 + b"N."
"""A pickle with more opcodes than are read: it puts and removes None."""


def test_a_pickle_that_is_too_large_is_no_damage(tmp_path: Path) -> None:
    folder = unpacked("torch_save", tmp_path) / "legacy"
    magic = (folder / NEWEST).read_bytes()[:15]
    (folder / NEWEST).write_bytes(magic + MANY)

    one = verified(folder, NEWEST)

    assert one.state is CheckpointState.UNKNOWN
    assert one.problems == ("its pickle is too large to verify",)


def test_what_the_watch_could_not_verify_is_left_alone(tmp_path: Path) -> None:
    """It reads checkpoints more deeply than the verification before an attempt."""
    folder = unpacked("torch_save", tmp_path) / "zip"
    watch = watch_of(folder, None)
    while watch.run_once().verified is not None:
        pass
    manifests = DirectoryManifests(folder)
    manifest = manifests.read(NEWEST)
    assert manifest is not None
    problems = ("record data.pkl is too large to verify",)
    manifests.write(replace(manifest, state=CheckpointState.UNKNOWN, problems=problems))
    before = content(folder)

    found = guarded(folder)

    assert found.choice.outcome is ResumeOutcome.UNDECIDED
    assert found.before.checkpoints[0].problems == problems
    assert content(folder) == before
