"""A local user who may read a directory cannot lock out the processes that use it."""

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.adapters.host.report_files import LOCK, sole_agent
from holdfast.adapters.local.layout import run_dir
from holdfast.adapters.local.lock import guarded, locked
from holdfast.adapters.slurm.nodes.leadership import FILE, FileLock
from holdfast.apps.checks.job import one_at_a_time
from holdfast.kit.files import open_lock

NOBODY = 65534
SECOND = timedelta(seconds=1)
HOLD = """
import fcntl, os, sys
held = []
for path in sys.argv[1:]:
    try:
        held.append(os.open(path, os.O_RDONLY))
        fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        pass
print("locked what may be locked", flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="an attack changes its user: run as root")


@contextmanager
def leading(folder: Path) -> Iterator[None]:
    with closing(FileLock(folder, may_take=True)) as lock:
        assert lock.is_held()
        yield


USES: dict[str, tuple[str, Callable[[Path], AbstractContextManager[object]]]] = {
    "agent": (LOCK, sole_agent),
    "check of a job": ("check.lock", lambda folder: one_at_a_time(folder / "check.lock", SECOND)),
    "controller": (FILE, leading),
    "run": ("locks/llm", lambda folder: locked(run_dir(folder, "llm"))),
    "cluster": ("locks/llm.guard", lambda folder: guarded(run_dir(folder, "llm"))),
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory that every user may read."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        Path(name, "locks").mkdir()
        yield Path(name)


@contextmanager
def held_by_a_user(*paths: Path) -> Iterator[None]:
    """A local user locks all of the paths that it can open."""
    with subprocess.Popen(
        ["python3", "-c", HOLD, *map(str, paths)],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.parametrize("use", USES)
def test_a_user_cannot_hold_the_lock_of_a_process(folder: Path, use: str) -> None:
    name, taken = USES[use]
    with taken(folder):  # so that the file is there
        pass

    with held_by_a_user(folder, folder / name, (folder / name).parent), taken(folder):
        assert (folder / name).stat().st_mode & 0o077 == 0


def test_a_lock_that_an_earlier_release_left_open_is_closed(folder: Path) -> None:
    path = folder / "any.lock"
    path.touch(0o644)

    os.close(open_lock(path))

    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["file", "link", "fifo", "directory"])
def test_a_lock_that_a_user_has_put_there_is_refused(folder: Path, kind: str) -> None:
    folder.chmod(0o777)
    path, target = folder / "any.lock", folder / "target"
    makes = {
        "file": lambda: (path.touch(0o600), os.chown(path, NOBODY, NOBODY)),
        "link": lambda: path.symlink_to(target),
        "fifo": lambda: os.mkfifo(path),
        "directory": path.mkdir,
    }
    makes[kind]()

    with pytest.raises(OSError, match=str(path)):
        open_lock(path)

    assert not target.exists()


def test_a_lock_keeps_a_second_process_out(folder: Path) -> None:
    first, second = (open_lock(folder / "any.lock") for _ in range(2))
    fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)

    with pytest.raises(BlockingIOError):
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)

    os.close(first)
    os.close(second)
