"""What slows the GPU and the CPU of a straggler down, from what was read of all ranks of its node.

Pure. Only evidence is stated: a GPU that is idle, or whose clock is limited as those of the others
are, is no cause, and neither is a CPU for which the other ranks wait as long.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_IDLE: Final = 0x1
_GENERAL, _SPECIFIC = 0x8, 0x40 | 0x80

_SLOWDOWNS: Final = {
    0x40: "HW thermal slowdown",
    0x80: "HW power brake slowdown",
    0x20: "SW thermal slowdown",
    _GENERAL: "HW slowdown",
}
"""Bits of ``nvmlClocksEventReasons`` that the detectors report as faults, too. The general one is
also set with the first two (NVML API reference)."""

_SETTINGS: Final = {
    0x4: "SW power cap",
    0x2: "application clocks setting",
    0x10: "sync boost",
    0x100: "display clock setting",
}
"""Bits that a healthy GPU has, too. They explain why a clock is lower than those of the others."""

_LEAST: Final = 0.05
"""Share of the time, or of the clock of the other GPUs, that counts: the excess above which a rank
counts as slow in a window (``stragglers``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuClock:
    """One sample of a GPU."""

    mhz: int
    """Clock of its streaming multiprocessors."""

    reasons: int
    """``nvmlClocksEventReasons``: why the clock is not higher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankUse:
    """What was read of one rank."""

    gpu: str = ""
    """Name of its GPU, such as ``GPU 0``; empty if it has none."""

    limit_mhz: int | None = None
    """Maximum clock of the GPU; None if unknown."""

    clocks: tuple[GpuClock, ...] = ()
    """Samples over a few seconds; empty if they cannot be read."""

    cpu_wait: float | None = None
    """Share of the time in which its main thread was ready to run and waited for a CPU; None if
    that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """CPU quota of a control group, over a few seconds."""

    throttled: float
    """Share of its periods in which it was throttled."""

    is_shared: bool
    """Whether other ranks of the node are in the control group, too."""


def slowdown_text(slow: RankUse, others: Sequence[RankUse], quotas: Sequence[Quota]) -> str:
    """Return what slows a rank down, for people to read; empty if nothing does.

    Args:
        slow: the rank.
        others: other ranks of its node.
        quotas: of its control group and those above it.

    """
    cpu = _quota_text(quotas) or _wait_text(slow, others)
    return "; ".join(filter(None, (_gpu_text(slow, others), cpu)))


def _gpu_text(slow: RankUse, others: Sequence[RankUse]) -> str:
    clock = _clock(slow)
    if clock is None:
        return ""
    of_others = [
        found
        for one in others
        if one.gpu != slow.gpu and one.limit_mhz == slow.limit_mhz
        for found in [_clock(one)]
        if found is not None
    ]
    usual = statistics.median(of_others) if of_others else 0.0
    is_lower = clock < (1 - _LEAST) * usual
    reasons = [*_reasons(slow, _SLOWDOWNS)]
    if not (reasons or is_lower):
        return ""
    total = "" if slow.limit_mhz is None else f" of {slow.limit_mhz}"
    text = f"its {slow.gpu} runs at {clock:.0f}{total} MHz"
    if is_lower:
        reasons += _reasons(slow, _SETTINGS)
        text += f", those of the other ranks on its node at {usual:.0f} MHz"
    return f"{text}: {', '.join(reasons)}" if reasons else text


def _busy(one: RankUse) -> list[GpuClock]:
    return [clock for clock in one.clocks if not clock.reasons & _IDLE]


def _clock(one: RankUse) -> float | None:
    """Return the median clock of a GPU while it computes; None if it does not."""
    found = [clock.mhz for clock in _busy(one)]
    return statistics.median(found) if found else None


def _reasons(one: RankUse, names: Mapping[int, str]) -> Iterator[str]:
    """Yield the reasons for the clock of a GPU; with the share of samples if it is not all."""
    busy = _busy(one)
    is_explained = any(clock.reasons & _SPECIFIC for clock in busy)
    for bit, name in names.items():
        count = sum(bool(clock.reasons & bit) for clock in busy)
        if count and not (bit == _GENERAL and is_explained):
            yield name if count == len(busy) else f"{name} in {count} of {len(busy)} samples"


def _quota_text(quotas: Sequence[Quota]) -> str:
    quota = max(quotas, key=lambda one: one.throttled, default=None)
    if quota is None or quota.throttled < _LEAST:
        return ""
    shared = "a control group that it shares with other ranks"
    whose = shared if quota.is_shared else "its control group"
    return f"{whose} was throttled in {quota.throttled:.0%} of periods"


def _wait_text(slow: RankUse, others: Sequence[RankUse]) -> str:
    if slow.cpu_wait is None:
        return ""
    of_others = [one.cpu_wait for one in others if one.cpu_wait is not None]
    usual = statistics.median(of_others) if of_others else None
    if slow.cpu_wait - (usual or 0.0) < _LEAST:
        return ""
    text = f"its main thread waits for a CPU {slow.cpu_wait:.0%} of the time"
    return text if usual is None else f"{text}, those of the other ranks on its node {usual:.0%}"
