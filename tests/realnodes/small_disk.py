"""A small file system that all nodes share, and that a test fills."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.engines.real_cluster import RealCluster

ROOM = 128 * 1024
"""Bytes that ``fill`` leaves: the last saves are cut off, and do not only lack their first byte."""


class SmallDisk:
    """An ext4 file system, mounted on all nodes that are switched on; a context manager.

    Machines that join later do not have it. Nothing of it outlives the machines.

    Args:
        cluster: the nodes.
        folder: for its image, and where it is mounted; on this machine, it is not mounted.
        size: bytes.

    """

    def __init__(self, cluster: RealCluster, folder: Path, size: int) -> None:
        self.folder = folder / "disk"
        self._cluster = cluster
        self._image = folder / "image"
        self._size = size

    def __enter__(self) -> Self:
        self.folder.mkdir()
        with self._image.open("wb") as image:
            image.truncate(self._size)
        _run("mkfs.ext4", "-q", "-m", "0", str(self._image))
        device = _run("losetup", "--find", "--show", str(self._image))
        try:
            for node in self._cluster.nodes.values():
                _inside(node.pid, "mount", device, str(self.folder))
        finally:
            _run("losetup", "--detach", device)  # once it is mounted nowhere
        self.path.chmod(0o777)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for node in self._cluster.nodes.values():
            if node.is_on:
                _inside(node.pid, "umount", "--lazy", str(self.folder))

    @property
    def path(self) -> Path:
        """The file system, for this machine."""
        node = next(node for node in self._cluster.nodes.values() if node.is_on)
        return Path(f"/proc/{node.pid}/root{self.folder}")

    def fill(self) -> None:
        """Use up all of its space but ``ROOM``."""
        with (self.path / "filler").open("wb") as filler:
            size = _free(self.path) - ROOM
            while size > 0:
                with suppress(OSError):  # a job has saved meanwhile, or the index needs blocks
                    os.posix_fallocate(filler.fileno(), 0, size)
                    return
                size -= ROOM // 4

    def free(self) -> None:
        """Give back what ``fill`` used."""
        (self.path / "filler").unlink()


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _inside(pid: int, *command: str) -> None:
    # In its PID namespace, too: umount reads /proc/self.
    spaces = (f"--mount=/proc/{pid}/ns/mnt", f"--pid=/proc/{pid}/ns/pid_for_children")
    _run("nsenter", *spaces, *command)


def _run(*command: str) -> str:
    done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout.strip()
