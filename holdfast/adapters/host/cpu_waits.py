"""Reads how long ranks waited for a CPU, and how often CPU quotas have throttled them."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from holdfast.adapters.host.small_files import read_small
from holdfast.decisions.rank_slowdowns import Quota

_NS_PER_S: Final = 1e9

Periods = Mapping[Path, tuple[int, int]]
"""Periods of the CPU quota of control groups, and those in which they were throttled."""


def waited_s(pids: Mapping[int, int]) -> dict[int, float]:
    """Return the seconds for which the main thread of each rank was runnable and did not run.

    A rank that has ended, or whose kernel does not count this, is missing.

    Args:
        pids: process of each rank.

    """
    fields = {
        rank: (read_small(f"/proc/{pid}/task/{pid}/schedstat") or "").split()
        for rank, pid in pids.items()
    }
    return {rank: int(found[1]) / _NS_PER_S for rank, found in fields.items() if len(found) > 1}


def read_periods(groups: Collection[Path]) -> Periods:
    """Return the periods so far of those control groups that have some."""
    found = {}
    for group in groups:
        text = read_small(group / "cpu.stat") or ""
        values = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
        numbers = [values.get(name, "") for name in ("nr_periods", "nr_throttled")]
        if all(number.isdecimal() for number in numbers):
            found[group] = (int(numbers[0]), int(numbers[1]))
    return found


def quotas_between(before: Periods, after: Periods, shared: Collection[Path]) -> list[Quota]:
    """Return the quotas that had periods between two readings.

    Args:
        before: first reading.
        after: second reading.
        shared: control groups that have other ranks, too.

    """
    found = []
    for group, (periods, throttled) in after.items():
        earlier_periods, earlier_throttled = before.get(group, (periods, throttled))
        if (count := periods - earlier_periods) > 0:
            share = max(0, throttled - earlier_throttled) / count
            found.append(Quota(throttled=min(1.0, share), is_shared=group in shared))
    return found
