"""Reasons that the detectors of state may report, with remedy and source: one row each.

Those of the kernel log are in its rules.
"""

from dataclasses import dataclass
from typing import Final

from holdfast.model.health import Remedy, Severity, Urgency
from holdfast.model.names import Reason


@dataclass(frozen=True, slots=True)
class StateReason:
    """One reason of one detector."""

    detector: str
    family: str
    reason: Reason
    severity: Severity
    remedy: Remedy
    source: str
    """What is read, and the source of the rating."""

    urgency: Urgency = Urgency.IMMEDIATE


def _note(detector: str, family: str, reason: Reason, source: str) -> StateReason:
    return StateReason(detector, family, reason, Severity.WARNING, Remedy.NONE, source)


def _fault(detector: str, family: str, reason: Reason, remedy: Remedy, source: str) -> StateReason:
    return StateReason(detector, family, reason, Severity.FATAL, remedy, source)


def _idle(detector: str, family: str, reason: Reason, remedy: Remedy, source: str) -> StateReason:
    """Return a fault with which the node still works."""
    return StateReason(detector, family, reason, Severity.WARNING, remedy, source, Urgency.DEFERRED)


_GPU: Final = ("gpu-state", "gpu-state")
_MEMORY_GUIDE: Final = "NVIDIA's guide to GPU memory errors"
_HEALTH: Final = ("gpu-dcgm", "dcgm")
_DIAG: Final = ("gpu-dcgm-diag", "dcgm-diag")
_POLICY: Final = ("gpu-dcgm-policy", "dcgm-policy")
_DIAG_ERROR: Final = "`dcgmi diag`: an error of the severity"
_NEURON: Final = ("neuron-state", "neuron-event")
_NEURON_GUIDE: Final = "Neuron's guide nrt-troubleshoot"
_NETWORK: Final = ("network-state", "network-state")
_HOST_MEMORY: Final = ("memory-state", "memory-state")
_HOST_EVENTS: Final = ("memory-state", "memory-event")
_DISK: Final = ("disk-state", "disk-state")
_PROCESSES: Final = ("process-state", "processes-state")

