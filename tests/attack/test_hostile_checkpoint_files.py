"""Files beside a checkpoint directory, which users of the job write, mislead nobody."""

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from effort import examples
from hostile import FUZZ, TOKENS, timed
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.adapters.checkpoints.attempt_claim import ATTEMPT_FILE, claim
from holdfast.adapters.checkpoints.attempt_result import RESULT_FILE, read_results
from holdfast.adapters.checkpoints.directory import CheckpointDirectory, saved_step
from holdfast.adapters.checkpoints.history import HISTORY_FILE, read_history
from holdfast.adapters.checkpoints.manifests import DirectoryManifests
from holdfast.adapters.checkpoints.save_reports import read_reports
from holdfast.apps.views.checkpoints import checkpoint_rows
from holdfast.kit.serial import to_plain
from holdfast.model.checkpoint_manifests import (
    CheckpointManifest,
    ManifestFile,
    SaveSummary,
    WeightScan,
)
from holdfast.model.checkpoints import (
    CheckpointHistory,
    CheckpointState,
    Depth,
    Pin,
    Released,
    ResumedAttempt,
    SaveReport,
)
from holdfast.model.errors import BackendError
from tests.ports.builders import NOW

sys.path.insert(0, str(Path(__file__).parents[1] / "checkpoints"))
from recorded import content, unpacked

NAME = "checkpoint-6"
CHECKPOINTS = settings(FUZZ, max_examples=examples(80))
"""Each example reads a whole directory several times."""

HISTORY = CheckpointHistory(
    attempts=(ResumedAttempt(job="j", attempt=1, at=NOW, checkpoint=NAME, saved_at=NOW),),
    released=(Released(name=NAME, at=NOW),),
    pin=Pin(name=NAME, at=NOW),
)
MANIFEST = CheckpointManifest(
    name=NAME,
    step=6,
    format="hf_trainer",
    state=CheckpointState.COMPLETE,
    saved_at=NOW,
    verified_at=NOW,
    seconds=1.0,
    files=(ManifestFile(path="config.json", size=1, changed_ns=1, sha256="00", blocks=(1,)),),
    weights=WeightScan(),
)
FILES: dict[str, Any] = {
    HISTORY_FILE: to_plain(HISTORY),
    RESULT_FILE: {"job": "j", "attempt": 1},
    ATTEMPT_FILE: "1 j",
    ".holdfast-reported": to_plain(SaveReport(name=NAME, step=6, at=NOW)),
    ".holdfast-saves": to_plain(SaveSummary(at=NOW, name=NAME, step=6)),
    f".holdfast-manifest.{NAME}": to_plain(MANIFEST),
}
"""What Holdfast writes beside a checkpoint directory, by the suffix of the file."""

PATHS = (
    "", ".", "..", "/", "/etc/passwd", "../../etc/passwd", f"{NAME}/../../victim", "a/" * 3000,
    "n" * 300, "\0", f"{NAME}/\0", "\ud800", "\udc80", "-rf", "~", "*", "\n", f"{NAME}/config.json",
)  # fmt: skip
VALUES = st.sampled_from([*TOKENS, *PATHS, None, True, -1, 2**70, 1e308, float("nan"), [], {}])


@st.composite
def hostile(draw: st.DrawFn, value: Any) -> Any:
    """The value, of which some parts are replaced."""
    if draw(st.integers(0, 9)) == 0:
        return draw(VALUES)
    if isinstance(value, dict):
        return {key: draw(hostile(one)) for key, one in value.items() if draw(st.integers(0, 19))}
    if isinstance(value, list):
        return [draw(hostile(one)) for one in value] * draw(st.sampled_from([1, 1, 2, 50]))
    return draw(VALUES) if draw(st.integers(0, 3)) == 0 else value


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    base = tmp_path_factory.mktemp("scratch")
    found = unpacked("hf_trainer", base) / "one_file"
    assert (found / NAME).is_dir()
    yield found
    assert not (base.parent / "victim").exists()


def place(folder: Path, suffix: str, inside: bool) -> Path:
    return folder / suffix if inside else folder.with_name(f".{folder.name}{suffix}")


