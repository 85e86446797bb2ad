"""Every published name, each spelled once.

Labels, taint and annotations are Amazon SageMaker HyperPod's, the node conditions are those of
HyperPod's health monitoring agent and of node-problem-detector (a condition is True when there is
a problem), so that existing selectors, dashboards and scripts understand Holdfast.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

LABEL_PREFIX: Final = "sagemaker.amazonaws.com"
"""HyperPod's prefix; another one can be configured."""


@dataclass(frozen=True, slots=True)
class Labels:
    """Keys of a node's labels, taint and public annotations, under one prefix."""

    prefix: str = LABEL_PREFIX

    @property
    def node_health_status(self) -> str:
        """Label with a value of ``HealthStatus``, and the key of the taint."""
        return f"{self.prefix}/node-health-status"

    @property
    def deep_health_check_status(self) -> str:
        """Label with a value of ``DeepCheckStatus``."""
        return f"{self.prefix}/deep-health-check-status"

    @property
    def deep_health_check(self) -> str:
        """Earlier AWS spelling of ``deep_health_check_status``; read, not written."""
        return f"{self.prefix}/deep-health-check"

    @property
    def enable_job_auto_resume(self) -> str:
        """Annotation of a job: ``true`` to restart it after failures of its nodes."""
        return f"{self.prefix}/enable-job-auto-resume"

    @property
    def job_max_retry_count(self) -> str:
        """Annotation of a job: maximum number of restarts after failures of its nodes."""
        return f"{self.prefix}/job-max-retry-count"

    @property
    def fault_types(self) -> str:
        """Label: condition of the worst fault."""
        return f"{self.prefix}/fault-types"

    @property
    def fault_reasons(self) -> str:
        """Label: reason of the worst fault."""
        return f"{self.prefix}/fault-reasons"

    @property
    def fault_details(self) -> str:
        """Annotation: JSON array of ``{timestamp, type, reason, message}``, newest last."""
        return f"{self.prefix}/fault-details"


OWN_PREFIX: Final = "holdfast.dev"
"""Prefix of Holdfast's own annotations and objects."""

RECORD: Final = f"{OWN_PREFIX}/record"
"""Annotation with the ``NodeRecord``; written by the controller alone."""

REPORT: Final = f"{OWN_PREFIX}/report"
"""Annotation with the agent's ``NodeReport``; written by the agent alone."""

AGENT_HEALTH_STATUS: Final = f"{OWN_PREFIX}/agent-health-status"
"""Annotation: value of the health label that the agent set, so that it is not taken for a person's
request; absent while the agent has set none."""

REQUEST: Final = f"{OWN_PREFIX}/request"
"""Annotation with the ``Request`` of a person, written by commands and the API."""

HOLD: Final = f"{OWN_PREFIX}/hold"
"""Annotation: while present, no repair starts on the node; its value is the reason."""

CORDONED: Final = f"{OWN_PREFIX}/cordoned"
"""Annotation: Holdfast cordoned the node and may uncordon it."""

REPLACES: Final = f"{OWN_PREFIX}/replaces"
"""Annotation: name of the node that this one was ordered to replace."""

JOB_RECORD: Final = f"{OWN_PREFIX}/job-record"
"""Annotation of a job with its ``JobRecord``; written by the controller alone."""

RECORD_OF: Final = f"{OWN_PREFIX}/job-record-of"
"""Annotation of a job with its UID, beside the record: a copy of a job starts with a new record."""

JOB_STATUS: Final = f"{OWN_PREFIX}/job-status"
"""Annotation of a job: history of its attempts, for people to read."""

APP_MAX_RETRY_COUNT: Final = f"{OWN_PREFIX}/app-max-retry-count"
"""Annotation of a job: maximum number of restarts after failures of the application itself."""

MANAGED_NAMESPACE: Final = "hyperpod-ns-"
"""Prefix of the namespaces of HyperPod's teams; the rest is the name of the team."""

LOG_MONITORING: Final = f"{OWN_PREFIX}/log-monitoring"
"""Annotation of a job: rules for detecting hangs in its log, as JSON or YAML: a list like
``logMonitoringConfiguration`` of HyperPod's training operator."""

LOG_MONITORING_CONFIG_MAP: Final = f"{OWN_PREFIX}/log-monitoring-config-map"
"""Annotation of a job: name of the ConfigMap in its namespace that holds such a list."""

