"""The state of jobs and nodes is read anew after each change that Holdfast has made."""

import threading
from collections.abc import Callable
from pathlib import Path

from holdfast.adapters.slurm.commands.job_text import BatchJob
from holdfast.adapters.slurm.commands.jobs import JobCommands
from holdfast.adapters.slurm.commands.node_text import NodeFacts, parse_nodes
from holdfast.adapters.slurm.jobs.watch import JobWatch
from holdfast.adapters.slurm.nodes.watch import NodeWatch
from holdfast.adapters.slurm.settings import SlurmSettings
from holdfast.apps.clock import SystemClock


class SlowSlurm(JobCommands):
    """Its calls wait until they are let go."""

    def __init__(self) -> None:
        self.calls = 0
        self.has_begun = threading.Event()
        self.goes_on = threading.Event()

    def batch_jobs(self) -> dict[str, BatchJob]:
        self._wait()
        return {}

    def nodes(self, *names: str) -> dict[str, NodeFacts]:
        self._wait()
        return parse_nodes("NodeName=node1 State=IDLE")

    def _wait(self) -> None:
        self.calls += 1
        self.has_begun.set()
        assert self.goes_on.wait(60)


def change_during(read: Callable[[], object], slurm: SlowSlurm, change: Callable[[], None]) -> None:
    """Change something while a read waits for Slurm."""
    poll = threading.Thread(target=read)
    poll.start()
    assert slurm.has_begun.wait(60)
    change()
    slurm.goes_on.set()
    poll.join()


def test_a_read_of_jobs_that_began_before_a_change_does_not_hide_it() -> None:
    slurm = SlowSlurm()
    watch = JobWatch(slurm, lambda _: None, lambda _: (), lambda: None)
    change_during(watch.read, slurm, watch.invalidate)

    watch.read()

    assert slurm.calls == 2


def test_a_read_of_nodes_that_began_before_a_change_does_not_hide_it(tmp_path: Path) -> None:
    slurm = SlowSlurm()
    watch = NodeWatch(slurm, SlurmSettings(report_dir=tmp_path), SystemClock(), lambda: None)
    change_during(watch.read, slurm, watch.invalidate)

    assert watch.cached("node1") is None
    assert watch.facts()["node1"].is_idle
    assert slurm.calls == 2
    assert watch.cached("node1") == watch.facts()["node1"]
    assert slurm.calls == 2