def read_all(folder: Path) -> None:
    """All that a command, the guard and the controller do with a directory, but changing it."""
    read_history(folder)
    read_reports(folder)
    read_results(folder)
    saved_step(folder)
    manifests = DirectoryManifests(folder)
    manifests.read_summary()
    for name in manifests.names():
        manifests.read(name)
    rows = checkpoint_rows(folder)
    assert {one.name for one in rows if one.moved_at is None} <= {
        one.name for one in folder.iterdir()
    }
    store = CheckpointDirectory(folder, sample=2)
    for one in store.survey().checkpoints:
        with suppress(BackendError):  # as documented; it names the file
            store.verify(one.name, Depth.HASHES, None)


@pytest.mark.parametrize("suffix", FILES)
def test_what_is_written_there_is_valid_before_it_is_changed(folder: Path, suffix: str) -> None:
    path = place(folder, suffix, inside=False)
    before = (
        read_history(folder), read_reports(folder), read_results(folder),
        DirectoryManifests(folder).read_summary(), DirectoryManifests(folder).read(NAME),
    )  # fmt: skip
    path.write_text(text_of(FILES[suffix]), encoding="utf-8")
    after = (
        read_history(folder), read_reports(folder), read_results(folder),
        DirectoryManifests(folder).read_summary(), DirectoryManifests(folder).read(NAME),
    )  # fmt: skip
    path.unlink()

    assert (after != before) or suffix == ATTEMPT_FILE


@pytest.mark.parametrize("inside", [True, False])
def test_a_reported_name_of_many_directories_is_ignored(folder: Path, inside: bool) -> None:
    deep = {"name": "a/" * 30_000, "step": 6, "at": "2026-01-01T12:00:00+00:00"}
    path = place(folder, ".holdfast-reported", inside=inside)
    path.write_text(json.dumps(deep), encoding="utf-8")
    try:
        timed(lambda _: read_all(folder), deep["name"])
        assert deep["name"] not in read_reports(folder)
    finally:
        path.unlink()


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@pytest.mark.parametrize("suffix", FILES)
@CHECKPOINTS
@given(st.data())
def test_no_value_in_a_file_beside_a_directory_makes_a_reader_fail(
    folder: Path, suffix: str, data: st.DataObject
) -> None:
    text = text_of(data.draw(hostile(FILES[suffix])))
    path = place(folder, suffix, inside=data.draw(st.booleans()))
    saved = content(folder)
    path.write_text(text, encoding="utf-8", errors="replace")
    try:
        timed(lambda _: read_all(folder), text)
        with suppress(BackendError):
            claim(folder, 3, "another job", may_be_inside=False)
    finally:
        for inside in (True, False):
            place(folder, suffix, inside).unlink(missing_ok=True)
            place(folder, ATTEMPT_FILE, inside).unlink(missing_ok=True)
    assert content(folder) == saved


@CHECKPOINTS
@given(
    path=st.sampled_from(PATHS) | st.text(max_size=20),
    changed=st.integers(-(2**70), 2**70),
    size=st.integers(-(2**70), 2**70),
    blocks=st.lists(st.integers(-1, 2**33), max_size=3),
)
def test_no_path_in_a_manifest_leaves_its_checkpoint(
    folder: Path, path: str, changed: int, size: int, blocks: list[int]
) -> None:
    real = folder / NAME / "config.json"
    files = [
        {"path": "config.json", "size": size, "changed_ns": real.stat().st_mtime_ns,
         "sha256": "00", "blocks": blocks},
        {"path": path, "size": size, "changed_ns": min(changed, 0), "sha256": "00",
         "blocks": blocks},
    ]  # fmt: skip
    manifest = {**to_plain(MANIFEST), "files": files}
    beside = place(folder, f".holdfast-manifest.{NAME}", inside=False)
    beside.write_text(json.dumps(manifest), encoding="utf-8")
    try:
        read_all(folder)
        found = DirectoryManifests(folder).read(NAME)
        for one in () if found is None else found.files:
            assert (folder / NAME / one.path).resolve().is_relative_to(folder / NAME)
    finally:
        beside.unlink()