HEARTBEAT_FILE: Final = f"{OWN_PREFIX}/heartbeat-file"
"""Annotation of a job: path in its containers of a file that its ranks touch as they progress."""

HEARTBEAT_TIMEOUT: Final = f"{OWN_PREFIX}/heartbeat-timeout"
"""Annotation of a job: maximum time between two touches of that file, such as ``10m``."""

FAULT_GRACE: Final = f"{OWN_PREFIX}/fault-grace"
"""Annotation of a job that saves on SIGTERM: time between SIGTERM and SIGKILL when a fault of
hardware stops it, such as ``2m``; at most the grace period of its pods. Without it,
``jobs.fault_grace`` applies."""

STARTUP_TIMEOUT: Final = f"{OWN_PREFIX}/startup-timeout"
"""Annotation of a job: maximum time from the start of an attempt to the first touch of that file,
such as ``1h``; without it, a job that has touched no file yet is not restarted."""

HEARTBEAT_STOPPED: Final = "HeartbeatStopped"
"""Reason of the restart of a job that stopped touching its heartbeat file."""

LOG_STATE_HANGING: Final = "LogStateHanging_"
"""Prefix of the name of such a rule: reason of the restart of a job."""

ATTEMPT: Final = f"{OWN_PREFIX}/attempt"
"""Annotation of the pods of a restarted job: the number of the attempt, 2 for the first restart.
Pods of attempt 1 do not have it: the operator creates them from the object that the user submitted,
before Holdfast writes to it. A job that reads it takes an empty value for 1."""

CONFIG: Final = f"{OWN_PREFIX}/config"
"""Annotation of Holdfast's own pods: hash of their configuration. In Holdfast's namespace, such
pods are not work: a deep health check does not wait for them."""

RESTART_REASON: Final = f"{OWN_PREFIX}/restart-reason"
"""Annotation of the pods of a restarted job: why the previous attempt was stopped."""

FAULT_DETAILS_LIMIT: Final = 20
"""Newest entries kept in the ``fault-details`` annotation, as HyperPod does."""

NODE_NAME_PREFIX: Final = "hyperpod-"
"""Prefix of a node's name: ``hyperpod-i-<17 hex digits>``."""


class HealthStatus(StrEnum):
    """Values of the ``node-health-status`` label."""

    SCHEDULABLE = "Schedulable"
    UNSCHEDULABLE = "Unschedulable"
    PENDING_REBOOT = "UnschedulablePendingReboot"
    PENDING_REPLACEMENT = "UnschedulablePendingReplacement"


PENDING_REPLACE: Final = "UnschedulablePendingReplace"
"""Spelling of ``UnschedulablePendingReplacement`` in a guide of AWS; read as a request, not
written."""


class SlurmReason(StrEnum):
    """Leading tokens of a Slurm node's reason: a person's request, or Holdfast's own action."""

    REBOOT = "Action:Reboot"
    REPLACE = "Action:Replace"
    HOLDFAST = "holdfast:"
    """Follows one of the others, or leads, where Holdfast set the reason: it is no request."""


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
    """Lists in the responses of SageMaker's batch operations."""

    SUCCESSFUL = "Successful"
    FAILED = "Failed"


class DeepCheckStatus(StrEnum):
    """Values of the ``deep-health-check-status`` label."""

    IN_PROGRESS = "InProgress"
    PASSED = "Passed"
    FAILED = "Failed"
    SKIPPED = "Skipped"
    """Not a value of HyperPod: the check could not be run, so the state of the node is unknown."""


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
"""Conditions that agents set; the controller sets the others. The admission policy of the Helm
chart restricts agents to these."""


