"""Links of Composer after a kill between their removal and their return."""

import os
from pathlib import Path

import pytest
from recorded import guarded, unpacked

from holdfast.adapters.checkpoints.directory import CheckpointDirectory


@pytest.mark.parametrize("layout", ["composer/files", "composer_sharded/sharded"])
def test_a_link_of_composer_that_a_kill_removed_is_made_anew(tmp_path: Path, layout: str) -> None:
    name, _, inside = layout.partition("/")
    folder = unpacked(name, tmp_path) / inside
    link = folder / "latest-rank0.pt"
    newest = os.readlink(link)
    link.unlink()

    assert CheckpointDirectory(folder).survey().loaded is None  # Composer starts from the beginning
    one = guarded(folder).choice.resume
    assert one is not None
    assert one.name == newest
    assert os.readlink(link) == newest
