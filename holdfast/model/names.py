"""Every published name, each spelled once.

Labels, taint and annotations are Amazon SageMaker HyperPod's, the node conditions are those of
HyperPod's health monitoring agent and of node-problem-detector (a condition is True when there is
a problem), so that existing selectors, dashboards and scripts understand Holdfast.
"""

from enum import StrEnum
from typing import Final

LABEL_PREFIX: Final = "sagemaker.amazonaws.com"
NODE_HEALTH_STATUS: Final = f"{LABEL_PREFIX}/node-health-status"
DEEP_HEALTH_CHECK_STATUS: Final = f"{LABEL_PREFIX}/deep-health-check-status"
FAULT_TYPES: Final = f"{LABEL_PREFIX}/fault-types"
FAULT_REASONS: Final = f"{LABEL_PREFIX}/fault-reasons"
FAULT_DETAILS: Final = f"{LABEL_PREFIX}/fault-details"

FAULT_DETAILS_LIMIT: Final = 20
"""Newest entries kept in the ``fault-details`` annotation, as HyperPod does."""

NODE_NAME_PREFIX: Final = "hyperpod-"
"""A node is called ``hyperpod-i-<17 hex digits>``."""


class HealthStatus(StrEnum):
    """Values of the ``node-health-status`` label."""

    SCHEDULABLE = "Schedulable"
    UNSCHEDULABLE = "Unschedulable"
    PENDING_REBOOT = "UnschedulablePendingReboot"
    PENDING_REPLACEMENT = "UnschedulablePendingReplacement"


class DeepCheckStatus(StrEnum):
    """Values of the ``deep-health-check-status`` label."""

    IN_PROGRESS = "InProgress"
    PASSED = "Passed"
    FAILED = "Failed"


class Condition(StrEnum):
    """Types of node conditions; True means that there is a problem."""

    NVIDIA_TERMINATE = "NvidiaErrorTerminate"
    NVIDIA_REBOOT = "NvidiaErrorReboot"
    NVIDIA_GPU_UNHEALTHY = "NvidiaGPUUnhealthy"
    NEURON = "NeuronHealth"
    NETWORK = "NetworkFaultType"
    HOST_HARDWARE = "HostHardwareError"
    READONLY_FILESYSTEM = "ReadonlyFilesystem"
    SOFTWARE = "SoftwareError"
    NODE_LOST = "NodeLost"
    REQUESTED = "RequestedByUser"
    REPEAT_OFFENDER = "RepeatOffender"
    DEEP_CHECK = "DeepHealthCheckFailed"


class Reason(StrEnum):
    """Causes, stable over releases."""

    XID_REPLACE = "NvidiaGpuXidErrorPendingReplacement"
    XID_REBOOT = "NvidiaGpuXidErrorPendingReboot"
    XID_RESET = "NvidiaGpuXidErrorPendingReset"
    XID_RESTART_APP = "NvidiaGpuXidRestartApp"
    XID_USER_APP = "XidUserAppError"
    XID_WARNING = "NvidiaGpuXidWarning"
    XID_ECHO = "NvidiaGpuXidEcho"
    XID_UNKNOWN = "NvidiaGpuXidUnknown"
    XID_RECOVERY_ACTION = "NvidiaGpuRecoveryAction"
    GPU_COUNT = "NvidiaDeviceCountMismatch"
    GPU_ECC = "NvidiaDoubleBitError"
    GPU_ROW_REMAP_PENDING = "NvidiaRowRemapPending"
    GPU_ROW_REMAP_FAILED = "NvidiaRowRemapFailure"
    GPU_PAGE_RETIREMENT = "NvidiaPageRetirement"
    GPU_UNREPAIRABLE = "NvidiaUnrepairableMemory"
    GPU_LOST = "NvidiaGpuLost"
    GPU_FABRIC = "NvidiaFabricError"
    GPU_THERMAL = "NvidiaThermalError"
    GPU_POWER = "NvidiaPowerError"
    GPU_READING = "NvidiaReadingError"
    DCGM_DIAG = "DCGMDiagnosticFailure"
    DCGM_HEALTH = "DCGMHealthCodeFatal"
    DCGM_WARNING = "DCGMHealthCode"
    NEURON_COUNT = "NeuronDeviceCountMismatch"
    NEURON_SRAM = "NeuronSRAMUncorrectableError"
    NEURON_HBM = "NeuronHBMUncorrectableError"
    NEURON_HBM_REPAIRABLE = "NeuronHBMRepairableError"
    NEURON_NC = "NeuronNCUncorrectableError"
    NEURON_DMA = "NeuronDMAError"
    NEURON_HARDWARE = "NeuronHardwareError"
    NEURON_COLLECTIVES = "NeuronCollectivesError"
    NEURON_RESET = "NeuronResetFailed"
    NEURON_SOFTWARE = "NeuronRuntimeError"
    EFA_COUNT = "EFADeviceCountMismatch"
    EFA_COUNTER = "EFAErrorMetric"
    LINK_DOWN = "NetworkLinkDown"
    LINK_FLAPS = "NetworkLinkFlapping"
    LINK_COUNTER = "InfinibandErrorMetric"
    NCCL_FAILED = "NvidiaNCCLError"
    NCCL_SLOW = "NCCLBandwidthLow"
    STRESS_FAILED = "StressTestFailed"
    MEMORY_EXHAUSTED = "MemoryExhausted"
    MEMORY_PRESSURE = "MemoryPressureStall"
    MEMORY_CORRUPTED = "MemoryHardwareCorrupted"
    EDAC_UNCORRECTED = "EdacUncorrectableError"
    EDAC_CORRECTED = "EdacCorrectableErrors"
    DISK_FULL = "DiskFull"
    INODES_EXHAUSTED = "DiskInodesExhausted"
    READONLY_FILESYSTEM = "FilesystemIsReadOnly"
    CLOCK_UNSYNCHRONIZED = "ClockUnsynchronized"
    PIDS_EXHAUSTED = "ApproachingKernelPidMax"
    ZOMBIES = "ExcessiveZombieProcesses"
    RUNTIME_DOWN = "ContainerRuntimeFailed"
    KUBELET_DOWN = "KubeletFailed"
    SOURCE_FAILED = "SourceFailed"
    DETECTOR_FAILED = "DetectorFailed"
    NODE_SILENT = "NodeSilent"
    NODE_POWERED_OFF = "NodePoweredOff"
    NODE_LOST = "NodeLost"
    NODE_NEVER_JOINED = "NodeNeverJoined"
    CHECK_FAILED = "DeepHealthCheckFailed"
    CHECK_NEVER_ENDED = "DeepHealthCheckTimedOut"
    REQUESTED_REBOOT = "RebootRequested"
    REQUESTED_REPLACE = "ReplaceRequested"
    REQUESTED_DEEP_CHECK = "DeepHealthCheckRequested"
    REPEAT_OFFENDER = "RepeatOffender"
    RANK_EXITED = "RankExited"
    JOB_HUNG = "JobHung"
    LAUNCH_FAILED = "LaunchFailed"