class Reason(StrEnum):
    """Reasons of faults and failures, stable over releases."""

    XID_REPLACE = "NvidiaGpuXidErrorPendingReplacement"
    """A GPU, its link or its switch is broken."""
    XID_REBOOT = "NvidiaGpuXidErrorPendingReboot"
    """A GPU needs the node to be rebooted."""
    XID_RESET = "NvidiaGpuXidErrorPendingReset"
    """A GPU must be reset; its jobs are lost."""
    XID_RESTART_APP = "NvidiaGpuXidRestartApp"
    """A GPU failed one application and can run the next."""
    XID_USER_APP = "XidUserAppError"
    """An application made an error on the GPU."""
    XID_WARNING = "NvidiaGpuXidWarning"
    """The driver reports an event that needs no action."""
    XID_ECHO = "NvidiaGpuXidEcho"
    """A consequence of an earlier XID, which has its own finding."""
    XID_UNKNOWN = "NvidiaGpuXidUnknown"
    """An undocumented code: inspect the node."""
    XID_RECOVERY_ACTION = "NvidiaGpuRecoveryAction"
    """The driver reports which recovery action the GPU needs."""
    SXID_WARNING = "NvidiaNvSwitchSxidWarning"
    """A switch reports an error that needs no action, or whose severity is unknown."""
    GPU_INIT_FAILED = "NvidiaGpuInitFailed"
    """The driver could not initialize a GPU."""
    GPU_PROBE_FAILED = "NvidiaGpuProbeFailed"
    """The driver found a GPU that it could not use."""
    NVLINK_COUNT = "NvidiaNvLinkCountMismatch"
    """A GPU has fewer active NVLinks than it should have."""
    NVLINK_DETECT_FAILED = "NvidiaNvLinkDetectFailed"
    """The driver could not detect which NVLinks of a GPU are connected."""
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
    """The Neuron runtime reports a hardware error with an undocumented name."""
    NEURON_DMA_TIMEOUT = "NeuronDMATimeout"
    """DMA transfers of a Neuron device time out."""
    NEURON_INVALID_STATE = "NeuronInvalidState"
    """A Neuron device is not in a usable state."""
    NEURON_COMMAND_TIMEOUT = "NeuronCommandTimeout"
    """The firmware of a Neuron device did not respond to a command."""
    NEURON_SCRUB_FAILED = "NeuronScrubFailed"
    """The memory of a Neuron device could not be scrubbed."""
    NEURON_REPAIR_STATE = "NeuronRepairStateInvalid"
    """A Neuron device reports an inconsistent memory repair state; contact AWS."""
    NEURON_LINKS = "NeuronLinksMissing"
    """Neuron devices of an UltraServer do not reach each other."""
    EFA_INIT_FAILED = "EFAInitFailed"
    """An EFA device failed to initialize."""
    EFA_COMMAND_TIMEOUT = "EFACommandTimeout"
    """An EFA device does not respond to its driver."""
    MLX5_HEALTH = "Mlx5HealthCompromised"
    """A Mellanox adapter's firmware has stopped or reports a broken adapter."""
    MLX5_COMMAND_TIMEOUT = "Mlx5CommandTimeout"
    """A Mellanox adapter does not respond to its driver."""
    MLX5_TX_TIMEOUT = "Mlx5TransmitTimeout"
    """A Mellanox adapter does not transmit queued packets."""
    MLX5_TX_QUEUE = "Mlx5TransmitQueueStuck"
    """A transmit queue of a Mellanox adapter is stuck; its driver restarts the queue."""
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
    """The kernel killed a process because memory was exhausted."""
    TASK_HUNG = "TaskHung"
    """A task has been blocked in uninterruptible sleep for minutes."""
    SOFT_LOCKUP = "SoftLockup"
    """A CPU is stuck in the kernel."""
    HARD_LOCKUP = "HardLockup"
    """A CPU is stuck in the kernel and does not handle interrupts."""
    RCU_STALL = "RcuStall"
    """A CPU or a task has blocked an RCU grace period of the kernel for a long time."""
    WORKQUEUE_LOCKUP = "WorkqueueLockup"
    """Work that the kernel has queued for a CPU is not executed."""
    UNREGISTER_NET_DEVICE = "UnregisterNetDevice"
    """A network device cannot be removed because it is still in use."""
    KERNEL_PANIC = "KernelPanic"
    """The kernel panicked."""
    KERNEL_OOPS = "KernelOops"
    """The kernel hit an illegal operation and tries to continue."""
    KERNEL_BUG = "KernelBug"
    """The kernel reached a state that its code rules out."""
    MAX_OPEN_FILES = "ApproachingMaxOpenFiles"
    """The kernel refuses to open more files."""
    READONLY_FILESYSTEM = "FilesystemIsReadOnly"
    """A file system became read-only after errors."""
    XFS_SHUTDOWN = "XfsHasShutDown"
    """An XFS file system was shut down after errors."""
    EXT4_ERROR = "Ext4Error"
    """An ext4 file system is damaged."""
    EXT4_WARNING = "Ext4Warning"
    """An ext4 file system has a problem that does not stop it."""
    XFS_METADATA = "XfsMetadataError"
    """The metadata of an XFS file system cannot be read or written, or is damaged."""
    BTRFS_ERROR = "BtrfsError"
    """A btrfs file system is damaged, or an operation on it was aborted."""
    SUPERBLOCK_WRITE = "SuperblockWriteError"
    """The superblock of a file system cannot be written."""
    JOURNAL_ABORTED = "JournalAborted"
    """A file system could not write its journal."""
    IO_ERROR = "IOError"
    """A disk failed to read or write."""
    NVME_TIMEOUT = "NvmeTimeout"
    """An NVMe disk repeatedly does not respond in time."""
    NVME_RESET = "NvmeControllerReset"
    """An NVMe disk is reset because it stopped or reports an error."""
    NVME_MEDIA = "NvmeMediaError"
    """An NVMe disk reports that its media lost data or cannot be written."""
    NVME_STATUS = "NvmeStatusError"
    """An NVMe disk, or the path to it, failed a command."""
    NVME_LOST = "NvmeDeviceLost"
    """The kernel removed an NVMe disk."""
    RAID_FAILED = "RaidDiskFailure"
    """A disk of an array failed."""
    NFS_NOT_RESPONDING = "NfsServerNotResponding"
    """An NFS server does not respond."""
    LUSTRE_CONNECTION = "LustreConnectionLost"
    """A Lustre server does not respond, or has evicted this node."""
    MACHINE_CHECK = "MachineCheckUncorrected"
    """A processor reports an error that it could not correct."""
    MACHINE_CHECK_CORRECTED = "MachineCheckCorrected"
    """A processor reports errors that were corrected, as far as known."""
    MEMORY_READ_ERROR = "MemoryReadError"
    """Host memory had an error that was corrected."""
    CPER_FATAL = "CperHardwareErrorFatal"
    """The firmware reports a fatal hardware error."""
    CPER_LAST_BOOT = "CperHardwareErrorLastBoot"
    """The firmware reports the fatal hardware error that ended an earlier boot."""
    CPER_RECOVERABLE = "CperHardwareErrorRecoverable"
    """The firmware reports a hardware error that the kernel has to handle."""
    CPER_CORRECTED = "CperHardwareErrorCorrected"
    """The firmware reports a corrected hardware error."""
    PCIE_FATAL = "PCIeFatalError"
    """A PCIe link or the device at its end failed."""
    PCIE_NONFATAL = "PCIeNonFatalError"
    """A PCIe transaction failed; the link still works."""
    PCIE_CONTAINED = "PCIeContainment"
    """A PCIe port disconnected the device behind it after an error."""
    GPU_COUNT = "NvidiaDeviceCountMismatch"
    """A GPU is missing."""
    GPU_ECC = "NvidiaDoubleBitError"
    """A GPU has an uncorrectable memory error."""
    GPU_ROW_REMAP_PENDING = "NvidiaRowRemapPending"
    """A GPU has bad memory rows that its next reset remaps."""
    GPU_ROW_REMAP_FAILED = "NvidiaRowRemapFailure"
    """A GPU has bad memory rows and no spare rows left."""
    GPU_PAGE_RETIREMENT = "NvidiaPageRetirement"
    """A GPU has bad memory pages that are retired or pending retirement."""
    GPU_UNREPAIRABLE = "NvidiaUnrepairableMemory"
    """A GPU has memory that cannot be repaired."""
    GPU_LOST = "NvidiaGpuLost"
    """A GPU does not respond to its driver."""
    GPU_FABRIC = "NvidiaFabricError"
    """A GPU is not part of the NVLink fabric."""
    GPU_THERMAL = "NvidiaThermalError"
    """A GPU is throttled because of heat."""
    GPU_POWER = "NvidiaPowerError"
    """A GPU is throttled for lack of power."""
    GPU_READING = "NvidiaReadingError"
    """Some values of a GPU cannot be read."""
    DCGM_DIAG = "DCGMDiagnosticFailure"
    """A DCGM diagnostic failed."""
    DCGM_HEALTH = "DCGMHealthCodeFatal"
    """DCGM reports a failed device."""
    DCGM_WARNING = "DCGMHealthCode"
    """DCGM reports a warning for a device."""
    NEURON_COUNT = "NeuronDeviceCountMismatch"
    """A Neuron device is missing."""
    NEURON_HBM_REPAIRABLE = "NeuronHBMRepairableError"
    """A Neuron device has bad memory that its next reset repairs."""
    NEURON_HARDWARE = "NeuronHardwareError"
    """A Neuron device counts hardware errors."""
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
    """A network link repeatedly goes down and up."""
    LINK_COUNTER = "InfinibandErrorMetric"
    """An InfiniBand port counts errors."""
    NCCL_FAILED = "NvidiaNCCLError"
    """A test or a process failed in NCCL."""
    CUDA_CRASHED = "CudaLibraryCrash"
    """A process crashed in NVIDIA's CUDA driver library."""
    NCCL_SLOW = "NCCLBandwidthLow"
    """The bandwidth between nodes is too low."""
    EFA_LOOPBACK = "EFALoopbackFailed"
    """A loopback test of an EFA device failed or was too slow."""
    PAIR_FAILED = "PairTestFailed"
    """Tests of a node with other nodes failed."""
    STRESS_FAILED = "StressTestFailed"
    """A stress test failed."""
    MEMORY_EXHAUSTED = "MemoryExhausted"
    """The host has hardly any memory left."""
    MEMORY_PRESSURE = "MemoryPressureStall"
    """Processes are stalled on memory much of the time."""
    MEMORY_CORRUPTED = "MemoryHardwareCorrupted"
    """The host took memory out of use after errors."""
    EDAC_UNCORRECTED = "EdacUncorrectableError"
    """Host memory had an uncorrectable error."""
    EDAC_CORRECTED = "EdacCorrectableErrors"
    """Host memory has many correctable errors."""
    EDAC_DEVICE = "EdacDeviceError"
    """A cache or a bus reports errors."""
    DISK_FULL = "DiskFull"
    """A disk is full."""
    INODES_EXHAUSTED = "DiskInodesExhausted"
    """A file system has no free inodes."""
    CLOCK_UNSYNCHRONIZED = "ClockUnsynchronized"
    """The clock of the host is not synchronized."""
    PIDS_EXHAUSTED = "ApproachingKernelPidMax"
    """The host has hardly any process IDs left."""
    ZOMBIES = "ExcessiveZombieProcesses"
    """The host has many zombie processes."""
    PROCESSES_STUCK = "UninterruptibleProcesses"
    """Processes have been in uninterruptible sleep for minutes."""
    UNIT_FAILED = "ServiceFailedToStart"
    """A daemon that the node needs has failed, and systemd does not restart it any more."""
    UNIT_RESTARTS = "RepeatedRestart"
    """A daemon that the node needs is restarted repeatedly."""
    RUNTIME_DOWN = "ContainerRuntimeFailed"
    """The container runtime does not respond."""
    KUBELET_DOWN = "KubeletFailed"
    """The kubelet does not respond."""
    SOURCE_FAILED = "SourceFailed"
    """A data source of the detectors cannot be read."""
    DETECTOR_FAILED = "DetectorFailed"
    """A detector has a bug."""
    FAULTS_OMITTED = "FaultsOmitted"
    """More faults of one kind than a report has room for."""
    DRILL_ACTIVE = "DrillActive"
    """Until the drill ends, anyone who can write to a log of the node can have it repaired."""
    NODE_SILENT = "NodeSilent"
    """Neither the agent of a node nor the scheduler's daemon on it reports."""
    AGENT_SILENT = "AgentSilent"
    """The Holdfast agent of a node does not report, but the scheduler's daemon on it responds."""
    NODE_POWERED_OFF = "NodePoweredOff"
    """A machine is powered off."""
    NODE_LOST = "NodeLost"
    """A node is gone."""
    NODE_NEVER_JOINED = "NodeNeverJoined"
    """A new node never reported."""
    NODE_START_FAILED = "NodeStartFailed"
    """The scheduler gave up on the start of a node whose machine is running."""
    CHECK_FAILED = "DeepHealthCheckFailed"
    """A deep health check failed."""
    CHECK_NEVER_ENDED = "DeepHealthCheckTimedOut"
    """A deep health check timed out."""
    REQUESTED_REBOOT = "RebootRequested"
    """A person requested a reboot."""
    REQUESTED_REPLACE = "ReplaceRequested"
    """A person requested a replacement."""
    REQUESTED_DEEP_CHECK = "DeepHealthCheckRequested"
    """A person requested a deep health check."""
    SCHEDULED_DEEP_CHECK = "DeepHealthCheckScheduled"
    """A node without jobs is due for its scheduled deep health check."""
    DEEP_CHECK_PARTNER = "DeepHealthCheckPartner"
    """A node without jobs is the test peer of a node under a deep health check."""
    JOBS_KEEP_FAILING = "JobsKeepFailing"
    """Jobs repeatedly fail on a node that reports no fault."""
    FAULT_UNCORROBORATED = "FaultUncorroborated"
    """A log line that may be forged reports a fault, and no other reading does."""
    REPEAT_OFFENDER = "RepeatOffender"
    """A machine faulted repeatedly."""
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
    LOSS_NOT_FINITE = "LossNotFinite"
    """The loss of a job is NaN or infinite."""
    LOSS_SPIKED = "LossSpiked"
    """The loss of a job rose far above its mean."""
    LAUNCH_FAILED = "LaunchFailed"
    """A job could not be started."""


