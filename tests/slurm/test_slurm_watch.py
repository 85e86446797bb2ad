"""The state of jobs is read anew after each change that Holdfast has made."""

import threading

from holdfast.adapters.slurm.commands.job_text import BatchJob
from holdfast.adapters.slurm.commands.jobs import JobCommands
from holdfast.adapters.slurm.jobs.watch import JobWatch


class SlowSlurm(JobCommands):
    """Its calls wait until they are let go."""

    def __init__(self) -> None:
        self.calls = 0
        self.has_begun = threading.Event()
        self.goes_on = threading.Event()

    def batch_jobs(self) -> dict[str, BatchJob]:
        self.calls += 1
        self.has_begun.set()
        assert self.goes_on.wait(60)
        return {}


def test_a_call_that_began_before_a_change_does_not_hide_it() -> None:
    slurm = SlowSlurm()
    watch = JobWatch(slurm, lambda _: None, lambda _: (), lambda: None)
    poll = threading.Thread(target=watch.read)
    poll.start()
    assert slurm.has_begun.wait(60)

    watch.invalidate()  # a job was let go while squeue ran
    slurm.goes_on.set()
    poll.join()
    watch.read()

    assert slurm.calls == 2
