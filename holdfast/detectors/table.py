"""Every detector there is, one row each."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Final

from holdfast.detectors import (
    clock_state,
    disk_state,
    edac_state,
    efa_log,
    gpu_dcgm,
    gpu_driver,
    gpu_state,
    gpu_sxid,
    gpu_xid,
    host_disk,
    host_hardware,
    host_lockup,
    host_memory,
    infiniband_log,
    memory_state,
    network_state,
    neuron_log,
    neuron_ls,
    neuron_state,
    process_state,
    runtime_state,
)
from holdfast.detectors.contract import KERNEL_LOG, Detector, Profile
from holdfast.model.health import Remedy

ROWS: Final[tuple[Callable[[Profile], Detector], ...]] = (
    gpu_xid.build,
    gpu_sxid.build,
    gpu_driver.build,
    neuron_log.build,
    efa_log.build,
    infiniband_log.build,
    host_memory.build,
    host_lockup.build,
    host_disk.build,
    host_hardware.build,
    gpu_state.build,
    gpu_dcgm.build,
    neuron_state.build,
    neuron_ls.build,
    network_state.build,
    memory_state.build,
    disk_state.build,
    edac_state.build,
    process_state.build,
    clock_state.build,
    runtime_state.build,
)


def detectors(
    profile: Profile, xid_overrides: Mapping[int, Remedy] = MappingProxyType({})
) -> tuple[Detector, ...]:
    """All detectors, judging as ``profile`` does, save for the XIDs with a remedy of their own."""
    built = {build: build(profile) for build in ROWS}
    built[gpu_xid.build] = gpu_xid.build(profile, xid_overrides)
    return tuple(built.values())


def log_marks(detectors: tuple[Detector, ...]) -> frozenset[str]:
    """The words of which a line of the kernel log must hold one to concern any detector."""
    return frozenset(mark for detector in detectors for mark in detector.marks)


def samples_wanted(detectors: tuple[Detector, ...]) -> dict[str, timedelta]:
    """Which samples the detectors read, and how often each is to be taken."""
    wanted: dict[str, timedelta] = {}
    for detector in detectors:
        for name in sorted(detector.reads - {KERNEL_LOG}):
            wanted[name] = min(wanted.get(name, detector.every), detector.every)
    return wanted