class Cause(StrEnum):
    """Causes of failed ranks, found by their signatures in logs; stable over releases."""

    IMPORT_FAILED = "ImportFailed"
    """A Python module or a shared library cannot be imported."""
    SYNTAX_INVALID = "SyntaxInvalid"
    """The program has a syntax error."""
    ARGUMENTS_INVALID = "ArgumentsInvalid"
    """The program rejects its command line."""
    COMMAND_MISSING = "CommandMissing"
    """The program to start does not exist or is not executable."""
    FILE_MISSING = "FileMissing"
    """The program opens a file that does not exist."""
    DISK_FULL = "DiskFull"
    """A file system is full, or a quota is used up."""
    CUDA_OUT_OF_MEMORY = "CudaOutOfMemory"
    """Memory of the accelerator is exhausted."""
    HOST_OUT_OF_MEMORY = "HostOutOfMemory"
    """Memory of the host, or of the container, is exhausted."""
    SHARED_MEMORY_FULL = "SharedMemoryFull"
    """``/dev/shm`` is full."""
    GPU_HARDWARE = "GpuHardware"
    """The accelerator reports a hardware error."""
    CUDA_ASSERT = "CudaAssert"
    """An assertion in a kernel failed, such as an index out of range."""
    CUDA_MEMORY_ACCESS = "CudaMemoryAccess"
    """A kernel accessed an invalid address."""
    CUDA_UNAVAILABLE = "CudaUnavailable"
    """No usable accelerator, or the driver or the build does not fit it."""
    CUDA_FAILED = "CudaFailed"
    """Another error of CUDA, cuBLAS or cuDNN."""
    NETWORK_FAILED = "NetworkFailed"
    """A connection between nodes failed for a reason of the network."""
    ADDRESS_IN_USE = "AddressInUse"
    """A port is in use by another process."""
    RENDEZVOUS_FAILED = "RendezvousFailed"
    """Ranks did not find each other at the start."""
    CHECKPOINT_DAMAGED = "CheckpointDamaged"
    """A checkpoint cannot be read."""
    CHECKPOINT_MISMATCH = "CheckpointMismatch"
    """A checkpoint does not fit the model."""
    NUMERICAL = "Numerical"
    """The training stopped because of NaN or infinity."""
    STORAGE_FAILED = "StorageFailed"
    """A file system reports an error."""
    PERMISSION_DENIED = "PermissionDenied"
    """The program may not open a file or a device."""
    DOWNLOAD_FAILED = "DownloadFailed"
    """A model or data set cannot be downloaded."""
    FILES_LIMIT = "FilesLimit"
    """Too many open files."""
    DATALOADER_DIED = "DataLoaderDied"
    """A worker of a PyTorch DataLoader ended unexpectedly."""
    COLLECTIVE_TIMEOUT = "CollectiveTimeout"
    """A collective did not complete in time: another rank did not take part."""
    PEER_LOST = "PeerLost"
    """A collective failed because another rank is gone."""
    EXCEPTION = "Exception"
    """Any other exception of the program."""
    CRASHED = "Crashed"
    """A signal of a crash, such as SIGSEGV or SIGABRT."""
    KILLED = "Killed"
    """SIGKILL by something else than Holdfast."""
    TERMINATED = "Terminated"
    """SIGTERM or SIGINT by something else than Holdfast."""


class MachineTag(StrEnum):
    """Tags of EC2 instances and Auto Scaling groups that belong to a cluster."""

    CLUSTER = "holdfast:cluster"
    """Name of the cluster; a group without it is not touched."""
    GROUP = "holdfast:group"
    """Name of the instance group."""
    SCRIPTS = "holdfast:scripts"
    """State of the lifecycle scripts of an instance: ``pending``, ``done`` or why they failed."""
