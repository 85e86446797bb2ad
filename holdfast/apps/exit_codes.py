"""How every ``holdfast`` process ends, for scripts to act on.

``holdfast nodes shell``, ``slurm supervise`` and ``checkpoint guard`` end with the exit code of the
command that they run; ``holdfast launch`` with that of a rank that requests no restart, such as 93.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """The status with which a process ends."""

    OK = 0
    """Success: the command did what it was run for; a job succeeded."""

    FAILED = 1
    """Failure: for example, a job failed, a file could not be read, or a node was not found."""

    BAD_INPUT = 2
    """Invalid command, option or configuration file, or an output path that cannot be written.
    Nothing was started or changed. Shells and click use 2 for it, too."""

    PARTLY_DONE = 3
    """Partial success: some of several actions failed; standard error names them."""

    STARTS_OVER = 4
    """``holdfast checkpoint verify``: the only checkpoint is an interrupted first save, so the job
    starts from the beginning. 0: a complete checkpoint will be loaded, or none exists yet; 1: an
    operator must decide."""

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
