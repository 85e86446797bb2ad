"""Prints as JSON what slows the GPU and the CPU of a straggler down, as seen over five seconds.

``python -m holdfast.adapters.host.rank_slowdowns RANK RANK:PID ...`` gets all ranks of its node,
each with the process that was started for it. It runs as a separate process, and asks NVML in a
thread of it, because a call into a wedged driver never returns.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from threading import Thread
from typing import Final

from holdfast.adapters.host.accelerator_clocks import read_clocks
from holdfast.adapters.host.accelerator_memory import NVML
from holdfast.adapters.host.control_groups import control_groups
from holdfast.adapters.host.cpu_waits import quotas_between, read_periods, waited_s
from holdfast.adapters.host.rank_stacks import python_process, raw_environment
from holdfast.decisions.rank_slowdowns import Quota, RankUse, slowdown_text
from holdfast.kit.processes import die_with_parent

_SECONDS: Final = 5.0
"""50 periods of a CPU quota of the default length (100 ms)."""

_SAMPLES: Final = 10
_DRIVER_S: Final = 4.0
"""Time of the driver beyond that; it takes up to 2 s where persistence mode is off."""


def main(argv: list[str]) -> int:
    """Print the text. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rank", type=int)
    parser.add_argument("ranks", nargs="+", help="RANK:PID")
    parser.add_argument("--seconds", type=float, default=_SECONDS)
    parser.add_argument("--driver-seconds", type=float, default=_DRIVER_S)
    parser.add_argument("--library", default=NVML, help="NVML")
    options = parser.parse_args(argv)
    die_with_parent(os.getppid())
    pairs = [
        (int(rank), int(pid)) for rank, _, pid in (one.partition(":") for one in options.ranks)
    ]
    pids = {rank: python_process(rank, pid) for rank, pid in pairs}
    uses = {rank: RankUse() for rank in pids}
    environments = {rank: raw_environment(pid) for rank, pid in pids.items()}
    driver = (options.library, environments, _SAMPLES, options.seconds)
    reader = Thread(target=lambda: uses.update(read_clocks(*driver)), daemon=True)
    reader.start()
    quotas, waits = _cpu(options.rank, pids, options.seconds)
    reader.join(options.driver_seconds)
    silent = ""
    if reader.is_alive():
        silent = f"NVML did not respond within {options.seconds + options.driver_seconds:g} s"
    found = {rank: replace(one, cpu_wait=waits.get(rank)) for rank, one in dict(uses).items()}
    others = [one for rank, one in found.items() if rank != options.rank]
    text = slowdown_text(found.get(options.rank, RankUse()), others, quotas)
    json.dump("; ".join(filter(None, (text, silent))), sys.stdout)
    return 0


def _cpu(
    slow: int, pids: Mapping[int, int], seconds: float
) -> tuple[list[Quota], dict[int, float]]:
    """Return the CPU quotas of a rank, and the share of time in which each waited for a CPU."""
    groups = {rank: control_groups(pid, "cpu") for rank, pid in pids.items()}
    own = groups.get(slow, [])
    began, waits, periods = time.monotonic(), waited_s(pids), read_periods(own)
    time.sleep(seconds)
    elapsed_s, later, later_periods = time.monotonic() - began, waited_s(pids), read_periods(own)
    shared = {group for rank, found in groups.items() if rank != slow for group in found}
    shares = {rank: (later[rank] - waits[rank]) / elapsed_s for rank in waits.keys() & later}
    return quotas_between(periods, later_periods, shared), shares


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
