import os
import resource
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.adapters.host.inotify import FileWatch


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "log" / "messages"
    path.parent.mkdir()
    path.touch()
    return path


@pytest.fixture
def watch(path: Path) -> Iterator[FileWatch]:
    watch = FileWatch([path])
    yield watch
    watch.close()


def append(path: Path) -> None:
    with path.open("a", encoding="utf-8") as log:
        log.write("x\n")


def is_woken(watch: FileWatch) -> bool:
    """Events are queued before the call that causes them returns, so no time is needed."""
    fd = watch.fileno()
    assert fd is not None
    return bool(select.select([fd], [], [], 0)[0])


def test_nothing_wakes_until_something_happens(watch: FileWatch) -> None:
    assert not is_woken(watch)


def test_a_line_wakes_until_the_next_refresh(watch: FileWatch, path: Path) -> None:
    append(path)
    assert is_woken(watch)

    watch.refresh()
    assert not is_woken(watch)

    append(path)
    assert is_woken(watch)


def test_other_files_of_the_directory_do_not_wake(path: Path) -> None:
    other = path.with_name("syslog")
    other.touch()
    watch = FileWatch([path])

    append(other)

    assert not is_woken(watch)
    watch.close()


def test_a_successor_wakes_when_it_comes_and_when_it_grows(watch: FileWatch, path: Path) -> None:
    path.rename(path.with_name("messages.1"))
    watch.refresh()
    path.touch()
    assert is_woken(watch)

    watch.refresh()
    append(path)

    assert is_woken(watch)


def test_the_old_file_does_not_wake_any_more_once_it_has_a_successor(
    watch: FileWatch, path: Path
) -> None:
    old = path.rename(path.with_name("messages.1"))
    path.touch()
    watch.refresh()
    watch.refresh()  # the end of the watch on the old file is an event, too

    append(old)

    assert not is_woken(watch)


def test_the_old_file_wakes_while_it_has_no_successor(watch: FileWatch, path: Path) -> None:
    old = path.rename(path.with_name("messages.1"))
    watch.refresh()

    append(old)

    assert is_woken(watch)


def test_a_file_that_moves_into_place_wakes(watch: FileWatch, path: Path) -> None:
    other = path.with_name("new")
    other.touch()
    path.unlink()
    watch.refresh()
    watch.refresh()  # the end of the watch on the old file is an event, too
    assert not is_woken(watch)

    other.rename(path)

    assert is_woken(watch)


def test_a_missing_file_and_a_missing_directory_are_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "later" / "messages"
    watch = FileWatch([path])
    path.parent.mkdir()
    watch.refresh()

    append(path)

    assert is_woken(watch)
    watch.close()


def test_the_descriptor_is_given_back(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    watch = FileWatch([path])

    watch.close()

    assert watch.fileno() is None
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_watch_that_is_closed_takes_a_refresh(watch: FileWatch) -> None:
    watch.close()

    watch.refresh()

    assert watch.fileno() is None


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """The limit of open files is reached, as is the limit of inotify instances on busy nodes."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    fillers = [os.open("/dev/null", os.O_RDONLY) for _ in range(highest + 1)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(fillers) + 1, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    for filler in fillers:
        os.close(filler)


def test_without_inotify_files_are_to_be_polled(path: Path, few_descriptors: None) -> None:
    assert FileWatch([path]).fileno() is None
