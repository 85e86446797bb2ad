"""Reads the clocks of the GPUs of ranks through NVML, and why they are not higher.

A call into a wedged driver never returns. Standard library only: NVML is part of the driver.
"""

import ctypes
import time
from collections.abc import Callable, Mapping
from typing import Final

from holdfast.adapters.host.accelerator_memory import opened_nvml
from holdfast.adapters.host.accelerator_state import devices_of, mig_instances, with_accelerators
from holdfast.decisions.rank_accelerators import Accelerator
from holdfast.decisions.rank_slowdowns import GpuClock, RankUse
from holdfast.decisions.rank_snapshots import RankSnapshot

_SM: Final = 1  # NVML_CLOCK_SM
_REASONS: Final = (
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
)
"""Function by its present name, and by the one that older drivers have."""


def read_clocks(
    name: str, environments: Mapping[int, Mapping[str, str]], samples: int, seconds: float
) -> dict[int, RankUse]:
    """Return the GPU of each rank with its clocks; empty without a driver.

    Args:
        name: NVML.
        environments: of the ranks of this node.
        samples: number of samples of each GPU.
        seconds: time over which they are taken.

    """
    library = opened_nvml(name)
    if library is None:
        return {}
    instances = [name for one in environments.values() for name in mig_instances(one)]
    handles = devices_of(library, instances)
    snapshots = [RankSnapshot(rank=rank, node="", pid=None) for rank in environments]
    placed = with_accelerators(snapshots, environments, tuple(handles))
    ranks = {one.rank: one.accelerator for one in placed if one.accelerator is not None}
    read = _reasons_of(library)
    clocks: dict[Accelerator, list[GpuClock]] = {device: [] for device in ranks.values()}
    for sample in range(samples):
        if sample and clocks:
            time.sleep(seconds / samples)
        for device, found in clocks.items():
            mhz, reasons = _clock(library, handles[device]), read(handles[device])
            if mhz is not None and reasons is not None:
                found.append(GpuClock(mhz=mhz, reasons=reasons))
    return {
        rank: RankUse(
            gpu=device.label,
            limit_mhz=_clock(library, handles[device], is_limit=True),
            clocks=tuple(clocks[device]),
        )
        for rank, device in ranks.items()
    }


def _clock(library: ctypes.CDLL, device: ctypes.c_void_p, *, is_limit: bool = False) -> int | None:
    """Return the clock of the streaming multiprocessors in MHz; None if it cannot be read."""
    mhz = ctypes.c_uint()
    read = library.nvmlDeviceGetMaxClockInfo if is_limit else library.nvmlDeviceGetClockInfo
    return mhz.value if read(device, _SM, ctypes.byref(mhz)) == 0 else None


def _reasons_of(library: ctypes.CDLL) -> Callable[[ctypes.c_void_p], int | None]:
    functions = [getattr(library, name, None) for name in _REASONS]
    function = next((one for one in functions if one is not None), None)

    def read(device: ctypes.c_void_p) -> int | None:
        reasons = ctypes.c_ulonglong()
        is_read = function is not None and function(device, ctypes.byref(reasons)) == 0
        return reasons.value if is_read else None

    return read
