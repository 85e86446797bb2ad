"""Jobs that save checkpoints on a disk that gets full: they end, and resume with space."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Protocol

from operator_jobs import OperatorJob, Saves
from phases import Phases
from site_of_nodes import INCIDENTS, Site
from small_disk import SmallDisk
from training_job import finish

from tests.engines.api_connection import Refused

SIZE = 1 << 30
"""Bytes of the disk, of which few are ever written: what a test's jobs save in an hour fits."""

_numbers = count(1)
"""Of the names of jobs: no two share a folder."""


class Submit(Protocol):
    """Submits a job of each kind, which saves to a directory of its kind."""

    def __call__(self, kinds: Sequence[type[OperatorJob]], how: str) -> list[OperatorJob]: ...


@contextmanager
def submitting(site: Site, disk: SmallDisk) -> Iterator[Submit]:
    """Deletes the jobs in the end."""
    made: list[OperatorJob] = []

    def submit(kinds: Sequence[type[OperatorJob]], how: str) -> list[OperatorJob]:
        found = []
        for kind in kinds:
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


def until_failed(site: Site, disk: SmallDisk, jobs: list[OperatorJob], phases: Phases) -> None:
    """Fill the disk while all train, until all have failed. No node is touched."""
    for job in jobs:
        job.until_training(1, steps=15)
    before = _incidents(site)
    phases.begin()
    disk.fill()
    phases.reach("failed", lambda: all(job.record["phase"] == "failed" for job in jobs))
    assert phases.orders == []
    assert len(site.in_service()) == 4
    assert _incidents(site) == before


def causes(job: OperatorJob) -> list[str]:
    """The causes of its attempts."""
    failures = [one["failure"] for one in job.record["attempts"]]
    return [one["cause"] if one is not None else "" for one in failures]


def resume(before: list[OperatorJob], jobs: list[OperatorJob], digests: Mapping[str, str]) -> None:
    """Each resumes from the last save that had no error, and trains the same weights."""
    for job, last in zip(jobs, map(_acknowledged, before), strict=True):
        job.until_training(1, steps=last + 15)
        assert _resumed(job) == {last}
    finish(*jobs)
    for job in jobs:
        [(step, digest)] = job.digests.items()
        assert digest == digests[step], job.kind


def _acknowledged(job: OperatorJob) -> int:
    """The last step that was saved without an error."""
    return int((job.folder / "acknowledged-0").read_text("utf-8"))


def _resumed(job: OperatorJob) -> set[int]:
    """Steps of the checkpoints that the ranks have loaded, complete or not."""
    names = {path.read_text("utf-8") for path in job.folder.glob("resumed-1-*")}
    return {int(name.removeprefix("step-").removesuffix(".pt")) for name in names}


def _incidents(site: Site) -> set[str]:
    return {
        one["metadata"]["name"] for one in site.cluster.plane.request("GET", INCIDENTS)["items"]
    }
