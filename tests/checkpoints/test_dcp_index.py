"""Damage of a DCP index that leaves a valid pickle."""

from pathlib import Path

import pytest
from recorded import flip, guarded, keeping_times, states, unpacked, verified

from holdfast.model.checkpoints import CheckpointState, Depth

NAMES = {
    b"ChunkStorageMetadata": "names the class torch.distributed.checkpoint.metadata.",
    b"torch.distributed.checkpoint.filesystem": "names the class torch.distributed",
    b"float32": "names the class torch.",
    b"torch.strided": "has properties of model.weight that are not valid",
    b"model.weight": "instead of model.weight",
    b"offsets": "without offsets",
    b"index": "has the field",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return unpacked("dcp", tmp_path) / "sync"


@pytest.mark.parametrize(("name", "why"), NAMES.items())
def test_a_flipped_bit_in_a_name_of_an_index_is_noticed(
    folder: Path, name: bytes, why: str
) -> None:
    index = folder / "step_3/.metadata"
    at = index.read_bytes().index(name)
    for place in range(at, at + len(name)):
        keeping_times(index, lambda place=place: flip(index, place))
        one = verified(folder, "step_3", Depth.HASHES)
        assert one.state is CheckpointState.DAMAGED, place - at
        keeping_times(index, lambda place=place: flip(index, place))
    keeping_times(index, lambda: flip(index, at + len(name) - 1))
    problems = verified(folder, "step_3", Depth.HASHES).problems
    assert any(why in problem for problem in problems), problems


def test_a_class_of_a_later_release_is_no_damage(folder: Path) -> None:
    index = folder / "step_3/.metadata"
    data = index.read_bytes()
    assert data.count(b"ChunkStorageMetadata") == 1  # later uses refer to it
    keeping_times(
        index,
        lambda: index.write_bytes(data.replace(b"ChunkStorageMetadata", b"PieceStorageMetadata")),
    )
    assert verified(folder, "step_3", Depth.HASHES).state is CheckpointState.COMPLETE


def by_name(data: bytes) -> bytes:
    """The index as Python 3.11.2 pickles it: the member of an enumeration by its name.

    A frame of protocol 4 with another length; what is added is not memoized, as later parts refer
    to the others by their numbers.
    """
    encoding = b"h\x00\x8c\x14_MEM_FORMAT_ENCODING\x94\x93\x94"
    name = b"TORCH_CONTIGUOUS_FORMAT"
    number, text = b"K\x00\x85", b"\x8c" + bytes([len(name)]) + name + b"\x86"
    assert data.count(encoding + number) == 1
    found = data.replace(
        encoding + number, b"\x8c\x08builtins\x8c\x07getattr\x93" + encoding + text
    )
    size = int.from_bytes(data[3:11], "little") + len(found) - len(data)
    return found[:3] + size.to_bytes(8, "little") + found[11:]


def test_an_index_that_python_3_11_2_wrote_is_complete(folder: Path) -> None:
    index = folder / "step_3/.metadata"
    keeping_times(index, lambda: index.write_bytes(by_name(index.read_bytes())))
    assert verified(folder, "step_3", Depth.HASHES).state is CheckpointState.COMPLETE

    at = index.read_bytes().index(b"TORCH_CONTIGUOUS")
    for place in range(at, at + len("TORCH_CONTIGUOUS_FORMAT")):
        keeping_times(index, lambda place=place: flip(index, place))
        problems = verified(folder, "step_3", Depth.HASHES).problems
        assert problems == (".metadata has properties of model.weight that are not valid",)
        keeping_times(index, lambda place=place: flip(index, place))


def test_an_index_of_another_step_is_noticed(folder: Path) -> None:
    index, other = folder / "step_3/.metadata", folder / "step_2/.metadata"
    keeping_times(index, lambda: index.write_bytes(other.read_bytes()))
    one = verified(folder, "step_3")
    assert one.state is CheckpointState.DAMAGED
    assert one.problems == ("an index is that of step_2",)


@pytest.mark.parametrize("alone", [True, False])
def test_all_files_of_the_last_rank_are_missed_where_each_rank_has_an_index(
    tmp_path: Path, alone: bool
) -> None:
    folder = unpacked("dcp", tmp_path) / "own_index"
    if alone:
        for name in ("step_1", "step_2"):
            (folder / name).rename(tmp_path / name)
    assert states(folder)["step_3"] == "complete"
    for path in (folder / "step_3").glob("__1*"):
        path.unlink()

    one = verified(folder, "step_3")

    assert one.state is CheckpointState.INCOMPLETE
    if not alone:
        resume = guarded(folder).choice.resume
        assert resume is not None
        assert resume.name == "step_2"
