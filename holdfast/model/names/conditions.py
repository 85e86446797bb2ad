"""Types of node conditions."""

from enum import StrEnum
from typing import Final


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
    KERNEL_DEADLOCK = "KernelDeadlock"
    XFS_SHUTDOWN = "XfsShutdown"
    DISK = "DiskError"
    HOST_MEMORY = "HostMemoryExhausted"
    CPER_FATAL = "CperHardwareErrorFatal"
    NODE_LOST = "NodeLost"
    REQUESTED = "RequestedByUser"
    REPEAT_OFFENDER = "RepeatOffender"
    DEEP_CHECK = "DeepHealthCheckFailed"
    AGENT_SILENT = "AgentSilent"


AGENT_CONDITIONS: Final = tuple(
    condition
    for condition in Condition
    if condition
    not in (
        Condition.NODE_LOST,
        Condition.REQUESTED,
        Condition.REPEAT_OFFENDER,
        Condition.DEEP_CHECK,
        Condition.AGENT_SILENT,
    )
)
"""Conditions that agents set; the controller sets the others. The admission policy of the Helm
chart restricts agents to these."""
