"""File systems that are full, or do not respond for a while: to reads, or to writes."""

import ctypes
import os
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

_CLASS_CONTENT, _CLOEXEC, _NONBLOCK = 0x4, 0x1, 0x2  # linux/fanotify.h
_MARK_ADD, _MARK_MOUNT = 0x1, 0x10
_OPEN_PERM, _ACCESS_PERM = 0x10000, 0x20000
_EVENT, _ANSWER, _ALLOW = struct.Struct("=IBBHQii"), struct.Struct("=iI"), 1
_AT_FDCWD = -100
_PROGRAMS = ("mkfs.ext4", "fsfreeze", "mount", "umount")


class HungReads:
    """Lets each process that opens or reads a file of a mount wait until ``respond``.

    The kernel asks the holder of a fanotify group for permission, and gets no answer.
    """

    def __init__(self, mount: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._group = self._libc.fanotify_init(_CLASS_CONTENT | _CLOEXEC | _NONBLOCK, os.O_RDONLY)
        mask = ctypes.c_uint64(_OPEN_PERM | _ACCESS_PERM)
        where = (_AT_FDCWD, os.fsencode(mount))
        flags = _MARK_ADD | _MARK_MOUNT
        if self._group < 0 or self._libc.fanotify_mark(self._group, flags, mask, *where):
            pytest.skip(f"no fanotify: {os.strerror(ctypes.get_errno())}")
        self._waiting: set[int] = set()

    def waiting(self) -> set[int]:
        """Processes that wait."""
        for file, pid in self._requests():
            os.close(file)
            self._waiting.add(pid)
        return self._waiting

    def respond_slowly(self, delay_s: float) -> None:
        """Let each wait for a time of its own, until ``respond``."""
        threading.Thread(target=self._answer, args=(delay_s,), daemon=True).start()

    def _answer(self, delay_s: float) -> None:
        with suppress(OSError):  # closed
            while True:
                for file, _ in self._requests():
                    time.sleep(delay_s)
                    os.write(self._group, _ANSWER.pack(file, _ALLOW))
                    os.close(file)
                time.sleep(0.001)

    def _requests(self) -> Iterator[tuple[int, int]]:
        """Yield descriptor and process of each request for permission."""
        try:
            data = os.read(self._group, 65536)
        except BlockingIOError:
            data = b""
        while data:
            length, _, _, _, _, file, pid = _EVENT.unpack_from(data)
            yield file, pid
            data = data[length:]

    def respond(self) -> None:
        """Let all continue; without a group, the kernel asks no more."""
        if self._group >= 0:
            os.close(self._group)
            self._group = -1


@contextmanager
def tmpfs(mount: Path, size: str = "16m") -> Iterator[Path]:
    """A file system in memory."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", mount],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip(f"nothing can be mounted: {done.stderr.strip()}")
    try:
        yield mount
    finally:
        subprocess.run(["umount", "--lazy", mount], check=True)


def fill(folder: Path) -> None:
    """Use up the space of a file system with a file, ``rest``."""
    with suppress(OSError), (folder / "rest").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@contextmanager
def ext4(folder: Path) -> Iterator[Path]:
    """A file system in a file of ``folder``."""
    if os.geteuid() != 0 or not all(map(shutil.which, _PROGRAMS)):
        pytest.skip("needs root, mkfs.ext4 and fsfreeze")
    image, mounted = folder / "image", folder / "mounted"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    done = subprocess.run(
        ["mount", "-o", "loop", image, mounted], check=False, capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"no loop device can be mounted: {done.stderr.strip()}")
    try:
        yield mounted
    finally:
        subprocess.run(["umount", mounted], check=True)


@contextmanager
def frozen_writes(mounted: Path) -> Iterator[None]:
    """Let each write to the file system wait."""
    subprocess.run(["fsfreeze", "--freeze", mounted], check=True)
    try:
        yield
    finally:
        thaw(mounted)


def thaw(mounted: Path) -> None:
    """Let writes continue; nothing happens if they do already."""
    subprocess.run(["fsfreeze", "--unfreeze", mounted], check=False, capture_output=True)
