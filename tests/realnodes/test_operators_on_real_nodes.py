"""DDP jobs of every kind under their real operators: they resume, and train the same weights."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count

import pytest
from leaders import until_led
from operator_jobs import KINDS, OperatorJob
from phases import Phases
from site_of_nodes import REPLACE_XID, Site
from training_job import finish

pytestmark = pytest.mark.torch

_numbers = count(1)
"""Of the names of jobs: no two tests share a folder."""


@dataclass
class Jobs:
    """A job of each kind, with a rank of each on one node."""

    site: Site
    undisturbed: Mapping[str, str]
    made: list[OperatorJob]
    victim: str

    def begin(self, phases: Phases) -> None:
        """All train; the fault happens now."""
        for job in self.made:
            job.until_training(1, steps=5)
            assert self.victim in job.places.values()
        phases.begin()

    def until_resumed(self, phases: Phases) -> None:
        """All ranks train in their second attempt, on other nodes if theirs was bad."""

        def are_resumed() -> bool:
            return all(len(job.steps(2)) == job.ranks for job in self.made)

        phases.reach("resumed", are_resumed)

    def until_replaced(self, phases: Phases) -> None:
        """Another machine has taken the place of the node."""
        phases.reach("ordered", lambda: phases.orders)
        self.until_resumed(phases)
        nodes = self.site.cluster.nodes
        phases.reach(
            "joined", lambda: self.victim not in nodes and len(self.site.in_service()) == 4
        )
        assert phases.orders == [("replace", self.victim)]

    def finish(self, phases: Phases, fault: str) -> None:
        """Each ends with the weights of a run that nothing disturbed."""
        for job in self.made:
            phases.record(fault, job)
        finish(*self.made)
        for job in self.made:
            [(step, digest)] = job.digests.items()
            assert digest == self.undisturbed[step], job.kind


@pytest.fixture
def jobs(
    operators: None,
    site: Site,
    digests: Mapping[str, str],
) -> Iterator[Jobs]:
    """Jobs that begin to train; the leader of Holdfast runs elsewhere."""
    victim = min(set(site.in_service()) - {until_led(site)["node"]})
    number = next(_numbers)
    made = [kind(site, f"{kind.kind.lower()}-{number}", ranks=2) for kind in KINDS]
    for job in made:
        job.submit(near=victim)
    yield Jobs(site, digests, made, victim)
    for job in made:
        job.delete()


def test_jobs_leave_a_node_with_an_xid(jobs: Jobs, phases: Phases) -> None:
    jobs.begin(phases)
    jobs.site.cluster.nodes[jobs.victim].log(REPLACE_XID)

    jobs.until_replaced(phases)

    jobs.finish(phases, "xid-replace")


def test_jobs_resume_after_one_rank_of_each_was_killed(jobs: Jobs, phases: Phases) -> None:
    jobs.begin(phases)
    for job in jobs.made:
        job.kill(1)

    jobs.until_resumed(phases)

    assert phases.orders == []
    jobs.finish(phases, "killed-process")


def test_jobs_resume_after_one_rank_of_each_was_oom_killed(jobs: Jobs, phases: Phases) -> None:
    jobs.begin(phases)
    for job in jobs.made:
        (job.folder / "eats-1-1").touch()

    jobs.until_resumed(phases)

    assert phases.orders == []
    jobs.finish(phases, "oom")


def test_jobs_leave_a_node_that_lost_its_power(jobs: Jobs, phases: Phases) -> None:
    jobs.begin(phases)
    jobs.site.cluster.nodes[jobs.victim].power_off()

    jobs.until_replaced(phases)

    jobs.finish(phases, "power-loss")


def test_jobs_leave_a_node_that_lost_its_network(jobs: Jobs, phases: Phases) -> None:
    jobs.begin(phases)
    jobs.site.cluster.network.cut(jobs.site.cluster.nodes[jobs.victim])

    jobs.until_replaced(phases)

    jobs.finish(phases, "partition")
