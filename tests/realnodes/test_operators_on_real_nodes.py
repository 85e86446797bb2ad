"""DDP jobs of every kind under their real operators: they resume, and train the same weights."""

from collections.abc import Iterator, Mapping

import pytest
from disturbed_jobs import Jobs, submitted
from operator_jobs import KINDS
from phases import Phases
from site_of_nodes import REPLACE_XID, Site

pytestmark = pytest.mark.torch


@pytest.fixture
def jobs(
    operators: None,
    site: Site,
    digests: Mapping[str, str],
) -> Iterator[Jobs]:
    """A job of each kind."""
    with submitted(site, digests, KINDS) as jobs:
        yield jobs


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
