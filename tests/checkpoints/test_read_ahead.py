"""Ranges of files whose bytes the kernel reads ahead while they are summed."""

import os
import zipfile
from pathlib import Path

import pytest
from effort import some

from holdfast.adapters.checkpoints.plain_files import CHUNK, PART, chunks, opened
from holdfast.adapters.checkpoints.torch_file import file_problems
from holdfast.model.checkpoints import Depth

SIZES = [0, 1, PART - 1, PART, PART + 1, 4 * CHUNK, 32 * CHUNK - 1, 32 * CHUNK + 1, 40 * CHUNK]


@pytest.mark.parametrize("size", some(SIZES))
def test_all_bytes_of_a_range_come_once_and_in_order(size: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    content = b"".join(number.to_bytes(4, "big") for number in range(size // 4 + 2))
    path.write_bytes(content)

    with opened(path) as window:
        found = list(chunks(window.part(3, size)))

    assert b"".join(found) == content[3 : 3 + size]
    assert all(len(one) == PART for one in found[:-1])


def test_each_byte_is_announced_once_before_it_is_read_and_none_outside_of_the_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100 * CHUNK))
    announced: list[tuple[int, int]] = []
    monkeypatch.setattr(
        os, "posix_fadvise", lambda _, start, count, __: announced.append((start, count))
    )
    with opened(path) as window:
        for number, part in enumerate(chunks(window.part(7, 90 * CHUNK + 5))):
            read = number * PART + len(part)
            ahead = sum(count for _, count in announced)
            assert min(90 * CHUNK + 5, read + 30 * CHUNK) <= ahead <= read + 36 * CHUNK

    ends = [start + count for start, count in announced]
    assert [start for start, _ in announced] == [7, *ends[:-1]]
    assert ends[-1] == 7 + 90 * CHUNK + 5


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
