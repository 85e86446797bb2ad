"""Too many threads, zombies that nobody buries, processes that are stuck in the kernel."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from holdfast.detectors.contract import Detector, Profile, Sample
from holdfast.detectors.host_findings import host_finding
from holdfast.detectors.judgement import Judgement, counter, state_detector, undecided, whole
from holdfast.model.health import Finding
from holdfast.model.names import Reason

FAMILY: Final = "processes-state"

MOST_PERCENT: Final = 70
"""Of the threads that the kernel allows, as the EKS node monitoring agent has it."""

MOST_ZOMBIES: Final = 20
"""As the EKS node monitoring agent has it."""


def build(_profile: Profile) -> Detector:
    """The detector; all profiles agree on it."""
    return state_detector(
        "process-state", _judge, reads="processes", settles={FAMILY}, every=timedelta(minutes=5)
    )


def _judge(sample: Sample) -> Judgement:
    threads, limit, zombies = (
        counter(sample.values.get(name)) for name in ("threads", "limit", "zombies")
    )
    if threads is None or limit is None or zombies is None:
        return undecided("the number of threads is not known")
    return whole(_findings(sample, threads, limit, zombies))


def _findings(sample: Sample, threads: int, limit: int, zombies: int) -> Iterator[Finding]:
    if 100 * threads > MOST_PERCENT * limit:
        why = f"{threads} threads run, the kernel allows {limit}"
        yield host_finding(sample, FAMILY, Reason.PIDS_EXHAUSTED, why)
    if zombies > MOST_ZOMBIES:
        why = f"{zombies} processes have ended and are not waited for by their parents"
        yield host_finding(sample, FAMILY, Reason.ZOMBIES, why)
    if stuck := _stuck(sample):
        names = ", ".join(f"{name} ({pid})" for pid, _, _, name in stuck)
        why = f"waiting in the kernel since the last look, and not to be interrupted: {names}"
        yield host_finding(sample, FAMILY, Reason.PROCESSES_STUCK, why)


def _stuck(sample: Sample) -> list[list[str]]:
    """The processes that were blocked at the last look, too, and did not run in between."""
    before = set(sample.before.get("blocked", "").split())
    blocked = (one for one in sample.values.get("blocked", "").split() if one in before)
    return [parts for one in blocked if len(parts := one.split(":", 3)) == 4]
