"""Every published name, each spelled once.

Labels, taint and annotations are Amazon SageMaker HyperPod's, the node conditions are those of
HyperPod's health monitoring agent and of node-problem-detector (a condition is True when there is
a problem), so that existing selectors, dashboards and scripts understand Holdfast.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

LABEL_PREFIX: Final = "sagemaker.amazonaws.com"
"""HyperPod's; another can be configured."""


@dataclass(frozen=True, slots=True)
class Labels:
    """The keys of a node's labels, its taint and its public annotations, under one prefix."""

    prefix: str = LABEL_PREFIX

    @property
    def node_health_status(self) -> str:
        """A label with a value of ``HealthStatus``, and the key of the taint."""
        return f"{self.prefix}/node-health-status"

    @property
    def deep_health_check_status(self) -> str:
        """A label with a value of ``DeepCheckStatus``."""
        return f"{self.prefix}/deep-health-check-status"

    @property
    def deep_health_check(self) -> str:
        """How an early article of AWS spells ``deep_health_check_status``; read, not written."""
        return f"{self.prefix}/deep-health-check"

    @property
    def enable_job_auto_resume(self) -> str:
        """An annotation of a job: ``true`` to have it restarted after failures of its nodes."""
        return f"{self.prefix}/enable-job-auto-resume"

    @property
    def job_max_retry_count(self) -> str:
        """An annotation of a job: how many restarts failures of its nodes may cost."""
        return f"{self.prefix}/job-max-retry-count"

    @property
    def fault_types(self) -> str:
        """A label: the condition of the worst fault."""
        return f"{self.prefix}/fault-types"

    @property
    def fault_reasons(self) -> str:
        """A label: the reason of the worst fault."""
        return f"{self.prefix}/fault-reasons"

    @property
    def fault_details(self) -> str:
        """An annotation: JSON array of ``{timestamp, type, reason, message}``, newest last."""
        return f"{self.prefix}/fault-details"


OWN_PREFIX: Final = "holdfast.dev"
"""Of annotations and objects that are ours alone."""

RECORD: Final = f"{OWN_PREFIX}/record"
"""Annotation with the ``NodeRecord``; written by the controller alone."""

REPORT: Final = f"{OWN_PREFIX}/report"
"""Annotation with the agent's ``NodeReport``; written by the agent alone."""

AGENT_HEALTH_STATUS: Final = f"{OWN_PREFIX}/agent-health-status"
"""Annotation: the health label's value that the agent set, so that nobody takes it for a
person's request; absent while the agent has set none."""

REQUEST: Final = f"{OWN_PREFIX}/request"
"""Annotation with the ``Request`` of a person, as commands and the API write it."""

HOLD: Final = f"{OWN_PREFIX}/hold"
"""Annotation: while it is there, no repair begins on the node; its value says why."""

CORDONED: Final = f"{OWN_PREFIX}/cordoned"
"""Annotation: the cordon is ours, so it is ours to undo."""

REPLACES: Final = f"{OWN_PREFIX}/replaces"
"""Annotation: name of the node that this one was ordered to replace."""

JOB_RECORD: Final = f"{OWN_PREFIX}/job-record"
"""Annotation of a job with its ``JobRecord``; written by the controller alone."""

RECORD_OF: Final = f"{OWN_PREFIX}/job-record-of"
"""Annotation of a job with its uid, beside the record: copies of a job begin anew."""

JOB_STATUS: Final = f"{OWN_PREFIX}/job-status"
"""Annotation of a job: what happened to its attempts, for people to read."""

APP_MAX_RETRY_COUNT: Final = f"{OWN_PREFIX}/app-max-retry-count"
"""Annotation of a job: how many restarts failures of the application itself may cost."""

MANAGED_NAMESPACE: Final = "hyperpod-ns-"
"""What the namespaces of HyperPod's teams begin with; the rest is the team's name."""

LOG_MONITORING: Final = f"{OWN_PREFIX}/log-monitoring"
"""Annotation of a job: rules by which its log says that it hangs, as JSON or YAML: a list like
``logMonitoringConfiguration`` of HyperPod's training operator."""

