"""How every ``holdfast`` process ends, for scripts to act on.

``holdfast nodes shell``, ``slurm supervise`` and ``checkpoint guard`` end with the exit code of the
command that they run; ``holdfast launch`` with that of a rank that requests no restart, such as 93.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """The status with which a process ends."""

    OK = 0
    """What was asked for was done; a job succeeded."""

    FAILED = 1
    """It was tried and did not work: a job failed, a file could not be read, a node is unknown."""

    BAD_INPUT = 2
    """The command, its options, a configuration file or the place to write to cannot be used.
    Nothing was begun, nothing is left behind. 2 is what shells and click use for it."""

    PARTLY_DONE = 3
    """Some of several things were done, others were not; standard error names them."""

    STARTS_OVER = 4
    """``holdfast checkpoint verify``: only a first save is there, which was cut off, so the job
    starts from the beginning. A complete checkpoint, or none at all yet, is 0; 1 asks for a person.
    """

    NEEDS_ATTENTION = 5
    """``holdfast status``: something needs attention; see its output."""

    RESTART_JOB = 75
    """``holdfast launch``: restarts in place are exhausted; the platform should restart the job.
    ``EX_TEMPFAIL`` in ``sysexits.h``; Slurm requeues with ``RequeueExit=75``."""

    INTERNAL_ERROR = 70
    """A bug in Holdfast. ``EX_SOFTWARE`` in ``sysexits.h``."""

    INTERRUPTED = 130
    """Ended by Ctrl-C: 128 + SIGINT (2), as shells count."""

    TERMINATED = 143
    """Ended by SIGTERM: 128 + SIGTERM (15), as shells count."""
