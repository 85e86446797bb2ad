"""DDP jobs of every kind under their real operators: they resume, and train the same weights."""

from collections.abc import Iterator, Mapping, Sequence

import pytest
from disturbed_jobs import Jobs, submitted
from operator_jobs import KINDS, OTHER_KINDS, SOME_KINDS, OperatorJob
from phases import Phases
from site_of_nodes import REPLACE_XID, Site

from tests.engines.real_node import RealNode

pytestmark = pytest.mark.torch

all_kinds = pytest.mark.parametrize("kinds", [KINDS], ids=["all"])
some_kinds = pytest.mark.parametrize("kinds", [SOME_KINDS], ids=["some"])
other_kinds = pytest.mark.parametrize("kinds", [OTHER_KINDS], ids=["others"])


@pytest.fixture
def jobs(
    operators: None,
    site: Site,
    digests: Mapping[str, str],
    kinds: Sequence[type[OperatorJob]],
) -> Iterator[Jobs]:
    """A job of each of the kinds."""
    with submitted(site, digests, kinds) as jobs:
        yield jobs


@all_kinds
def test_jobs_leave_a_node_with_an_xid(jobs: Jobs, phases: Phases) -> None:
    jobs.lose_a_node(phases, "xid-replace", lambda node: node.log(REPLACE_XID))


@some_kinds
def test_jobs_resume_after_one_rank_of_each_was_killed(jobs: Jobs, phases: Phases) -> None:
    jobs.lose_a_rank(phases, "killed-process", lambda job: job.kill(1))


@other_kinds
def test_jobs_resume_after_one_rank_of_each_was_oom_killed(jobs: Jobs, phases: Phases) -> None:
    jobs.lose_a_rank(phases, "oom", lambda job: (job.folder / "eats-1-1").touch())


@other_kinds
def test_jobs_leave_a_node_that_lost_its_power(jobs: Jobs, phases: Phases) -> None:
    jobs.lose_a_node(phases, "power-loss", RealNode.power_off)


@some_kinds
def test_jobs_leave_a_node_that_lost_its_network(jobs: Jobs, phases: Phases, site: Site) -> None:
    jobs.lose_a_node(phases, "partition", site.cluster.network.cut)
