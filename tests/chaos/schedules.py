"""Random schedules of disturbances, and what they have in common on all platforms."""

import contextlib
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Final, Protocol

LONGEST_JUMP_S: Final = 3 * 3600
LONGEST_PAUSE_S: Final = 2.0
DEADLINE_S: Final = 5.0
"""After that, heartbeats and progress are overdue in the settings of all platforms."""

BEYOND_S: Final = 4.0
"""How much longer than that a pause beyond the deadlines lasts at most."""

REMOUNT_S: Final = 10.0


class Kind(StrEnum):
    """Kind of a disturbance."""

    KILL = "kill -9"
    STOP = "SIGSTOP"
    LONG_STOP = "SIGSTOP beyond the deadlines"
    FULL_DISK = "full disk"
    READ_ONLY = "read-only remount"
    CLOCK = "clock jump"
    CORRUPTION = "file corruption"
    NO_NETWORK = "lost network"
    SLOW_NETWORK = "slow network"
    LOST_PACKETS = "lost packets"
    SLOW = "slow answers"
    UNRELIABLE = "lost requests and answers"


_LONG: Final = frozenset(
    {Kind.LONG_STOP, Kind.SLOW, Kind.UNRELIABLE, Kind.SLOW_NETWORK, Kind.LOST_PACKETS}
)
"""Kinds that last until heartbeats and progress are overdue."""


class Victim(StrEnum):
    """What is disturbed: a part of Holdfast, or what it uses."""

    CONTROLLER = "controller"
    AGENT = "agent"
    API_SERVER = "API server"
    ETCD = "etcd"
    NODE = "node"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True)
class Disturbance:
    """One step of a schedule."""

    kind: Kind
    victim: Victim
    seconds: float
    """How long it lasts."""

    number: int
    """Which agent or file, modulo their count, and the content of a corrupted file."""

    jump_s: int = 0
    """Of a clock."""

    def __str__(self) -> str:
        jump = f" by {self.jump_s:+d} s" if self.kind is Kind.CLOCK else ""
        return f"{self.kind} of {self.victim} {self.number % 100}{jump} for {self.seconds:.2f} s"


class Broken(Exception):
    """A law does not hold; the text says which, and what was seen."""


class Subject(Protocol):
    """Holdfast at work on a platform, with a job that must go on."""

    kinds: Mapping[Kind, tuple[Victim, ...]]
    """Disturbances that the platform has, each with what they can hit."""

    def apply(self, one: Disturbance) -> None:
        """Disturb; returns when the disturbance is over."""
        ...

    def check(self) -> None:
        """Wait until Holdfast is at work again.

        Raises:
            Broken: a node was repaired, the job was lost, or the state does not read clean.

        """
        ...

    def finish(self) -> None:
        """Break a node for real, which must be repaired, and let the job end.

        Raises:
            Broken: the node was not repaired, or the job did not end with the right result.

        """
        ...


def schedule(seed: int, kinds: Mapping[Kind, tuple[Victim, ...]]) -> tuple[Disturbance, ...]:
    """The schedule of a seed: one to four disturbances."""
    random = Random(f"chaos {seed}")
    return tuple(_disturbance(random, kinds) for _ in range(random.randint(1, 4)))


def _disturbance(random: Random, kinds: Mapping[Kind, tuple[Victim, ...]]) -> Disturbance:
    kind = random.choice(sorted(kinds))
    is_long = kind in _LONG
    short = random.choice([0.0, 0.1, LONGEST_PAUSE_S * random.random()])
    return Disturbance(
        kind=kind,
        victim=random.choice(kinds[kind]),
        seconds=DEADLINE_S + 1 + BEYOND_S * short / 2 if is_long else short,
        number=random.randrange(1 << 30),
        jump_s=random.choice([-1, 1]) * random.choice([5, 300, 3700, LONGEST_JUMP_S]),
    )


def corrupted(content: bytes, random: Random) -> bytes:
    """A file as a broken disk leaves it: a damaged block, a lost end, or something else."""
    found = bytearray(content)
    at = random.randrange(len(found) + 1)
    match random.randrange(3):
        case 0:
            found[at : at + 4096] = random.randbytes(len(found[at : at + 4096]))
        case 1:
            del found[at:]
        case _:
            found = bytearray(random.randbytes(512))
    return bytes(found)


class Clock:
    """Clock of the processes that are started with ``environment``; monotonic time stays real."""

    def __init__(self, folder: Path) -> None:
        """Make the clock, in a folder of its own.

        Raises:
            CalledProcessError: there is no C compiler.

        """
        folder.mkdir()
        self._file = folder / "offset"
        self._library = folder / "clock.so"
        source = Path(__file__).with_name("clock.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", self._library, source], check=True)
        self.set(0)

    def set(self, offset_s: int) -> None:
        """Let it jump to an offset from the real time."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{offset_s:+d}", encoding="ascii")
        fresh.replace(self._file)

    @property
    def environment(self) -> dict[str, str]:
        """Variables for a process."""
        return {"LD_PRELOAD": str(self._library), "CHAOS_CLOCK": str(self._file)}


class Disk:
    """A small file system of its own, in the mount namespace of this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        _mount("-t", "tmpfs", "-o", "size=16m,mode=755", "chaos", str(folder))

    def fill(self) -> None:
        """Leave no byte free."""
        with (self.folder / "ballast").open("wb", buffering=0) as ballast:
            try:
                while ballast.write(b"\0" * 65536):
                    pass
            except OSError:
                return

    def empty(self) -> None:
        """Free what ``fill`` has taken."""
        (self.folder / "ballast").unlink(missing_ok=True)

    def remount(self, mode: str) -> None:
        """Make it ``ro`` or ``rw``; waits until no file is open for writing."""
        command = ["mount", "-o", f"remount,{mode}", str(self.folder)]
        deadline = time.monotonic() + REMOUNT_S
        while subprocess.run(command, check=False, capture_output=True).returncode:
            if time.monotonic() > deadline:
                raise Broken(f"{self._open_files()} stays open for writing")
            time.sleep(0.1)

    def _open_files(self) -> str:
        """Open files of it, each with the command of the process."""
        found = []
        for link in Path("/proc").glob("[0-9]*/fd/*"):
            with contextlib.suppress(OSError):  # it was closed, or its process has ended
                if (file := os.readlink(link)).startswith(str(self.folder)):
                    argv = (link.parents[1] / "cmdline").read_bytes().split(b"\0")
                    found.append(f"{file} of {b' '.join(argv).decode(errors='replace')}")
        return "; ".join(found) or f"a file in {self.folder}"

    def close(self) -> None:
        """Detach it."""
        subprocess.run(["umount", "--lazy", str(self.folder)], check=False)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)
