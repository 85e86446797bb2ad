import os

import pytest

from holdfast.kit.files import open_to_append, write_atomically, write_durably, write_in_place


def test_a_written_file_has_the_new_content_and_no_leftover(tmp_path) -> None:
    path = tmp_path / "state"
    path.write_text("old", encoding="utf-8")

    write_atomically(path, "new é")
    assert path.read_text(encoding="utf-8") == "new é"
    write_durably(path, b"newer")
    assert path.read_bytes() == b"newer"
    assert os.listdir(tmp_path) == ["state"]


@pytest.mark.attack
@pytest.mark.parametrize(
    "write", [lambda p: write_atomically(p, "x"), lambda p: write_durably(p, b"x")]
)
def test_a_link_that_somebody_put_there_redirects_nothing(tmp_path, write) -> None:
    victim, path = tmp_path / "victim", tmp_path / "state"
    victim.write_text("precious", encoding="utf-8")
    (tmp_path / f".state.{os.getpid()}").symlink_to(victim)
    path.symlink_to(victim)

    write(path)

    assert victim.read_text(encoding="utf-8") == "precious"
    assert path.read_text(encoding="utf-8") == "x"
    assert not path.is_symlink()


@pytest.mark.parametrize(
    "write", [lambda p: write_atomically(p, "x"), lambda p: write_durably(p, b"x")]
)
def test_a_write_that_fails_leaves_the_directory_as_it_was(tmp_path, write) -> None:
    path = tmp_path / "state"
    path.mkdir()

    with pytest.raises(OSError, match="directory"):
        write(path)

    assert os.listdir(tmp_path) == ["state"]


def test_the_mode_of_a_file_follows_the_umask(tmp_path) -> None:
    before = os.umask(0o077)
    try:
        write_atomically(tmp_path / "secret", "x")
    finally:
        os.umask(before)

    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


def test_lines_are_appended_to_a_file_that_may_exist(tmp_path) -> None:
    for line in (b"one\n", b"two\n"):
        with open(open_to_append(tmp_path / "lines"), "ab") as file:
            file.write(line)

    assert (tmp_path / "lines").read_bytes() == b"one\ntwo\n"


@pytest.mark.attack
def test_nothing_but_a_regular_file_is_overwritten_in_place(tmp_path) -> None:
    link, fifo, victim = (tmp_path / name for name in ("link", "fifo", "victim"))
    victim.write_text("kept", encoding="utf-8")
    link.symlink_to(victim)
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO that somebody reads opens at once

    for path in (link, fifo, tmp_path):
        with pytest.raises(OSError, match=path.name):
            write_in_place(path, "text")

    assert os.read(reader, 10) == b""
    os.close(reader)
    with pytest.raises(OSError, match="fifo"):  # without a reader, it would block
        write_in_place(fifo, "text")
    assert victim.read_text(encoding="utf-8") == "kept"


@pytest.mark.attack
def test_nothing_but_a_regular_file_is_appended_to(tmp_path) -> None:
    link, fifo = tmp_path / "link", tmp_path / "fifo"
    link.symlink_to(tmp_path / "elsewhere")
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO that somebody reads opens at once

    for path in (link, fifo, tmp_path):
        with pytest.raises(OSError, match=path.name):
            open_to_append(path)

    os.close(reader)
    assert not (tmp_path / "elsewhere").exists()
