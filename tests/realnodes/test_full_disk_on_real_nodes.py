"""DDP jobs whose checkpoints fill their disk: they end with the cause, and resume with space."""

from collections.abc import Mapping

import pytest
from full_disk import Submit, causes, delete, resume, until_failed
from operator_jobs import OTHER_KINDS, SOME_KINDS, OperatorJob
from phases import Phases
from site_of_nodes import Site
from small_disk import SmallDisk

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("operators")]


def found_causes(jobs: list[OperatorJob]) -> dict[str, list[str]]:
    """Causes of the attempts of each kind, of which the last one says what to do."""
    for job in jobs:
        assert "(DiskFull): free space, or raise the quota, then resubmit" in job.record["reason"]
    return {job.kind: causes(job) for job in jobs}


def test_jobs_whose_rank_0_fills_the_disk_end_and_resume_when_there_is_space(
    site: Site,
    disk: SmallDisk,
    submit: Submit,
    digests: Mapping[str, str],
    phases: Phases,
) -> None:
    jobs = submit(SOME_KINDS, "torch")
    until_failed(site, disk, jobs, phases)
    assert found_causes(jobs) == {job.kind: ["DiskFull"] * 2 for job in jobs}
    for job in jobs:
        phases.record("full-disk", job, phase="failed")
    delete(site, jobs)
    disk.free()
    resume(jobs, submit(SOME_KINDS, "torch"), digests)


def test_jobs_whose_ranks_all_fill_the_disk_end_and_resume_when_there_is_space(
    site: Site,
    disk: SmallDisk,
    submit: Submit,
    digests: Mapping[str, str],
    phases: Phases,
) -> None:
    jobs = submit(OTHER_KINDS, "dcp")
    until_failed(site, disk, jobs, phases)
    for attempts in found_causes(jobs).values():  # a second one if the ranks took seconds to end
        assert attempts in (["DiskFull"], ["DiskFull"] * 2)
    delete(site, jobs)
    disk.free()
    resume(jobs, submit(OTHER_KINDS, "dcp"), digests)
