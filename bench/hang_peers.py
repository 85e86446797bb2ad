"""The same kinds of hangs under launchers of others: whether and when these notice them."""

import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.figure import Figure
from bench.hang_schedules import EXPECTED, RANKS, Schedule
from bench.hanging_job import LIMIT_S, HangingJob, hanging_job, storage, wait_s
from bench.restart_launchers import LAUNCHERS, Launcher, install

_HEARTBEAT_S: Final = 15
"""Time without a heartbeat after which NVRx reports a hang; it does not learn it while it runs."""

_SETTLE_S: Final = 8.0
"""Time after the first report in which other ranks are reported: NVRx checks every 5 s."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A launcher with hang detection."""

    name: str
    launcher: str
    """Its name in the benchmark of restarts."""

    reports: str
    """Pattern of a line of its log that reports a hang; a group has the rank if it names one."""

    limit_s: float
    """Time from the hang after which it counts as not detected."""

    hangs: int = len(EXPECTED)
    """Number of kinds that are tried."""

    why_not: str = ""
    """Why it reports nothing here; empty if it is meant to."""

    options: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


_NVRX_REPORTS: Final = (
    r"RankMonServer[^\]]*:(\d+)\] (?:Did not get|Section '.*' has been open|Was out of section)"
)
_NVRX_OPTIONS: Final = (
    "--ft-initial-rank-heartbeat-timeout", str(LIMIT_S),
    "--ft-rank-heartbeat-timeout", str(_HEARTBEAT_S),
)  # fmt: skip
PEERS: Final = (
    Peer(
        name="ft_launcher (NVRx), heartbeats added to the script",
        launcher="ft_launcher (NVRx)",
        reports=_NVRX_REPORTS,
        limit_s=60,
        options=_NVRX_OPTIONS,
        environment=(("HANGING_RANKS_HEARTBEATS", "nvrx"),),
    ),
    Peer(
        name="ft_launcher (NVRx), script unchanged",
        launcher="ft_launcher (NVRx)",
        reports=_NVRX_REPORTS,
        limit_s=60,
        hangs=1,
        why_not="it watches only ranks that send heartbeats",
        options=_NVRX_OPTIONS,
    ),
    Peer(
        name="dlrover-run, script unchanged",
        launcher="dlrover-run",
        reports=r"(?i)detect job hang|nodes hanged|hang_warning|HangError",
        limit_s=150,  # its detection declares no hang before 2 minutes
        why_not=(
            "only the master of a job on Kubernetes starts its detection (dist_master.py, not "
            "local_master.py), which needs the activity of GPUs (diagnosis_master.py)"
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Detection:
    """What a peer reported of one hang."""

    after_s: float | None
    """From the hang to its first report; None if it reported nothing."""

    ranks: frozenset[int] = frozenset()
    """Ranks in its reports."""


def measure_peers(kinds: Sequence[str], folder: Path) -> list[Figure]:
    """Cause one hang of each kind under each peer, in a job of its own.

    Args:
        kinds: kinds of hangs.
        folder: environments of the peers; they stay there for the next run.

    """
    schedules = [Schedule.of(number, kinds, ("ddp",)) for number in range(len(kinds))]
    figures: list[Figure] = []
    with storage() as frozen:
        for peer in PEERS:
            launcher = next(one for one in LAUNCHERS if one.name == peer.launcher)
            try:
                launcher = install(launcher, folder)
            except RuntimeError as error:
                sys.stderr.write(f"not measured: {error}\n")
                continue
            own = schedules[: peer.hangs]
            found = [(one, _detection(peer, launcher, one, frozen)) for one in own]
            figures += _figures(
                peer, [(one, report) for one, report in found if report is not None]
            )
    return figures


def _figures(peer: Peer, found: Sequence[tuple[Schedule, Detection]]) -> list[Figure]:
    if not found:
        return []
    times = [one.after_s for _, one in found if one.after_s is not None]
    named = sum(one.ranks == {schedule.rank} for schedule, one in found)
    total = len(found)
    figures = [
        Figure(name=f"{peer.name}: detected of {total}", value=len(times), unit="", goal=None),
        Figure(name=f"{peer.name}: rank named", value=named, unit="", goal=None),
    ]
    if times:
        longest = Figure(name=f"{peer.name}: slowest", value=max(times), unit="s", goal=None)
        figures.append(longest)
    return figures


def _detection(
    peer: Peer, launcher: Launcher, one: Schedule, frozen: Path | None
) -> Detection | None:
    """Return what the peer reported of a hang; None if the job did not come to it."""
    command = [
        *launcher.program, *launcher.options, "--max-restarts", "0",
        *peer.options, "--nproc-per-node", str(RANKS),
    ]  # fmt: skip
    root = str(Path(__file__).parents[1])
    environment = {**dict(peer.environment), "PYTHONPATH": root, "PYTHONUNBUFFERED": "1"}
    with hanging_job(command, [one], frozen, environment) as job:
        hung_at = _hung_at(job, one)
        if hung_at is None:
            sys.stderr.write(f"{peer.name}: {one}: nothing hung: {job.log[-1500:]}\n")
            return None
        found = _reported(job, peer, hung_at)
    when = (
        f"detected after {found.after_s:.1f} s"
        if found.after_s is not None
        else (f"not detected within {peer.limit_s:g} s: {peer.why_not or 'no report'}")
    )
    ranks = ", ".join(map(str, sorted(found.ranks))) or "none"
    sys.stderr.write(f"{peer.name}: {one}: {when}, ranks in its reports: {ranks}\n")
    return found


def _hung_at(job: HangingJob, one: Schedule) -> float | None:
    """Wait for the hang; return its time in seconds since 1970, None if it did not come."""
    until = time.monotonic() + LIMIT_S
    while wait_s(until) and not job.has_ended():
        job.stop_rank_or_storage(one, 0)
        if (at := job.time_of("hung-0")) is not None:
            return at
    return None


def _reported(job: HangingJob, peer: Peer, hung_at: float) -> Detection:
    """Wait for the first report of the hang, and for those on other ranks."""
    pattern, first = re.compile(peer.reports), None
    until = time.monotonic() + peer.limit_s
    while wait_s(until):
        found = [*pattern.finditer(job.log)]
        if found and first is None:
            first = time.time() - hung_at
            until = time.monotonic() + _SETTLE_S
        if job.has_ended():
            break
    ranks = {int(one[1]) for one in pattern.finditer(job.log) if one.groups()}
    return Detection(after_s=first, ranks=frozenset(ranks))
