"""DDP jobs whose checkpoints fill their disk: they end with the cause, and resume with space."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from operator_jobs import KINDS, OperatorJob, Saves
from phases import Phases
from site_of_nodes import INCIDENTS, Site
from small_disk import SmallDisk
from training_job import finish

from tests.engines.api_connection import Refused

pytestmark = pytest.mark.torch

_numbers = count(1)
"""Of the names of jobs: no two share a folder."""

Submit = Callable[[str], list[OperatorJob]]

SIZE = 1 << 30
"""Bytes of the disk, of which few are ever written: what a test's jobs save in an hour fits."""


@pytest.fixture
def disk(operators: None, site: Site, tmp_path: Path) -> Iterator[SmallDisk]:
    if not Path("/dev/loop-control").exists():
        pytest.skip("a file system in a file needs loop devices: modprobe loop")
    with SmallDisk(site.cluster, tmp_path, SIZE) as disk:
        yield disk


@pytest.fixture
def submit(site: Site, disk: SmallDisk) -> Iterator[Submit]:
    """Submits a job of each kind, which saves to a directory of its kind; deletes them."""
    made: list[OperatorJob] = []

    def submit(how: str) -> list[OperatorJob]:
        found = []
        for kind in KINDS:
            job = kind(site, f"{kind.kind.lower()}-full-{next(_numbers)}", ranks=2)
            job.saves = Saves(disk.folder, kind.kind.lower(), how)
            folder = disk.path / job.saves.name
            folder.mkdir(exist_ok=True)
            folder.chmod(0o777)
            job.submit()
            found.append(job)
        made.extend(found)
        return found

    yield submit
    delete(site, made)


def delete(site: Site, jobs: list[OperatorJob]) -> None:
    for job in jobs:
        with suppress(Refused):  # it is deleted already
            job.delete()
    site.until(lambda: not any(job.pods for job in jobs), "the pods to go")


def acknowledged(job: OperatorJob) -> int:
    """The last step that was saved without an error."""
    return int((job.folder / "acknowledged-0").read_text("utf-8"))


def resumed(job: OperatorJob) -> set[int]:
    """Steps of the checkpoints that the ranks have loaded, complete or not."""
    names = {path.read_text("utf-8") for path in job.folder.glob("resumed-1-*")}
    return {int(name.removeprefix("step-").removesuffix(".pt")) for name in names}


def incidents(site: Site) -> set[str]:
    return {
        one["metadata"]["name"] for one in site.cluster.plane.request("GET", INCIDENTS)["items"]
    }


def until_failed(
    site: Site, disk: SmallDisk, jobs: list[OperatorJob], phases: Phases
) -> dict[str, list[str]]:
    """Fill the disk; returns the causes of the attempts of each kind. No node is touched."""
    for job in jobs:
        job.until_training(1, steps=15)
    before = incidents(site)
    phases.begin()
    disk.fill()
    phases.reach("failed", lambda: all(job.record["phase"] == "failed" for job in jobs))
    for job in jobs:
        assert "(DiskFull): free space, or raise the quota, then resubmit" in job.record["reason"]
    assert phases.orders == []
    assert len(site.in_service()) == 4
    assert incidents(site) == before
    return {job.kind: causes(job) for job in jobs}


def causes(job: OperatorJob) -> list[str]:
    failures = [one["failure"] for one in job.record["attempts"]]
    return [one["cause"] if one is not None else "" for one in failures]


def resume(
    site: Site,
    before: list[OperatorJob],
    jobs: list[OperatorJob],
    digests: Mapping[str, str],
) -> None:
    """Each resumes from the last save that had no error, and trains the same weights."""
    for job, last in zip(jobs, map(acknowledged, before), strict=True):
        job.until_training(1, steps=last + 15)
        assert resumed(job) == {last}
    finish(*jobs)
    for job in jobs:
        [(step, digest)] = job.digests.items()
        assert digest == digests[step], job.kind


def test_jobs_whose_rank_0_fills_the_disk_end_and_resume_when_there_is_space(
    site: Site,
    disk: SmallDisk,
    submit: Submit,
    digests: Mapping[str, str],
    phases: Phases,
) -> None:
    jobs = submit("torch")
    found = until_failed(site, disk, jobs, phases)
    assert found == {job.kind: ["DiskFull"] * 2 for job in jobs}
    for job in jobs:
        phases.record("full-disk", job, phase="failed")
    delete(site, jobs)
    disk.free()
    resume(site, jobs, submit("torch"), digests)


def test_jobs_whose_ranks_all_fill_the_disk_end_and_resume_when_there_is_space(
    site: Site,
    disk: SmallDisk,
    submit: Submit,
    digests: Mapping[str, str],
    phases: Phases,
) -> None:
    jobs = submit("dcp")
    found = until_failed(site, disk, jobs, phases)
    for attempts in found.values():  # a second one if the ranks took seconds to end
        assert attempts in (["DiskFull"], ["DiskFull"] * 2)
    delete(site, jobs)
    disk.free()
    resume(site, jobs, submit("dcp"), digests)
