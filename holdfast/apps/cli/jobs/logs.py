"""``holdfast jobs logs``: prints the logs of a rank."""

import contextlib
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import click

from holdfast.adapters.local.attempt_files import has_same_logs
from holdfast.adapters.local.layout import default_home
from holdfast.adapters.local.lock import is_held
from holdfast.apps.cli.help import examples
from holdfast.apps.cli.known_names import job_names
from holdfast.apps.views.not_found import NotFound
from holdfast.apps.views.run_jobs import RunJobs
from holdfast.apps.views.runs import KnownJob

_PAUSE_S: Final = 0.1
_CHUNK_BYTES: Final = 1 << 16


@dataclass(slots=True)
class _Log:
    """Log file and the number of bytes printed so far."""

    path: Path
    offset: int = 0

    def print_new_lines(self) -> None:
        """Print the appended bytes; a file that does not exist yet has none."""
        out = sys.stdout.buffer
        with contextlib.suppress(FileNotFoundError), self.path.open("rb") as file:
            file.seek(self.offset)
            while chunk := file.read(_CHUNK_BYTES):
                out.write(chunk)
                self.offset += len(chunk)
        out.flush()

    def skip_to_last(self, lines: int) -> None:
        """Skip all but the last ``lines`` lines."""
        with contextlib.suppress(FileNotFoundError), self.path.open("rb") as file:
            self.offset = start_of_last(file, lines)


@examples(
    "holdfast jobs logs llama --follow", "holdfast jobs logs llama --rank 3 --attempt 2 --tail 100"
)
@click.command("logs")
@click.argument("job", shell_complete=job_names)
@click.option(
    "--rank", default=0, show_default=True, metavar="N", help="Node rank whose output to print."
)
@click.option(
    "--attempt", type=int, metavar="N", help="Number of the attempt.  [default: the latest]"
)
@click.option(
    "-f", "--follow", is_flag=True, help="Follow the log until the job ends, across restarts."
)
@click.option(
    "--tail", type=click.IntRange(min=0), metavar="N", help="Start with the last N lines."
)
def logs(*, job: str, rank: int, attempt: int | None, follow: bool, tail: int | None) -> None:
    """Print the logs of a rank."""
    with RunJobs(default_home()).found(job) as known:
        _check(known, rank, attempt, may_wait=follow and known.is_active)
        number = attempt or max(known.record.attempt, 1)
        log = _Log(known.files.log(number, rank))
        if tail is not None:
            log.skip_to_last(tail)
        if follow:
            _follow(known, rank, number, log, is_restarted_too=attempt is None)
        else:
            log.print_new_lines()


def _check(job: KnownJob, rank: int, attempt: int | None, *, may_wait: bool) -> None:
    """Raise ``NotFound`` if the job has no such rank or attempt, or no attempt yet."""
    spec, record = job.spec, job.record
    if not 0 <= rank < spec.nodes:
        raise NotFound(f"{job.ref}: rank {rank} not found; ranks are 0 to {spec.nodes - 1}")
    if attempt is not None and not 1 <= attempt <= record.attempt:
        raise NotFound(f"{job.ref}: attempt {attempt} not found; the latest is {record.attempt}")
    if record.attempt == 0 and not may_wait:
        raise NotFound(f"{job.ref} has not started yet: it is {record.phase}")


def _follow(job: KnownJob, rank: int, attempt: int, log: _Log, *, is_restarted_too: bool) -> None:
    while True:
        # Read the record before the log: an attempt writes its log before its end is recorded.
        record = job.run.store.job(job.key)[1]
        has_ended = record.phase.is_final or not is_held(job.run.directory)
        log.print_new_lines()
        if record.attempt > attempt and is_restarted_too:
            attempt += 1
            if not has_same_logs(job.files, attempt - 1, attempt):
                log = _Log(job.files.log(attempt, rank))
            click.echo(f"holdfast: {job.ref}: attempt {attempt}", err=True)
        elif has_ended or record.attempt > attempt:
            return
        else:
            time.sleep(_PAUSE_S)


def start_of_last(file: IO[bytes], lines: int) -> int:
    """Return the byte offset at which the last ``lines`` lines of a file begin."""
    end = file.seek(0, os.SEEK_END)
    if lines == 0:
        return end
    position = end - 1  # the newline that ends the last line starts no other
    while position > 0:
        start = max(0, position - _CHUNK_BYTES)
        file.seek(start)
        block = file.read(position - start)
        found = block.count(b"\n")
        if found >= lines:
            return start + len(b"\n".join(block.split(b"\n")[:-lines])) + 1
        lines -= found
        position = start
    return 0