LOG_MONITORING_CONFIG_MAP: Final = f"{OWN_PREFIX}/log-monitoring-config-map"
"""Annotation of a job: name of the ConfigMap in its namespace that holds such a list."""

HEARTBEAT_FILE: Final = f"{OWN_PREFIX}/heartbeat-file"
"""Annotation of a job: path in its containers of a file that its ranks touch as they get on."""

HEARTBEAT_TIMEOUT: Final = f"{OWN_PREFIX}/heartbeat-timeout"
"""Annotation of a job: the longest time between two touches of that file, such as ``10m``."""

STARTUP_TIMEOUT: Final = f"{OWN_PREFIX}/startup-timeout"
"""Annotation of a job: the longest time from the start of an attempt to the first touch of that
file, such as ``1h``; without it, a job that has touched no file yet is not restarted."""

HEARTBEAT_STOPPED: Final = "HeartbeatStopped"
"""The reason why a job was restarted whose file nobody touched any more."""

LOG_STATE_HANGING: Final = "LogStateHanging_"
"""Before the name of such a rule: the reason why a job was restarted."""

ATTEMPT: Final = f"{OWN_PREFIX}/attempt"
"""Annotation of the pods of a restarted job: the number of the attempt, 2 for the first restart."""

RESTART_REASON: Final = f"{OWN_PREFIX}/restart-reason"
"""Annotation of the pods of a restarted job: the reason why the attempt before was stopped."""

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


PENDING_REPLACE: Final = "UnschedulablePendingReplace"
"""How a guide of AWS spells ``UnschedulablePendingReplacement``; read as a request, not written."""


class SlurmReason(StrEnum):
    """Leading tokens of a Slurm node's reason: what a person asks for, or what we do about it."""

    REBOOT = "Action:Reboot"
    REPLACE = "Action:Replace"
    OURS = "holdfast:"
    """Follows one of the others, or leads, where the reason is ours: so it asks for nothing."""


class PodPhase(StrEnum):
    """Values of a pod's ``status.phase``."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class DeepCheck(StrEnum):
    """SageMaker's ``DeepHealthCheckType``."""

    STRESS = "InstanceStress"
    CONNECTIVITY = "InstanceConnectivity"


class BatchResponse(StrEnum):
    """Lists in the answers of SageMaker's batch operations."""

    SUCCESSFUL = "Successful"
    FAILED = "Failed"


class DeepCheckStatus(StrEnum):
    """Values of the ``deep-health-check-status`` label."""

    IN_PROGRESS = "InProgress"
    PASSED = "Passed"
    FAILED = "Failed"
    SKIPPED = "Skipped"
    """Not one of HyperPod's: the check could not be run, so it says nothing about the node."""


class PluginGroup(StrEnum):
    """Entry-point groups in which packages register extensions."""

    PROVIDERS = "holdfast.providers"
    DETECTORS = "holdfast.detectors"
    CHECKPOINT_FORMATS = "holdfast.checkpoint_formats"


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
"""Conditions that agents set; the controller decides on the others. The admission policy of the
Helm chart lets agents write these alone."""


