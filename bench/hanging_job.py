"""A job of eight ranks that hangs again and again, each time in another way."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.hang_schedules import RANKS, Schedule
from holdfast.kit.processes import descendants, send

SCRIPT: Final = Path(__file__).parents[1] / "tests/local/frameworks/hanging_ranks.py"
LIMIT_S: Final = 420
"""Maximum time to the first step, and from one hang to the next verdict."""

POLL_S: Final = 0.05


class HangingJob:
    """Processes and files of one job.

    Args:
        folder: for logs, and for the files by which ranks and this process coordinate.
        process: the launcher.
        frozen: file system that can be frozen; None if there is none.

    """

    def __init__(
        self, folder: Path, process: "subprocess.Popen[bytes]", frozen: Path | None
    ) -> None:
        self.folder = folder
        self.process = process
        self._frozen = frozen

    @property
    def log(self) -> str:
        """Return what the launcher has printed."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def has_ended(self) -> bool:
        """Return whether the launcher has ended."""
        return self.process.poll() is not None

    def stop_rank_or_storage(self, one: Schedule, place: int) -> None:
        """Stop the rank, or its storage, if it is near the step. Other hangs need nothing.

        Args:
            one: the hang.
            place: its place in the job.

        """
        hung = self.folder / f"hung-{place}"
        pid = self._ready(place)
        if one.kind not in ("sigstop", "storage") or hung.exists() or not pid:
            return
        if one.kind == "sigstop":
            send(pid, signal.SIGSTOP)
        elif self._frozen is not None:
            subprocess.run(["fsfreeze", "-f", self._frozen], check=True)
        hung.touch()

    def time_of(self, what: str) -> float | None:
        """Return when the job ``began`` its steps, or ``hung-N``; None if it did not.

        In seconds since 1970.
        """
        try:
            return (self.folder / what).stat().st_mtime
        except FileNotFoundError:
            return None

    def release(self, place: int) -> None:
        """End a hang: let the storage respond and the rank continue."""
        self._thaw()
        if pid := self._ready(place):
            send(pid, signal.SIGCONT)
        (self.folder / f"release-{place}").touch()

    def _ready(self, place: int) -> int:
        """Return the process of a rank that is near its hang; 0 if it is not."""
        try:
            return int((self.folder / f"ready-{place}").read_text(encoding="ascii") or "0")
        except FileNotFoundError:
            return 0

    def _thaw(self) -> None:
        if self._frozen is not None:
            subprocess.run(["fsfreeze", "-u", self._frozen], check=False, stderr=subprocess.DEVNULL)

    def close(self) -> None:
        """End all processes."""
        pids = [self.process.pid, *descendants(self.process.pid)]
        self._thaw()
        for pid in pids:
            send(pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def hanging_job(
    launcher: Sequence[str],
    schedules: Sequence[Schedule],
    frozen: Path | None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[HangingJob]:
    """Start a job; end it with all its processes.

    Args:
        launcher: command that starts the script, such as that of ``holdfast launch``.
        schedules: its hangs, all of one framework.
        frozen: file system that can be frozen; None if there is none.
        environment: variables in addition.

    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = frozen or folder
        plan = folder / "schedules"
        plan.write_text("".join(one.line for one in schedules), encoding="ascii")
        own = {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [
                    *(part.replace("{folder}", name) for part in launcher),
                    str(SCRIPT), schedules[0].framework, str(plan), str(data),
                ],
                env={**os.environ, **own, **(environment or {})},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        job = HangingJob(folder, process, frozen)
        try:
            yield job
        finally:
            job.close()


def launch_command(*options: str) -> list[str]:
    """Return the command of ``holdfast launch`` for a hanging job."""
    return [
        sys.executable, "-m", "holdfast", "launch", "--nproc-per-node", str(RANKS),
        "--log-dir", "{folder}/logs", "-r", "3", *options,
    ]  # fmt: skip


@contextmanager
def storage() -> Iterator[Path | None]:
    """Mount a file system that can be frozen; None where that is not possible."""
    folder = Path(tempfile.mkdtemp())
    image, mounted = folder / "image", folder / "mounted"
    mounted.mkdir()
    commands = (
        ["truncate", "--size=32M", image],
        ["mkfs.ext4", "-q", image],
        ["mount", "-o", "loop", image, mounted],
    )
    try:
        for command in commands:
            subprocess.run(command, check=True, capture_output=True)
        is_there = shutil.which("fsfreeze") is not None
    except (OSError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"no file system to freeze: {error}\n")
        is_there = False
    try:
        yield mounted if is_there else None
    finally:
        subprocess.run(["umount", "--lazy", mounted], check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


def wait_s(until: float) -> bool:
    """Sleep shortly. Returns whether the monotonic time ``until`` has not come."""
    time.sleep(POLL_S)
    return time.monotonic() < until
