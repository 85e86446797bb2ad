"""Table of all built-in detectors."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Final

from holdfast.detectors import (
    clock_state,
    device_inventory,
    disk_state,
    edac_state,
    efa_devices,
    efa_log,
    gpu_dcgm,
    gpu_dcgm_diag,
    gpu_dcgm_policy,
    gpu_driver,
    gpu_state,
    gpu_sxid,
    gpu_xid,
    host_disk,
    host_filesystem,
    host_hardware,
    host_lockup,
    host_memory,
    infiniband_log,
    infiniband_ports,
    log_sources,
    memory_state,
    network_state,
    neuron_log,
    neuron_ls,
    neuron_monitor,
    neuron_state,
    process_state,
    runtime_state,
    unit_state,
)
from holdfast.detectors.contract import KERNEL_LOG, LOGS, Detector, Profile
from holdfast.detectors.instance_types import UNKNOWN_EQUIPMENT, Equipment
from holdfast.model.health import Remedy
from holdfast.model.names import Reason

ROWS: Final[tuple[Callable[[Profile], Detector], ...]] = (
    log_sources.build,
    gpu_xid.build,
    gpu_sxid.build,
    gpu_driver.build,
    neuron_log.build,
    efa_log.build,
    infiniband_log.build,
    host_memory.build,
    host_lockup.build,
    host_disk.build,
    host_filesystem.build,
    host_hardware.build,
    gpu_state.build,
    gpu_dcgm.build,
    gpu_dcgm_diag.build,
    gpu_dcgm_policy.build,
    neuron_state.build,
    neuron_ls.build,
    neuron_monitor.build,
    network_state.build,
    efa_devices.build,
    infiniband_ports.build,
    memory_state.build,
    disk_state.build,
    edac_state.build,
    process_state.build,
    clock_state.build,
    runtime_state.build,
    unit_state.build,
)


def detectors(
    profile: Profile,
    xid_overrides: Mapping[int, Remedy] = MappingProxyType({}),
    equipment: Equipment = UNKNOWN_EQUIPMENT,
) -> tuple[Detector, ...]:
    """Return all detectors of a node with ``equipment``, with the ratings of ``profile``.

    ``xid_overrides`` gives single XIDs another remedy.
    """
    built = {build: build(profile) for build in ROWS}
    built[gpu_xid.build] = gpu_xid.build(profile, xid_overrides, equipment.driver)
    built[gpu_dcgm_policy.build] = gpu_dcgm_policy.build(profile, xid_overrides)
    for counting in (gpu_state, neuron_state, neuron_ls, network_state):
        built[counting.build] = counting.build(profile, equipment)
    return tuple(built.values())


_OF_AGENT: Final = (Reason.DETECTOR_FAILED, Reason.DRILL_ACTIVE, Reason.FAULTS_OMITTED)


def log_keywords(detectors: tuple[Detector, ...]) -> frozenset[str]:
    """Return the keywords of all detectors: a kernel message without any of them is skipped."""
    return frozenset(keyword for detector in detectors for keyword in detector.keywords)


def reasons(detectors: tuple[Detector, ...]) -> frozenset[str]:
    """Reasons that an agent with ``detectors`` can report, with those of the agent itself."""
    published = (reason for detector in detectors for reason in detector.reasons)
    return frozenset({*_OF_AGENT, *published})


def required_samples(detectors: tuple[Detector, ...]) -> dict[str, timedelta]:
    """Return the samples that the detectors read, with their intervals."""
    required: dict[str, timedelta] = {}
    for detector in detectors:
        for name in sorted(detector.reads - {KERNEL_LOG, LOGS}):
            required[name] = min(required.get(name, detector.every), detector.every)
    return required


def displayed_samples(detectors: tuple[Detector, ...]) -> dict[str, timedelta]:
    """Return the samples that are only displayed, with their intervals.

    They are of GPUs, and are read where a detector reads those.
    """
    is_read = any(gpu_state.SOURCE in detector.reads for detector in detectors)
    return dict(device_inventory.SAMPLES) if is_read else {}
