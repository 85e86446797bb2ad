"""Processes of the host: too many threads or zombies, and processes stuck in the kernel."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Final

from holdfast.detectors.contract import Detector, Profile, Sample
from holdfast.detectors.judgement import (
    Judgement,
    counter,
    host_finding,
    state_detector,
    undecided,
    whole,
)
from holdfast.detectors.state_reasons import deferred, note
from holdfast.model.health import Finding, Remedy, Urgency
from holdfast.model.names import Reason

FAMILY: Final = "processes-state"
EVERY: Final = timedelta(minutes=5)

MOST_PERCENT: Final = 70
"""Maximum share of the threads that the kernel allows, as in the EKS node monitoring agent."""

MOST_ZOMBIES: Final = 20
"""Maximum number of zombies, as in the EKS node monitoring agent."""

# fmt: off
STATE_REASONS: Final = (
    note(FAMILY, Reason.PIDS_EXHAUSTED, "`/proc`: more than 70 % of the threads that the kernel "
        "allows; EKS node monitoring agent"),
    note(FAMILY, Reason.ZOMBIES, "`/proc`: more than 20; EKS node monitoring agent"),
    note(FAMILY, Reason.PROCESSES_STUCK, "`/proc`: blocked in two samples, not run in between; "
        "gpud"),
    # Users can cause it, for example with a file system of their own, so that no repair follows:
    # it is a suspect that nothing corroborates, and leads to a deep health check.
    deferred(FAMILY, Reason.PROCESSES_UNKILLABLE, Remedy.REBOOT, "`/proc`: the same, with SIGKILL "
        "pending in both samples; makes the node suspect, never repaired for it alone"),
)
# fmt: on


def build(_profile: Profile) -> Detector:
    """Return the detector; all profiles agree on it."""
    return state_detector(
        "process-state", _judge, STATE_REASONS, reads="processes", settles={FAMILY}, every=EVERY
    )


def _judge(sample: Sample) -> Judgement:
    threads, limit, zombies = (
        counter(sample.values.get(name)) for name in ("threads", "limit", "zombies")
    )
    if threads is None or limit is None or zombies is None:
        return undecided("the number of threads is unknown")
    return whole(_findings(sample, threads, limit, zombies))


def _findings(sample: Sample, threads: int, limit: int, zombies: int) -> Iterator[Finding]:
    if 100 * threads > MOST_PERCENT * limit:
        why = f"{threads} threads exist, the kernel allows {limit}"
        yield host_finding(sample, FAMILY, Reason.PIDS_EXHAUSTED, why)
    if zombies > MOST_ZOMBIES:
        why = f"{zombies} zombie processes"
        yield host_finding(sample, FAMILY, Reason.ZOMBIES, why)
    stuck = _stuck(sample)
    killed = {*sample.values.get("killed", "").split()} & {*sample.before.get("killed", "").split()}
    if unkillable := [one for one in stuck if f"{one[0]}:{one[1]}" in killed]:
        names = ", ".join(f"{name} ({pid})" for pid, _, _, name in unkillable)
        why = (
            f"in uninterruptible sleep since the last sample, and SIGKILL does not end it: {names}"
        )
        found = host_finding(sample, FAMILY, Reason.PROCESSES_UNKILLABLE, why, remedy=Remedy.REBOOT)
        yield replace(found, urgency=Urgency.DEFERRED, corroborated_within=EVERY)
    if stuck:
        names = ", ".join(f"{name} ({pid})" for pid, _, _, name in stuck)
        why = f"in uninterruptible sleep since the last sample: {names}"
        yield host_finding(sample, FAMILY, Reason.PROCESSES_STUCK, why)


def _stuck(sample: Sample) -> list[list[str]]:
    """Return the processes that were blocked in both samples and did not run in between."""
    before = set(sample.before.get("blocked", "").split())
    blocked = (one for one in sample.values.get("blocked", "").split() if one in before)
    return [parts for one in blocked if len(parts := one.split(":", 3)) == 4]