# fmt: off
STATE_REASONS: Final = (
    _fault(*_GPU, Reason.GPU_COUNT, Remedy.REBOOT, "`nvidia-smi`: a GPU of this boot, or an "
        "expected one, is missing; gpud, AWS's runbook"),
    _fault(*_GPU, Reason.GPU_LOST, Remedy.REBOOT, "`nvidia-smi`: `ERR!`, `Unknown Error`, "
        "`GPU is lost`; gpud"),
    _fault(*_GPU, Reason.XID_RECOVERY_ACTION, Remedy.RESET_GPU, "`nvidia-smi`: recovery action "
        "`Reset`, or a reset is required; nvml.h"),
    _fault(*_GPU, Reason.XID_RECOVERY_ACTION, Remedy.REBOOT, "`nvidia-smi`: recovery action "
        "`Reboot` or `Bus Reset`; nvml.h"),
    _idle(*_GPU, Reason.XID_RECOVERY_ACTION, Remedy.RESET_GPU, "`nvidia-smi`: recovery action "
        "`Drain ...`; nvml.h"),
    _idle(*_GPU, Reason.GPU_ECC, Remedy.REBOOT, "`nvidia-smi`: uncorrected errors since the last "
        f"reset, or a repair that is pending; {_MEMORY_GUIDE}"),
    _idle(*_GPU, Reason.GPU_ROW_REMAP_PENDING, Remedy.REBOOT, "`nvidia-smi`: remapped rows are "
        f"pending; {_MEMORY_GUIDE}"),
    _fault(*_GPU, Reason.GPU_ROW_REMAP_PENDING, Remedy.REPLACE, "`nvidia-smi`: they are pending "
        "although the node was just rebooted; AWS's runbook"),
    _fault(*_GPU, Reason.GPU_ROW_REMAP_FAILED, Remedy.REPLACE, "`nvidia-smi`: remapping rows "
        f"failed; {_MEMORY_GUIDE}, AWS's runbook"),
    _idle(*_GPU, Reason.GPU_PAGE_RETIREMENT, Remedy.REBOOT, "`nvidia-smi`: pages are to be "
        f"retired; {_MEMORY_GUIDE}"),
    _fault(*_GPU, Reason.GPU_UNREPAIRABLE, Remedy.REPLACE, "`nvidia-smi`: unrepairable memory, or "
        f"too many errors of SRAM; {_MEMORY_GUIDE}"),
    _fault(*_GPU, Reason.GPU_FABRIC, Remedy.REBOOT, "`nvidia-smi`: the GPU failed to join the "
        "fabric; gpud"),
    _note(*_GPU, Reason.GPU_FABRIC, "`nvidia-smi`: it has not started to join the fabric"),
    _note(*_GPU, Reason.GPU_THERMAL, "`nvidia-smi`: clocks are throttled because of heat"),
    _note(*_GPU, Reason.GPU_POWER, "`nvidia-smi`: clocks are throttled for lack of power"),
    _note(*_GPU, Reason.GPU_READING, "`nvidia-smi`: a fan or a mode cannot be read"),
    _fault(*_HEALTH, Reason.DCGM_HEALTH, Remedy.REBOOT, "`dcgmi health`: `Failure`"),
    _note(*_HEALTH, Reason.DCGM_WARNING, "`dcgmi health`: `Warning`, or a failure of heat or "
        "power"),
    _fault(*_DIAG, Reason.DCGM_DIAG, Remedy.RESET_GPU, f"{_DIAG_ERROR} `RESET` (dcgm_errors.h)"),
    _fault(*_DIAG, Reason.DCGM_DIAG, Remedy.REBOOT, f"{_DIAG_ERROR} `TRIAGE` (dcgm_errors.h)"),
    _fault(*_DIAG, Reason.DCGM_DIAG, Remedy.REPLACE, f"{_DIAG_ERROR} `ISOLATE` or of none "
        "(dcgm_errors.h)"),
    _note(*_DIAG, Reason.DCGM_WARNING, f"{_DIAG_ERROR} `MONITOR` or `CONFIG` (dcgm_errors.h), or "
        "a warning"),
    _idle(*_POLICY, Reason.GPU_ECC, Remedy.REBOOT, "`dcgmi policy`: a double-bit error"),
    _fault(*_POLICY, Reason.GPU_PAGE_RETIREMENT, Remedy.REPLACE, "`dcgmi policy`: more than 60 "
        f"pages are retired; {_MEMORY_GUIDE}"),
    _note(*_POLICY, Reason.GPU_PAGE_RETIREMENT, "`dcgmi policy`: more pages than an operator "
        "allows"),
    _note(*_POLICY, Reason.GPU_THERMAL, "`dcgmi policy`: hotter than an operator allows"),
    _note(*_POLICY, Reason.GPU_POWER, "`dcgmi policy`: more power than an operator allows"),
    _note(*_POLICY, Reason.DCGM_WARNING, "`dcgmi policy`: PCIe replays, errors of an NVLink"),
    _fault("neuron-state", "neuron-state", Reason.NEURON_COUNT, Remedy.REBOOT, "sysfs: a device "
        "or a core of this boot, or an expected one, is missing; AWS's runbook"),
    _fault(*_NEURON, Reason.NEURON_SRAM, Remedy.REPLACE, "sysfs: `sram_ecc_uncorrected` rose; "
        f"{_NEURON_GUIDE}"),
    _fault(*_NEURON, Reason.NEURON_HBM, Remedy.REPLACE, "sysfs: `mem_ecc_uncorrected` or "
        f"`hw_hbm_ue_error` rose; {_NEURON_GUIDE}"),
    _fault(*_NEURON, Reason.NEURON_NC, Remedy.REPLACE, "sysfs: `hw_nc_ue_error` rose; "
        f"{_NEURON_GUIDE}"),
    _fault(*_NEURON, Reason.NEURON_DMA, Remedy.REPLACE, "sysfs: `hw_dma_abort_error` rose; "
        f"{_NEURON_GUIDE}"),
    _fault(*_NEURON, Reason.NEURON_HBM_REPAIRABLE, Remedy.REBOOT, "sysfs: "
        "`mem_ecc_repairable_uncorrected` or `hw_repairable_hbm_ue_error` rose; "
        f"{_NEURON_GUIDE}"),
    _fault(*_NEURON, Reason.NEURON_RESET, Remedy.REBOOT, "sysfs: `reset_fail_count` rose"),
    _note(*_NEURON, Reason.NEURON_HARDWARE, "sysfs: `hw_error` rose, which is not specific"),
    _note(*_NEURON, Reason.NEURON_COLLECTIVES, "sysfs: `hw_collectives_error` rose; the cause may "
        f"be on any node; {_NEURON_GUIDE}"),
    _fault("neuron-ls", "neuron-ls", Reason.NEURON_COUNT, Remedy.REBOOT, "`neuron-ls`: a device is "
        "missing, or has fewer cores than others; AWS's runbook"),
    _fault("neuron-monitor", "neuron-event", Reason.NEURON_SRAM, Remedy.REPLACE,
        f"`neuron-monitor`: `sram_ecc_uncorrected`; {_NEURON_GUIDE}"),
    _fault("neuron-monitor", "neuron-event", Reason.NEURON_HBM, Remedy.REPLACE,
        f"`neuron-monitor`: `mem_ecc_uncorrected`; {_NEURON_GUIDE}"),
    _note("neuron-monitor", "neuron-event", Reason.NEURON_HARDWARE,
        "`neuron-monitor`: executions failed with hardware errors"),
    _fault(*_NETWORK, Reason.EFA_COUNT, Remedy.REBOOT, "sysfs: a network device of this boot, or "
        "an expected EFA device is missing"),
    _note(*_NETWORK, Reason.EFA_COUNT, "sysfs: fewer EFA devices than the instance type can have"),
    _fault(*_NETWORK, Reason.LINK_DOWN, Remedy.REBOOT, "sysfs: a link that was up is down for more "
        "than four minutes; gpud"),
    _note(*_NETWORK, Reason.LINK_FLAPS, "sysfs: a link went down three times within an hour; gpud"),
    _note("network-state", "network-event", Reason.EFA_COUNTER, "sysfs: counters rose by more than "
        "the EKS node monitoring agent tolerates"),
    _note("network-state", "network-event", Reason.LINK_COUNTER, "sysfs: counters rose that "
        "are fatal in NVSentinel"),
    _fault("efa-devices", "fi-info", Reason.EFA_COUNT, Remedy.REBOOT, "`fi_info`: an EFA device of "
        "this boot is missing"),
    _fault("infiniband-ports", "ibstat", Reason.LINK_DOWN, Remedy.REBOOT, "`ibstat`: a port with a "
        "cable is not active for more than four minutes; gpud"),
    _note(*_HOST_MEMORY, Reason.MEMORY_EXHAUSTED, "`/proc/meminfo`: less than 100 MiB are "
        "available; gpud"),
    _note(*_HOST_MEMORY, Reason.MEMORY_PRESSURE, "`/proc/pressure/memory`: all work waits a fifth "
        "of a minute"),
    _note(*_HOST_EVENTS, Reason.OOM_KILLING, "`/proc/vmstat`: `oom_kill` rose"),
    _fault(*_HOST_EVENTS, Reason.MEMORY_CORRUPTED, Remedy.REPLACE, "`/proc/meminfo`: "
        "`HardwareCorrupted` rose; AWS's runbook"),
    _fault(*_DISK, Reason.READONLY_FILESYSTEM, Remedy.REBOOT, "`/proc/self/mountinfo`: a file "
        "system that was writable is read-only; gpud"),
    _note(*_DISK, Reason.DISK_FULL, "`statvfs`: hardly any space is free"),
    _note(*_DISK, Reason.INODES_EXHAUSTED, "`statvfs`: hardly any inodes are free"),
    _fault("edac-state", "hardware", Reason.EDAC_UNCORRECTED, Remedy.REPLACE, "sysfs: the memory "
        "controller counts uncorrected errors; AWS's runbook"),
    _note("edac-state", "hardware", Reason.EDAC_CORRECTED, "sysfs: the memory controller counts "
        "corrected errors"),
    _note(*_PROCESSES, Reason.PIDS_EXHAUSTED, "`/proc`: more than 70 % of the threads that the "
        "kernel allows; EKS node monitoring agent"),
    _note(*_PROCESSES, Reason.ZOMBIES, "`/proc`: more than 20; EKS node monitoring agent"),
    _note(*_PROCESSES, Reason.PROCESSES_STUCK, "`/proc`: blocked in two samples, not run in "
        "between; gpud"),
    _note("clock-state", "clock-state", Reason.CLOCK_UNSYNCHRONIZED, "`adjtimex`, in two samples; "
        "EKS node monitoring agent"),
    StateReason("runtime-state", "runtime-state", Reason.RUNTIME_DOWN, Severity.FATAL, Remedy.NONE,
        "its socket: it stopped responding in this boot; gpud"),
    StateReason("runtime-state", "runtime-state", Reason.KUBELET_DOWN, Severity.FATAL, Remedy.NONE,
        "its port: it stopped responding in this boot; EKS node monitoring agent"),
    StateReason("unit-state", "unit-state", Reason.UNIT_FAILED, Severity.FATAL, Remedy.NONE,
        "`systemctl`: `failed`, in two samples; EKS node monitoring agent"),
    _note("unit-state", "unit-state", Reason.UNIT_RESTARTS, "`systemctl`: restarted twice or "
        "more since the last sample; node-problem-detector"),
)
# fmt: on


def reasons_of(detector: str) -> frozenset[Reason]:
    """Return the reasons of a detector of state, including that its source failed."""
    reasons = {row.reason for row in STATE_REASONS if row.detector == detector}
    return frozenset({Reason.SOURCE_FAILED, *reasons})