class Reason(StrEnum):
    """Causes, stable over releases."""

    XID_REPLACE = "NvidiaGpuXidErrorPendingReplacement"
    """A GPU, its link or its switch is broken."""
    XID_REBOOT = "NvidiaGpuXidErrorPendingReboot"
    """A GPU needs the node to be rebooted."""
    XID_RESET = "NvidiaGpuXidErrorPendingReset"
    """A GPU must be reset; its jobs are lost."""
    XID_RESTART_APP = "NvidiaGpuXidRestartApp"
    """A GPU failed one application and is fit for the next."""
    XID_USER_APP = "XidUserAppError"
    """An application made an error on the GPU."""
    XID_WARNING = "NvidiaGpuXidWarning"
    """The driver reports something that calls for nothing."""
    XID_ECHO = "NvidiaGpuXidEcho"
    """Follows from an earlier XID, which is judged by itself."""
    XID_UNKNOWN = "NvidiaGpuXidUnknown"
    """A code that nobody explains: people must look."""
    XID_RECOVERY_ACTION = "NvidiaGpuRecoveryAction"
    """The driver says itself what the GPU needs."""
    SXID_WARNING = "NvidiaNvSwitchSxidWarning"
    """A switch reports an error that calls for nothing, or does not say how bad it is."""
    GPU_INIT_FAILED = "NvidiaGpuInitFailed"
    """The driver could not bring up a GPU."""
    GPU_PROBE_FAILED = "NvidiaGpuProbeFailed"
    """The driver found a GPU that it could not use."""
    NVLINK_COUNT = "NvidiaNvLinkCountMismatch"
    """A GPU has fewer active NVLinks than it should have."""
    NVLINK_DETECT_FAILED = "NvidiaNvLinkDetectFailed"
    """The driver could not find out which NVLinks of a GPU have a partner."""
    NEURON_SRAM = "NeuronHasError_SRAM_UNCORRECTABLE_ERROR"
    """A Neuron device has an uncorrectable error in on-chip memory."""
    NEURON_NC = "NeuronHasError_NC_UNCORRECTABLE_ERROR"
    """A Neuron core has an uncorrectable error."""
    NEURON_HBM = "NeuronHasError_HBM_UNCORRECTABLE_ERROR"
    """A Neuron device has an uncorrectable error in its main memory."""
    NEURON_DMA = "NeuronHasError_DMA_ERROR"
    """A Neuron device failed to move data."""
    NEURON_HANG = "NeuronHasError_HANG_ON_COLLECTIVES"
    """A collective operation hangs; the cause may be on any node of the job."""
    NEURON_UNKNOWN = "NeuronHasError_UNKNOWN"
    """The Neuron runtime reports a hardware error under a name that nobody explains."""
    NEURON_DMA_TIMEOUT = "NeuronDMATimeout"
    """A Neuron device does not finish its transfers."""
    NEURON_INVALID_STATE = "NeuronInvalidState"
    """A Neuron device is not in a state in which it can be used."""
    NEURON_COMMAND_TIMEOUT = "NeuronCommandTimeout"
    """The firmware of a Neuron device did not answer a command."""
    NEURON_SCRUB_FAILED = "NeuronScrubFailed"
    """The memory of a Neuron device could not be cleaned."""
    NEURON_REPAIR_STATE = "NeuronRepairStateInvalid"
    """A Neuron device contradicts itself about its memory; ask AWS."""
    NEURON_LINKS = "NeuronLinksMissing"
    """Neuron devices of an UltraServer do not reach each other."""
    EFA_INIT_FAILED = "EFAInitFailed"
    """An EFA device did not come up."""
    EFA_COMMAND_TIMEOUT = "EFACommandTimeout"
    """An EFA device does not answer its driver."""
    MLX5_HEALTH = "Mlx5HealthCompromised"
    """A Mellanox adapter's firmware has stopped or reports a broken adapter."""
    MLX5_COMMAND_TIMEOUT = "Mlx5CommandTimeout"
    """A Mellanox adapter does not answer its driver."""
    MLX5_TX_TIMEOUT = "Mlx5TransmitTimeout"
    """A Mellanox adapter does not send what it was given."""
    MLX5_TX_QUEUE = "Mlx5TransmitQueueStuck"
    """A Mellanox adapter stopped sending from one queue; its driver restarts the queue."""
    MLX5_MODULE = "Mlx5PortModuleError"
    """A cable or transceiver of a Mellanox adapter has a problem."""
    MLX5_TEMPERATURE = "Mlx5HighTemperature"
    """A Mellanox adapter, or the transceiver in it, is too hot."""
    MLX5_SLOT_POWER = "Mlx5InsufficientPower"
    """A Mellanox adapter gets too little power for itself or its transceiver."""
    MLX5_FIRMWARE = "Mlx5FirmwareError"
    """The firmware of a Mellanox adapter reports an error that its driver tries to recover from."""
    PEERMEM = "NvidiaPeermemError"
    """The GPU driver and the network driver disagree about memory that they share."""
    OOM_KILLING = "OOMKilling"
    """The kernel ended a process because memory had run out."""
    TASK_HUNG = "TaskHung"
    """A task has waited for something for minutes and cannot be interrupted."""
    SOFT_LOCKUP = "SoftLockup"
    """A CPU is stuck in the kernel."""
    HARD_LOCKUP = "HardLockup"
    """A CPU is stuck in the kernel and does not even take interrupts."""
    RCU_STALL = "RcuStall"
    """A CPU or a task has kept the kernel from tidying up for a long time."""
    WORKQUEUE_LOCKUP = "WorkqueueLockup"
    """Work that the kernel has queued for a CPU is not executed."""
    UNREGISTER_NET_DEVICE = "UnregisterNetDevice"
    """A network device cannot be removed, as something still uses it."""
    KERNEL_PANIC = "KernelPanic"
    """The kernel gave up."""
    KERNEL_OOPS = "KernelOops"
    """The kernel did something illegal and goes on as well as it can."""
    KERNEL_BUG = "KernelBug"
    """The kernel found itself in a state that its authors thought impossible."""
    MAX_OPEN_FILES = "ApproachingMaxOpenFiles"
    """The kernel refuses to open more files."""
    READONLY_FILESYSTEM = "FilesystemIsReadOnly"
    """A file system takes no writes any more, after errors."""
    XFS_SHUTDOWN = "XfsHasShutDown"
    """An XFS file system has stopped, after errors."""
    EXT4_ERROR = "Ext4Error"
    """An ext4 file system is damaged."""
    EXT4_WARNING = "Ext4Warning"
    """An ext4 file system has a problem that it can live with."""
    XFS_METADATA = "XfsMetadataError"
    """The metadata of an XFS file system cannot be read or written, or is damaged."""
    BTRFS_ERROR = "BtrfsError"
    """A btrfs file system is damaged, or an operation on it was aborted."""
    SUPERBLOCK_WRITE = "SuperblockWriteError"
    """The superblock of a file system cannot be written."""
    JOURNAL_ABORTED = "JournalAborted"
    """A file system could not write its journal."""
    IO_ERROR = "IOError"
    """A disk failed to read or write something."""
    NVME_TIMEOUT = "NvmeTimeout"
    """An NVMe disk does not answer in time, again and again."""
    NVME_RESET = "NvmeControllerReset"
    """An NVMe disk is reset, as it stopped or reports an error."""
    NVME_MEDIA = "NvmeMediaError"
    """An NVMe disk reports that its media lost data or cannot be written."""
    NVME_STATUS = "NvmeStatusError"
    """An NVMe disk, or the path to it, failed a command."""
    NVME_LOST = "NvmeDeviceLost"
    """The kernel gave up an NVMe disk."""
    RAID_FAILED = "RaidDiskFailure"
    """A disk of an array failed."""
    NFS_NOT_RESPONDING = "NfsServerNotResponding"
    """A file server does not answer."""
    LUSTRE_CONNECTION = "LustreConnectionLost"
    """A Lustre server does not answer, or has dropped this node."""
    MACHINE_CHECK = "MachineCheckUncorrected"
    """A processor reports an error that it could not correct."""
    MACHINE_CHECK_CORRECTED = "MachineCheckCorrected"
    """A processor reports errors, as far as is known corrected ones."""
    MEMORY_READ_ERROR = "MemoryReadError"
    """Host memory had an error that was corrected."""
    CPER_FATAL = "CperHardwareErrorFatal"
    """The firmware reports a fatal hardware error."""
    CPER_LAST_BOOT = "CperHardwareErrorLastBoot"
    """The firmware reports the fatal hardware error that ended an earlier boot."""
    CPER_RECOVERABLE = "CperHardwareErrorRecoverable"
    """The firmware reports a hardware error that the kernel has to deal with."""
    CPER_CORRECTED = "CperHardwareErrorCorrected"
    """The firmware reports a corrected hardware error."""
    PCIE_FATAL = "PCIeFatalError"
    """A PCIe link or the device at its end failed."""
    PCIE_NONFATAL = "PCIeNonFatalError"
    """A PCIe transaction failed; the link still works."""
    PCIE_CONTAINED = "PCIeContainment"
    """A PCIe port took the device behind it off the bus after an error."""
    GPU_COUNT = "NvidiaDeviceCountMismatch"
    """A GPU is missing."""
    GPU_ECC = "NvidiaDoubleBitError"
    """The memory of a GPU lost data."""
    GPU_ROW_REMAP_PENDING = "NvidiaRowRemapPending"
    """A GPU has bad memory that its next reset takes out of use."""
    GPU_ROW_REMAP_FAILED = "NvidiaRowRemapFailure"
    """A GPU has bad memory and nothing left to replace it."""
    GPU_PAGE_RETIREMENT = "NvidiaPageRetirement"
    """A GPU has bad pages that it takes, or has taken, out of use."""
    GPU_UNREPAIRABLE = "NvidiaUnrepairableMemory"
    """A GPU has memory that cannot be repaired."""
    GPU_LOST = "NvidiaGpuLost"
    """A GPU does not answer its driver."""
    GPU_FABRIC = "NvidiaFabricError"
    """A GPU is not part of the NVLink fabric."""
    GPU_THERMAL = "NvidiaThermalError"
    """A GPU is slowed down by heat."""
    GPU_POWER = "NvidiaPowerError"
    """A GPU is slowed down for want of power."""
    GPU_READING = "NvidiaReadingError"
    """Some values of a GPU cannot be read."""
    DCGM_DIAG = "DCGMDiagnosticFailure"
    """A diagnosis of DCGM failed."""
    DCGM_HEALTH = "DCGMHealthCodeFatal"
    """DCGM finds a device unfit."""
    DCGM_WARNING = "DCGMHealthCode"
    """DCGM warns of a device."""
    NEURON_COUNT = "NeuronDeviceCountMismatch"
    """A Neuron device is missing."""
    NEURON_HBM_REPAIRABLE = "NeuronHBMRepairableError"
    """A Neuron device has bad memory that its next reset repairs."""
    NEURON_HARDWARE = "NeuronHardwareError"
    """A Neuron device counts errors of its hardware."""
    NEURON_COLLECTIVES = "NeuronCollectivesError"
    """Collective operations fail on a Neuron device."""
    NEURON_RESET = "NeuronResetFailed"
    """A Neuron device cannot be reset."""
    NEURON_SOFTWARE = "NeuronRuntimeError"
    """The Neuron runtime reports errors."""
    EFA_COUNT = "EFADeviceCountMismatch"
    """An EFA device is missing."""
    EFA_COUNTER = "EFAErrorMetric"
    """An EFA device counts errors."""
    LINK_DOWN = "NetworkLinkDown"
    """A network link is down."""
    LINK_FLAPS = "NetworkLinkFlapping"
    """A network link goes down and comes up again and again."""
    LINK_COUNTER = "InfinibandErrorMetric"
    """An InfiniBand port counts errors."""
    NCCL_FAILED = "NvidiaNCCLError"
    """A test or a process failed within NVIDIA's communication library."""
    CUDA_CRASHED = "CudaLibraryCrash"
    """A process crashed within NVIDIA's CUDA driver library."""
    NCCL_SLOW = "NCCLBandwidthLow"
    """Nodes talk to each other more slowly than they should."""
    EFA_LOOPBACK = "EFALoopbackFailed"
    """An EFA device does not reach itself, or not as it should."""
    PAIR_FAILED = "PairTestFailed"
    """A node cannot talk to other nodes as it should."""
    STRESS_FAILED = "StressTestFailed"
    """A stress test failed."""
    MEMORY_EXHAUSTED = "MemoryExhausted"
    """The host has hardly any memory left."""
    MEMORY_PRESSURE = "MemoryPressureStall"
    """Processes wait for memory much of the time."""
    MEMORY_CORRUPTED = "MemoryHardwareCorrupted"
    """The host took memory out of use after errors."""
    EDAC_UNCORRECTED = "EdacUncorrectableError"
    """Host memory lost data."""
    EDAC_CORRECTED = "EdacCorrectableErrors"
    """Host memory has many errors, as yet corrected ones."""
    EDAC_DEVICE = "EdacDeviceError"
    """A cache or a bus reports errors."""
    DISK_FULL = "DiskFull"
    """A disk is full."""
    INODES_EXHAUSTED = "DiskInodesExhausted"
    """A file system can hold no more files."""
    CLOCK_UNSYNCHRONIZED = "ClockUnsynchronized"
    """The clock of the host is not kept right."""
    PIDS_EXHAUSTED = "ApproachingKernelPidMax"
    """The host can hardly start another process."""
    ZOMBIES = "ExcessiveZombieProcesses"
    """Many processes have ended that nobody has taken note of."""
    PROCESSES_STUCK = "UninterruptibleProcesses"
    """Processes have waited in the kernel for minutes and cannot be interrupted."""
    UNIT_FAILED = "ServiceFailedToStart"
    """A daemon that the node needs has failed, and systemd has given it up."""
    UNIT_RESTARTS = "RepeatedRestart"
    """A daemon that the node needs is started again and again."""
    RUNTIME_DOWN = "ContainerRuntimeFailed"
    """The container runtime does not answer."""
    KUBELET_DOWN = "KubeletFailed"
    """The kubelet does not answer."""
    SOURCE_FAILED = "SourceFailed"
    """Something that detectors read cannot be read."""
    DETECTOR_FAILED = "DetectorFailed"
    """A detector has a bug."""
    NODE_SILENT = "NodeSilent"
    """Neither the agent of a node nor the scheduler's daemon on it was heard."""
    AGENT_SILENT = "AgentSilent"
    """The scheduler's daemon on a node answers, its Holdfast agent does not."""
    NODE_POWERED_OFF = "NodePoweredOff"
    """A machine is off."""
    NODE_LOST = "NodeLost"
    """A node is gone."""
    NODE_NEVER_JOINED = "NodeNeverJoined"
    """A new node never reported."""
    NODE_START_FAILED = "NodeStartFailed"
    """The scheduler gave up on the start of a node whose machine is up."""
    CHECK_FAILED = "DeepHealthCheckFailed"
    """A deep health check failed."""
    CHECK_NEVER_ENDED = "DeepHealthCheckTimedOut"
    """A deep health check did not end in time."""
    REQUESTED_REBOOT = "RebootRequested"
    """A person asked for it."""
    REQUESTED_REPLACE = "ReplaceRequested"
    """A person asked for it."""
    REQUESTED_DEEP_CHECK = "DeepHealthCheckRequested"
    """A person asked for it."""
    SCHEDULED_DEEP_CHECK = "DeepHealthCheckScheduled"
    """A node without jobs was checked last long ago."""
    DEEP_CHECK_PARTNER = "DeepHealthCheckPartner"
    """A node without jobs is the other end of tests with a node under a deep health check."""
    JOBS_KEEP_FAILING = "JobsKeepFailing"
    """Jobs fail again and again on a node that reports no fault."""
    REPEAT_OFFENDER = "RepeatOffender"
    """A machine faulted again and again."""
    RANK_EXITED = "RankExited"
    """A process of a job ended with an error."""
    RANK_EVICTED = "RankEvicted"
    """A process of a job was evicted from its node."""
    NODE_REMOVED = "NodeRemoved"
    """A node of a job is removed on request."""
    MANAGER_STOPPED = "ManagerStopped"
    """The process that manages the cluster of a job was stopped."""
    JOB_HUNG = "JobHung"
    """A job made no progress."""
    LAUNCH_FAILED = "LaunchFailed"
    """A job could not be started."""


class MachineTag(StrEnum):
    """Tags of EC2 instances and Auto Scaling groups that were made for a cluster."""

    CLUSTER = "holdfast:cluster"
    """Its name; a group without it is not touched."""
    GROUP = "holdfast:group"
    """The instance group."""
    SCRIPTS = "holdfast:scripts"
    """How the lifecycle scripts of an instance ended: ``pending``, ``done`` or why they failed."""
