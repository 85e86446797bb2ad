"""Reads what the processes of ranks have used: CPU time, bytes read and written, and traffic."""

from collections.abc import Collection

from holdfast.adapters.host.rank_traffic import read_traffic
from holdfast.decisions.job_activity import ProcessUse, Reading, Traffic
from holdfast.kit.processes import cpu_use, trees


def read_activity(ranks: Collection[int]) -> tuple[Reading, Traffic | None]:
    """Return what ranks and all processes below them have used, empty if none runs; and traffic.

    Traffic is None if it cannot be read.

    Args:
        ranks: process of each rank.

    """
    found = {}
    for rank, tree in trees(ranks).items():
        for pid in tree:
            use = cpu_use(pid)
            if use is not None:
                started, cpu_s = use
                moved = _io_bytes(pid, is_rank=pid == rank)
                found[pid, started] = ProcessUse(cpu_s=cpu_s, io_bytes=moved)
    return found, read_traffic({pid for pid, _ in found})


def _io_bytes(pid: int, *, is_rank: bool) -> int:
    """Return the bytes that a process has read and written; 0 if that cannot be read.

    What it reads from the page cache or from other processes costs CPU time, and is not counted.
    """
    try:
        with open(f"/proc/{pid}/io", encoding="ascii") as file:
            counters = dict(line.rstrip().split(": ", 1) for line in file)
    except (OSError, ValueError):
        return 0
    names = ("read_bytes", "wchar") if is_rank else ("read_bytes",)
    return sum(int(counters.get(name, "0")) for name in names)
