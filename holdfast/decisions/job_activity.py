"""Activity of the ranks of a job, and when its absence is suspicious. Pure.

It is the weakest signal of progress: it shows that ranks do something, not that they train. So its
absence is only reported.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeVar

K = TypeVar("K")

CPU_SHARE: Final = 0.01
"""Share of a core above which a process is active. A rank of PyTorch that waits in gloo used 0.2 %,
and its DataLoader workers 0 (30 s, Linux 6, Python 3.11); one that computes or sends uses more."""

CONNECTION_RATE: Final = 100_000
"""Bytes per second of all TCP connections of a job above which it is active. Ranks that hang still
send heartbeats. 4 ranks of PyTorch that hung in gloo sent nothing in 60 s. With a look into the
store of the job once a second, as the monitor of NCCL takes it, both ends together counted 126
bytes per second and rank: 16 kB/s for 128 ranks, the most that a launcher samples."""

PORT_RATE: Final = 1_000_000
"""Bytes per second of a port for RDMA above which a job is active. The counters of a port include
what others send through it, such as the pings of a file system. It is an assumption."""

_SUSPENDED: Final = 2
"""Fraction of the limit. After a longer pause between two readings, activity counts as unknown: the
reader was stopped, and perhaps the ranks with it."""

_READER_DELAY: Final = timedelta(seconds=5)
"""Pause between two readings on a busy machine, which hides no silence if the limit is short."""


class AcceleratorUse(StrEnum):
    """Whether the accelerators of a job compute."""

    UNKNOWN = "unknown"
    """There is none, or its utilization cannot be read."""

    IDLE = "idle"
    BUSY = "busy"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUse:
    """What one process has used since its start, with its children that have ended."""

    cpu_s: float
    io_bytes: int
    """Bytes read from storage; of a rank itself also bytes written, to files, pipes and terminals.
    What its helpers write, such as metrics of the machine, is no sign of training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes that the ranks have sent and received, with the processes below them."""

    connections: Mapping[int, int] = field(default_factory=dict)
    """By TCP connection that is open, named by the inode of its socket."""

    ports: Mapping[str, int] = field(default_factory=dict)
    """By port of the devices for RDMA that they have open."""


Reading = Mapping[tuple[int, int], ProcessUse]
"""What the processes of the ranks have used, by PID and start time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobActivity:
    """Last reading of the ranks of an attempt, and when they were last active."""

    reading: Reading = field(default_factory=dict)
    traffic: Traffic | None = None
    """None if it cannot be read."""

    read_at: datetime | None = None
    active_at: datetime | None = None
    accelerators: AcceleratorUse | None = None
    """Use of the accelerators since then; None if it was not read."""


def after_reading(
    activity: JobActivity,
    reading: Reading,
    now: datetime,
    limit: timedelta,
    traffic: Traffic | None = None,
) -> JobActivity:
    """Return what is known after one more reading; an empty one shows nothing.

    Args:
        activity: what was known before.
        reading: of the processes of the ranks.
        now: current time.
        limit: time without activity that is suspicious.
        traffic: of the same processes; None if it cannot be read.

    """
    before, read_at = activity.reading, activity.read_at
    longest = max(limit / _SUSPENDED, _READER_DELAY)
    is_known = before and reading and read_at is not None and now - read_at < longest
    if (
        not is_known
        or read_at is None
        or _is_active(before, reading, now - read_at)
        or _has_traffic(activity.traffic, traffic, now - read_at)
    ):
        return JobActivity(reading=reading, traffic=traffic, read_at=now, active_at=now)
    return rebased(activity, reading, now, traffic)


def rebased(
    activity: JobActivity, reading: Reading, now: datetime, traffic: Traffic | None = None
) -> JobActivity:
    """Return what is known after a reading that shows nothing but what later ones compare with.

    Such is one after an inspection, which may have made the ranks write their stacks.
    """
    return replace(activity, reading=reading, traffic=traffic, read_at=now)


def silent_since(activity: JobActivity, now: datetime, limit: timedelta | None) -> datetime | None:
    """Return when ranks were last active if that is too long ago; None if it is not, or unknown."""
    at = activity.active_at
    return at if limit and at is not None and now - at >= limit else None


def after_accelerators(activity: JobActivity, use: AcceleratorUse, now: datetime) -> JobActivity:
    """Return what is known after a look at the accelerators of ranks that are silent."""
    if use is AcceleratorUse.BUSY:
        return replace(activity, active_at=now, accelerators=None)
    return replace(activity, accelerators=use)


def _is_active(before: Reading, after: Reading, period: timedelta) -> bool:
    """Return whether a process has computed, or has read or written data, between two readings."""
    least_s = CPU_SHARE * period.total_seconds()
    nothing = ProcessUse(cpu_s=0.0, io_bytes=0)
    for process, use in after.items():
        known = before.get(process, nothing)
        if use.cpu_s - known.cpu_s > least_s or use.io_bytes != known.io_bytes:
            return True
    return False


def _has_traffic(before: Traffic | None, after: Traffic | None, period: timedelta) -> bool:
    """Return whether more was sent and received between two readings than by ranks that hang."""
    if before is None or after is None:
        return False
    moved = sum(_growth(before.connections, after.connections, 0))
    ports = _growth(before.ports, after.ports, None)
    seconds = period.total_seconds()
    return moved > CONNECTION_RATE * seconds or any(one > PORT_RATE * seconds for one in ports)


def _growth(before: Mapping[K, int], after: Mapping[K, int], default: int | None) -> Iterator[int]:
    """Yield by how much counters grew; a new one counts from the default, without one not."""
    for name, count in after.items():
        known = before.get(name, default)
        if known is not None:
            yield max(0, count - known)
