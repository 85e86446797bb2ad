"""``holdfast slurm supervise -- srun ...``: one step of a job, again after a fault of a node.

Runs in the job, as its owner, in place of srun: with its input, its output and its exit code. It
imports the standard library alone, as every step waits for it.
"""

import argparse
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from holdfast.adapters.slurm.jobs.own_job import OwnJob
from holdfast.adapters.slurm.jobs.supervision import Limits
from holdfast.apps.slurm.step import COMMAND, MAX_RETRIES, SupervisedStep
from holdfast.kit.units import parse_duration

_DESCRIPTION: Final = (
    "Run a step of a job, and run it again after a fault of a node. It takes the place of srun, "
    "with its input, its output and its exit code; srun --auto-resume=1 calls it by itself."
)

SUPERVISED: Final = "HOLDFAST_SUPERVISED"
"""The job whose srun has a supervisor: the SPANK plugin starts no other."""


def main(argv: Sequence[str]) -> int:
    """Run the step. Returns how srun ended, as a shell counts it."""
    options = _options(argv)
    job = os.environ.get("SLURM_JOB_ID", "")
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if options.wish is not None:
        return _keep(job, wish=options.wish)
    if not command:
        command_line_parser().error("which srun? Put its command line after --")
    if not job.isdecimal() or os.environ.get(SUPERVISED) == job:
        os.execvp(command[0], command)  # noqa: S606 - an argument list
    step = SupervisedStep(
        job=job,
        srun=command,
        environment={**os.environ, SUPERVISED: job},
        limits=Limits(
            grace=options.grace,
            fence=options.fence,
            swap=options.swap_timeout,
            requeue=options.requeue_timeout,
        ),
        poll=options.poll,
        max_retries=options.max_retries,
    )
    return _ended_alike(step.run())


def _options(argv: Sequence[str]) -> argparse.Namespace:
    try:
        return command_line_parser().parse_args(list(argv))
    except SystemExit as error:
        srun = list(argv)[list(argv).index("--") + 1 :] if "--" in argv else []
        if error.code and srun:  # a slip in plugstack.conf would end every job that is supervised
            sys.stderr.write("holdfast: without these options, this step is not resumed\n")
            sys.stderr.flush()
            environment = {**os.environ, SUPERVISED: os.environ.get("SLURM_JOB_ID", "")}
            os.execvpe(srun[0], srun, environment)  # noqa: S606 - an argument list
        raise


def _keep(job: str, *, wish: str) -> int:
    """Write the wish into the comment of the job."""
    OwnJob(job, COMMAND).set_wish(wish)
    return 0


def _ended_alike(status: int) -> int:
    """Our exit code; or the signal that ended srun ends us."""
    if status >= 0:
        return status
    signal.signal(-status, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [-status])
    os.kill(os.getpid(), -status)
    return 128 - status


def command_line_parser() -> argparse.ArgumentParser:
    """The options of the process."""
    parser = argparse.ArgumentParser(prog="holdfast slurm supervise", description=_DESCRIPTION)
    limits = Limits()
    times: Mapping[str, tuple[timedelta, str]] = {
        "--grace": (limits.grace, "wait so long for a fault of a node to be known"),
        "--fence": (limits.fence, "run nothing anew before, while a node does not answer"),
        "--swap-timeout": (limits.swap, "wait so long for the same nodes to be back"),
        "--requeue-timeout": (limits.requeue, "let the controller requeue the job until then"),
        "--poll": (timedelta(seconds=2), "look at the nodes so often, in the modes step and swap"),
    }
    for name, (default, text) in times.items():
        parser.add_argument(name, type=_duration, default=default, metavar="TIME", help=text)
    parser.add_argument(
        "--max-retries", type=int, default=MAX_RETRIES, metavar="N",
        help="maximum restarts of a job without max-retry (the controller's slurm.max_retries)",
    )  # fmt: skip
    parser.add_argument("--wish", choices=("0", "1"), help="write it to the job's Comment only")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- srun ...")
    return parser


def _duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
