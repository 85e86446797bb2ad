"""``holdfast slurm supervise -- srun ...``: runs one step of a job, and restarts it after faults.

Runs in the job, as its owner, in place of srun: with its input, its output and its exit code.
Imports the standard library only, because every step waits for it to start.
"""

import argparse
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.adapters.slurm.jobs.own_job import OwnJob
from holdfast.adapters.slurm.jobs.step_foreground import CheckpointCalls, PreparedCheckpoints
from holdfast.adapters.slurm.jobs.step_monitor import MAX_RETRIES
from holdfast.adapters.slurm.jobs.step_supervisor import COMMAND, SupervisedStep
from holdfast.apps.slurm.srun import ForegroundSrun
from holdfast.decisions.step_restart import RestartTimeouts
from holdfast.kit.units import format_duration, parse_duration
from holdfast.model.jobs import CHECKPOINT_MIRROR_VARIABLE, AttemptRecord

if TYPE_CHECKING:  # every step waits for the start of this process
    import subprocess
    from collections.abc import Iterator
    from typing import IO

    from holdfast.apps.run.save_watches import SaveWatches

_DESCRIPTION: Final = (
    "Run a job step, and restart it after a node fault. Replaces srun, with its input, output and "
    "exit code; srun --auto-resume=1 starts it."
)

_EPILOG: Final = "DURATION is a number with a unit, such as 500ms, 90s, 15m or 1h30m."

SUPERVISED: Final = "HOLDFAST_SUPERVISED"
"""Number of the job whose srun has a supervisor: the SPANK plugin starts no second one."""


def main(argv: Sequence[str]) -> int:
    """Run the step. Returns the exit code of srun, as a shell has it."""
    options = _options(argv)
    job = os.environ.get("SLURM_JOB_ID", "")
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if options.auto_resume is not None:
        return _set_auto_resume(job, options.auto_resume)
    if not command:
        command_line_parser().error("missing command line of srun; write it after --")
    if not job.isdecimal() or os.environ.get(SUPERVISED) == job:
        os.execvp(command[0], command)  # noqa: S606 - an argument list
    with ForegroundSrun() as foreground, closing(_StepSaves(os.environ)) as saves:
        environment = {**os.environ, SUPERVISED: job}
        step = SupervisedStep(
            job=job,
            srun=command,
            environment=environment,
            foreground=foreground,
            saves=CheckpointCalls(partial(_prepare, job, environment), saves.advance),
            timeouts=RestartTimeouts(
                grace=options.grace,
                fence=options.fence,
                swap=options.swap_timeout,
                requeue=options.requeue_timeout,
            ),
            poll=options.poll,
            max_retries=options.max_retries,
        )
        status = step.run()
    return _end_as_srun(status)


class _StepSaves:
    """Verifies and copies saves of a step in the background, on the node of the batch script."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._processes: list[SaveWatches] | None = None

    def advance(self, folder: Path) -> None:
        """See ``WatchSaves``."""
        now = datetime.now(UTC)
        if self._processes is None:
            self._processes = list(self._requested(now))
        for one in self._processes:
            one.advance([folder], now)

    def _requested(self, now: datetime) -> "Iterator[SaveWatches]":
        from holdfast.apps.launch.checkpoint_watch import (  # noqa: PLC0415 - see above
            is_watch_enabled,
            start_mirror,
        )
        from holdfast.apps.run.save_watches import SaveWatches  # noqa: PLC0415 - see above

        if is_watch_enabled(self._environment):
            yield SaveWatches(None, now)
        if location := self._environment.get(CHECKPOINT_MIRROR_VARIABLE, ""):

            def start(folder: str, log: "IO[bytes] | None") -> "subprocess.Popen[bytes]":
                return start_mirror(folder, location, log)

            yield SaveWatches(None, now, start, is_restarted=True)

    def close(self) -> None:
        """End the processes."""
        for one in self._processes or ():
            one.close()


def _prepare(
    job: str,
    environment: Mapping[str, str],
    folder: Path,
    attempt: int | None,
    ended: AttemptRecord | None,
) -> PreparedCheckpoints:
    """See ``PrepareCheckpoints``."""
    from holdfast.apps.run.checkpoints import prepare_step  # noqa: PLC0415 - every step waits for the start of this process

    found = prepare_step(folder, environment, job, attempt, ended)
    return PreparedCheckpoints(found.lines, found.step)


def _options(argv: Sequence[str]) -> argparse.Namespace:
    try:
        return command_line_parser().parse_args(list(argv))
    except SystemExit as error:
        srun = list(argv)[list(argv).index("--") + 1 :] if "--" in argv else []
        if error.code and srun:  # an error in plugstack.conf would end every supervised job
            sys.stderr.write("holdfast: invalid options; this step runs without auto-resume\n")
            sys.stderr.flush()
            environment = {**os.environ, SUPERVISED: os.environ.get("SLURM_JOB_ID", "")}
            os.execvpe(srun[0], srun, environment)  # noqa: S606 - an argument list
        raise


def _set_auto_resume(job: str, value: str) -> int:
    """Write auto-resume into the Comment of the job."""
    OwnJob(job, COMMAND).set_auto_resume(value)
    return 0


def _end_as_srun(status: int) -> int:
    """Return the exit code of srun; or end by the signal that ended srun."""
    if status >= 0:
        return status
    signal.signal(-status, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [-status])
    os.kill(os.getpid(), -status)
    return 128 - status


def command_line_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="holdfast slurm supervise", description=_DESCRIPTION, epilog=_EPILOG
    )
    timeouts = RestartTimeouts()
    times: Mapping[str, tuple[timedelta, str]] = {
        "--grace": (timeouts.grace, "time to wait for the report of a node fault"),
        "--fence": (timeouts.fence, "time before a relaunch while a node does not respond"),
        "--swap-timeout": (timeouts.swap, "time to wait for the same nodes to come back"),
        "--requeue-timeout": (timeouts.requeue, "time to wait for a requeue by the controller"),
        "--poll": (timedelta(seconds=2), "interval of checks of the nodes, except in mode requeue"),
    }
    for name, (default, text) in times.items():
        about = f"{text} (default: {format_duration(default)})"
        parser.add_argument(name, type=_duration, default=default, metavar="DURATION", help=about)
    parser.add_argument(
        "--max-retries", type=int, default=MAX_RETRIES, metavar="N",
        help="maximum restarts of a job without max-retry in its Comment; the controller's"
        " slurm.max_retries (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--set-auto-resume",
        dest="auto_resume",
        choices=("0", "1"),
        help="write auto-resume to the Comment of the job and exit",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- srun ...")
    return parser


def _duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
