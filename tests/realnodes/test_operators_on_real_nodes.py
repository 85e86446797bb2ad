"""DDP jobs of every kind under their real operators: they resume, and train the same weights."""

from collections.abc import Iterator, Mapping

import pytest
from disturbed_jobs import Jobs, submitted
from operator_jobs import KINDS
from phases import Phases
from site_of_nodes import REPLACE_XID, Site

from tests.engines.real_node import RealNode

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
    jobs.lose_a_node(phases, "xid-replace", lambda node: node.log(REPLACE_XID))


def test_jobs_resume_after_one_rank_of_each_was_killed(jobs: Jobs, phases: Phases) -> None:
    jobs.lose_a_rank(phases, "killed-process", lambda job: job.kill(1))


def test_jobs_resume_after_one_rank_of_each_was_oom_killed(jobs: Jobs, phases: Phases) -> None:
    jobs.lose_a_rank(phases, "oom", lambda job: (job.folder / "eats-1-1").touch())


def test_jobs_leave_a_node_that_lost_its_power(jobs: Jobs, phases: Phases) -> None:
    jobs.lose_a_node(phases, "power-loss", RealNode.power_off)


def test_jobs_leave_a_node_that_lost_its_network(jobs: Jobs, phases: Phases, site: Site) -> None:
    jobs.lose_a_node(phases, "partition", site.cluster.network.cut)
