"""Inspects ranks that seem to hang: their processes, and meanwhile dumps of flight recorders.

``python -m holdfast.adapters.host.rank_findings NODE DUMP PIPE SINCE UNTIL RANK:PID ...`` prints
what is found of some ranks as JSON, of dumps only what the verdict depends on. DUMP and PIPE are
those of ``DumpFiles``. Dumps that were written before SINCE, in seconds since 1970, are left out.
After UNTIL, a time of the monotonic clock, no more stacks are read: the start of this process, too,
takes seconds on a node without free CPU time. PID is the process that was started for the rank; 0
if there is none any more.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

from holdfast.adapters.host.accelerator_state import read_devices, with_accelerators
from holdfast.adapters.host.flight_dumps import read_traces, request_dumps
from holdfast.adapters.host.kernel_warnings import DEVICE, read_warnings
from holdfast.adapters.host.nccl_ras import NoReport, read_report
from holdfast.adapters.host.rank_stacks import raw_environment, take_snapshots_of
from holdfast.decisions.flight_recorder import DumpFiles, RankFindings, summaries
from holdfast.decisions.rank_accelerators import Accelerator
from holdfast.decisions.rank_snapshots import RankSnapshot
from holdfast.decisions.ras_verdict import RasCommunicator, ras_verdict
from holdfast.kit.serial import to_plain

_RAS_PAUSE_S: Final = 1.0
"""Time between two reports of NCCL's RAS: a job that continues counts on."""

_KEPT: Final = 8
"""Number of collectives of a rank and a group, before the one it waits in and from it on."""


def inspect_ranks(
    take: Callable[[], tuple[RankSnapshot, ...]],
    files: DumpFiles,
    ranks: Collection[int] | None = None,
    since: float = 0.0,
    environment: Mapping[str, str] | None = None,
    logs: Mapping[str, Sequence[Path]] | None = None,
) -> RankFindings:
    """Return what the ranks and the kernels of their nodes do, within about 8 seconds.

    Args:
        take: takes the snapshots.
        files: where the ranks dump their flight recorders.
        ranks: ranks whose dumps are read; None for all.
        since: start of the attempt, in seconds since 1970.
        environment: of the ranks, for the address of NCCL's RAS; None for that of this process.
        logs: kernel logs by node, whose ranks are processes of this machine; None for no nodes.

    """
    own = os.environ if environment is None else environment
    kernels = logs or {}
    with ThreadPoolExecutor(max_workers=4) as pool:
        reports = pool.submit(_ras_reports, own)
        devices = pool.submit(read_devices, own) if kernels else None
        warnings = pool.submit(lambda: [read_warnings(*one) for one in kernels.items()])
        traces = pool.submit(lambda: read_traces(files, request_dumps(files, ranks), ranks, since))
        snapshots = take()
        before, after = reports.result()
        ras = ras_verdict(before, after, snapshots)
        found = RankFindings(
            snapshots=snapshots,
            traces=traces.result(),
            ras=ras,
            kernel=tuple(warnings.result()),
        )
        return found if devices is None else _with_devices(found, *devices.result())


def _with_devices(
    found: RankFindings, devices: Sequence[Accelerator], problem: str
) -> RankFindings:
    """Return findings with the state of accelerators, or why that is unknown."""
    if problem:
        noted = (
            replace(one, note="; ".join(filter(None, (one.note, problem)))) for one in found.kernel
        )
        return replace(found, kernel=tuple(noted))
    if not devices:
        return found
    pids = {one.rank: one.pid for one in found.snapshots if one.pid is not None}
    environments = {rank: raw_environment(pid) for rank, pid in pids.items()}
    return replace(found, snapshots=with_accelerators(found.snapshots, environments, devices))


def _ras_reports(
    environment: Mapping[str, str],
) -> tuple[Sequence[RasCommunicator], Sequence[RasCommunicator]]:
    """Return two reports of NCCL's RAS, or empty ones if it does not respond."""
    try:
        first = read_report(environment)
        time.sleep(_RAS_PAUSE_S)
        return first, read_report(environment)
    except NoReport:
        return (), ()


def main(argv: Sequence[str]) -> int:
    """Print what is found of ranks. Returns the exit status."""
    node, dump, pipe, since, until, *ranks = argv
    files = DumpFiles(dump=dump, pipe=pipe)
    started = {int(rank): int(pid) for rank, _, pid in (one.partition(":") for one in ranks)}
    found = inspect_ranks(
        lambda: take_snapshots_of(node, started, float(until)),
        files,
        started.keys(),
        float(since),
        logs={node: (DEVICE,)},
    )
    shorter = summaries(found.traces, over=_KEPT, waiting=_KEPT)
    json.dump(to_plain(replace(found, traces=shorter)), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
