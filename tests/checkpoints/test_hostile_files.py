"""Files that are made to hang or exhaust a reader, or that are not files."""

import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from recorded import guarded, unpacked, verified

from holdfast.adapters.checkpoints.pickles import Built, InvalidPickle, Pairs, load
from holdfast.adapters.checkpoints.plain_files import Window, opened
from holdfast.adapters.checkpoints.safetensors_file import window_problems as safetensors_problems
from holdfast.adapters.checkpoints.torch_file import window_problems
from holdfast.model.checkpoints import CheckpointState, Depth


class Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch /tmp/holdfast-was-here",)


def window(data: bytes) -> Window:
    handle = os.memfd_create("data")
    os.write(handle, data)
    return Window(handle, 0, len(data))


def problems(data: bytes, depth: Depth = Depth.HASHES) -> list[str]:
    one = window(data)
    try:
        return list(window_problems(one, depth))
    finally:
        os.close(one.handle)


def archive(content: bytes) -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as file:
        file.writestr("archive/data.pkl", content)
    return memory.getvalue()


def test_a_pickle_calls_and_imports_nothing() -> None:
    loaded = load(pickle.dumps({"a": Evil()}, protocol=4))

    assert isinstance(loaded.value, Pairs)
    one = loaded.value.get("a")
    assert isinstance(one, Built)
    assert one.name == "system"
    assert not Path("/tmp/holdfast-was-here").exists()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x02",
        b"\x80\x02}",
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 62) + b".",
        b"\x80\x04\x8b" + struct.pack("<L", 1 << 31) + b".",
        b"\x80\x02h\x00.",
        b"\x80\x02(t",
        b"\x80\x02NNNu.",
        b"\x80\x02e.",
        b"\x80\x02\x87.",
        b"cos\nsystem",
        b"I1\n.",
        b"\xff" * 8,
    ],
)
def test_what_is_no_pickle_is_reported_to_be_none(data: bytes) -> None:
    with pytest.raises(InvalidPickle):
        load(data)


def test_a_tuple_in_a_tuple_200_000_times_does_no_harm() -> None:
    # One C call per level would need at least 16 MB of stack, of which a thread has 8 MB.
    deep = b"\x80\x02)" + b"\x85" * 200_000
    assert load(deep + b".").end == len(deep) + 1
    assert load(b"\x80\x02}" + deep[2:] + b"Ns.").end == len(deep) + 4
    assert problems(archive(deep + b".")) == []


@given(st.binary(max_size=400))
@example(pickle.dumps({"a": [1, (2, "x")]}, protocol=2)[:-1])
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for part in (data, b"\x80\x04" + data, b"\x80\x02}" + data + b"."):
        try:
            load(part)
        except InvalidPickle:
            continue


@given(st.binary(max_size=300), st.integers(0, 200), st.booleans())
def test_any_file_is_judged(data: bytes, at: int, zipped: bool) -> None:
    whole = archive(pickle.dumps({"step": 3}, protocol=2))
    mixed = whole[:at] + data + whole[at:] if zipped else data
    found = problems(mixed)
    assert found or mixed == whole or not data
    one = window(data)
    assert list(safetensors_problems(one))
    os.close(one.handle)


def header(value: object) -> bytes:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return struct.pack("<Q", len(text)) + text


def tensor(begin: object, end: object, shape: object) -> dict[str, object]:
    return {"w": {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}}


@pytest.mark.parametrize(
    "data",
    [
        header(b"[" * 100_000),
        header([]),
        header({"w": 3}),
        header(tensor(0, 4, [1])),
        header(tensor(0, 4, [2])) + bytes(4),
        header(tensor(4, 8, [1])) + bytes(8),
        header(tensor(0, 1 << 70, [1 << 68])),
        header(tensor(0, 4, [10**30] * 1000)) + bytes(4),
        header(tensor(-4, 0, [1])),
        header(tensor("0", "4", [1])) + bytes(4),
        header(tensor(0, 4, [1])) + bytes(5),
        struct.pack("<Q", 1 << 63),
    ],
)
def test_a_safetensors_header_that_does_not_fit_is_refused(data: bytes) -> None:
    one = window(data)
    assert len(list(safetensors_problems(one))) == 1
    os.close(one.handle)


def test_a_safetensors_file_that_fits_is_whole() -> None:
    one = window(header(tensor(0, 8, [2])) + bytes(8))
    assert list(safetensors_problems(one)) == []
    os.close(one.handle)


def index(name: str, offset: int, length: int) -> bytes:
    """A ``.metadata`` that torch would read, of one item."""
    pickled = b"\x80\x04\x8c\x01m\x8c\x08Metadata\x93)\x81}\x8c\x0cstorage_data}"
    pickled += b"\x8c\x01k\x8c\x01m\x8c\x0c_StorageInfo\x93)\x81}("
    for key, value in (("relative_path", name), ("offset", offset), ("length", length)):
        pickled += b"\x8c" + bytes([len(key)]) + key.encode()
        if isinstance(value, str):
            pickled += b"\x8c" + bytes([len(value)]) + value.encode()
        else:
            pickled += b"\x8a\x09" + value.to_bytes(9, "little", signed=True)
    return pickled + b"ubssb."


@pytest.mark.parametrize(
    ("name", "offset", "length"),
    [
        ("../../secret", 0, 1),
        ("/etc/passwd", 0, 1),
        ("__0_0.distcp", -1, 5),
        ("__0_0.distcp", 0, 1 << 62),
        ("pipe", 0, 1),
        ("zero", 0, 1),
    ],
)
def test_an_index_that_leads_elsewhere_is_damage(
    tmp_path: Path, name: str, offset: int, length: int
) -> None:
    folder = unpacked("dcp", tmp_path) / "sync"
    newest = folder / "step_3"
    (newest / ".metadata").write_bytes(index(name, offset, length))
    os.mkfifo(newest / "pipe")
    (newest / "zero").symlink_to("/dev/zero")

    for depth in Depth:
        assert verified(folder, "step_3", depth).state is CheckpointState.DAMAGED


def test_an_index_that_is_too_large_is_left_alone(tmp_path: Path) -> None:
    folder = unpacked("dcp", tmp_path) / "sync"
    os.truncate(folder / "step_3/.metadata", 1 << 40)

    assert guarded(folder).choice.outcome.value == "undecided"
    assert (folder / "step_3").is_dir()


def test_nothing_but_a_plain_file_is_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="expected a regular file"), opened(path):
            pass


@pytest.mark.parametrize("name", [".metadata", "__0_0.distcp"])
def test_a_pipe_in_place_of_a_file_does_not_block(tmp_path: Path, name: str) -> None:
    folder = unpacked("dcp", tmp_path) / "sync"
    (folder / "step_3" / name).unlink()
    os.mkfifo(folder / "step_3" / name)

    one = guarded(folder).choice.resume

    assert one is not None
    assert one.name == "step_2"
