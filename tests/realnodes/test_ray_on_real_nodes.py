"""DDP jobs in clusters of Ray under the real KubeRay: they resume, and train the same weights."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from disturbed_jobs import Jobs, submitted
from full_disk import Submit, causes, delete, resume, until_failed
from phases import Phases
from ray_jobs import RayCluster, RayJob
from site_of_nodes import REPLACE_XID, Site
from small_disk import SmallDisk

from tests.effort import is_quick
from tests.engines.control_plane import Built
from tests.engines.job_operators import RAY_OPERATOR, run_ray_operator
from tests.engines.real_node import RealNode

pytestmark = pytest.mark.torch

KINDS = (RayCluster, RayJob)


@pytest.fixture(scope="module")
def ray_operator(whole_site: Site, built: Built, node_programs: dict[str, Path]) -> None:
    """Clusters and jobs of Ray run from now on; the operator reaches them by the API server."""
    binaries = {**node_programs, **built(RAY_OPERATOR)}
    run_ray_operator(whole_site.cluster.plane, binaries, {}, "--use-kubernetes-proxy")


@pytest.fixture
def jobs(ray_operator: None, site: Site, digests: Mapping[str, str]) -> Iterator[Jobs]:
    """A job of each kind."""
    with submitted(site, digests, KINDS) as jobs:
        yield jobs


def test_ray_jobs_leave_a_node_with_an_xid(jobs: Jobs, phases: Phases) -> None:
    jobs.lose_a_node(phases, "xid-replace", lambda node: node.log(REPLACE_XID))


if not is_quick():  # each starts both jobs twice: 100 s of a processor

    def test_ray_jobs_resume_after_one_rank_of_each_was_killed(jobs: Jobs, phases: Phases) -> None:
        jobs.lose_a_rank(phases, "killed-process", lambda job: job.kill(1))

    def test_ray_jobs_resume_after_one_rank_of_each_was_oom_killed(
        jobs: Jobs, phases: Phases
    ) -> None:
        jobs.lose_a_rank(phases, "oom", lambda job: (job.folder / "eats-1-1").touch())

    def test_ray_jobs_leave_a_node_that_lost_its_power(jobs: Jobs, phases: Phases) -> None:
        jobs.lose_a_node(phases, "power-loss", RealNode.power_off)

    def test_ray_jobs_leave_a_node_that_lost_its_network(
        jobs: Jobs, phases: Phases, site: Site
    ) -> None:
        jobs.lose_a_node(phases, "partition", site.cluster.network.cut)

    def test_ray_jobs_whose_rank_0_fills_the_disk_end_and_resume_when_there_is_space(
        ray_operator: None,
        site: Site,
        disk: SmallDisk,
        submit: Submit,
        digests: Mapping[str, str],
        phases: Phases,
    ) -> None:
        jobs = submit(KINDS, "torch")
        until_failed(site, disk, jobs, phases)
        for job in jobs:
            assert "(DiskFull)" in job.record["reason"], job.kind
            phases.record("full-disk", job, phase="failed")
        [cluster, _] = jobs
        assert causes(cluster) == ["DiskFull"] * 2
        delete(site, jobs)
        disk.free()
        resume(jobs, submit(KINDS, "torch"), digests)
