"""Ranges of files that are so large that a thread reads them ahead."""

import zipfile
from pathlib import Path

import pytest

from holdfast.adapters.checkpoints.plain_files import CHUNK, chunks, opened
from holdfast.adapters.checkpoints.torch_file import file_problems
from holdfast.model.checkpoints import Depth

SIZES = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 8 * CHUNK - 1, 8 * CHUNK, 8 * CHUNK + 1, 20 * CHUNK]


@pytest.mark.parametrize("size", SIZES)
def test_all_bytes_of_a_range_come_once_and_in_order(size: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    content = b"".join(number.to_bytes(4, "big") for number in range(size // 4 + 2))
    path.write_bytes(content)

    with opened(path) as window:
        found = list(chunks(window.part(3, size)))

    assert b"".join(found) == content[3 : 3 + size]
    assert all(len(one) == CHUNK for one in found[:-1])


@pytest.mark.parametrize("size", [2 * CHUNK, 20 * CHUNK])
def test_a_file_that_is_truncated_meanwhile_yields_fewer_bytes(size: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(size))

    with opened(path) as window:
        path.write_bytes(bytes(CHUNK + 5))
        found = list(chunks(window))

    assert sum(map(len, found)) == CHUNK + 5


@pytest.mark.parametrize("at", [0, 9 * CHUNK, 20 * CHUNK - 1])
def test_a_flipped_bit_of_a_large_record_is_found(at: int, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}.")
        archive.writestr("archive/data/0", bytes(20 * CHUNK))
        offset = archive.getinfo("archive/data/0").header_offset + len("archive/data/0") + 30
    assert list(file_problems(path, Depth.HASHES)) == []
    with path.open("r+b") as file:
        file.seek(offset + at)
        file.write(b"\x01")

    [problem] = file_problems(path, Depth.HASHES)
    assert problem.text == "has a wrong checksum in record archive/data/0"
