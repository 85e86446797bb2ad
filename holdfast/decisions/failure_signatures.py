"""Signatures of failures in the logs of ranks: one row for each wording, with its source.

Rows are tried in order, and the first match counts: the wording of a cause comes before that of its
consequences, and a specific wording before a general one.
"""

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from holdfast.model.names import Cause


@dataclass(frozen=True, slots=True)
class Signature:
    """Wording of a failure."""

    cause: Cause
    pattern: str
    """Regular expression that is searched for in one exception or line of a log."""

    example: str
    source: str

    def is_in(self, text: str) -> bool:
        """Return whether a text has this wording. Commands that need no signature compile none."""
        return re.search(self.pattern, text) is not None


def _row(cause: Cause, pattern: str, example: str, source: str) -> Signature:
    return Signature(cause, pattern, example, source)


_CUDA: Final = "CUDA runtime, cudaGetErrorString"
_ERRNO: Final = "Linux errno, strerror"
_PYTHON: Final = "CPython, built-in exceptions"

SIGNATURES: Final = (
    _row(
        Cause.COMMAND_MISSING,
        r"python[\d.]*: can't open file|: command not found$|exec: .{1,200}: not found"
        r"|^cannot run '.{1,200}': ",
        "/usr/bin/python: can't open file 'train.py': [Errno 2] No such file or directory",
        "CPython, Modules/main.c; POSIX shells; holdfast launch",
    ),
    # Shared memory before full disks: both are ENOSPC.
    _row(
        Cause.SHARED_MEMORY_FULL,
        r"killed by signal: Bus error|insufficient shared memory|out of shared memory"
        r"|unable to (?:write to|open|resize|allocate) (?:file |shared memory).{0,80}/?torch_\d"
        r"(?!.{0,80}Too many open files)"
        r"|No space left on device.{0,20}/dev/shm|/dev/shm.{0,80}No space left"
        r"|posix_fallocate failed|failed to extend /dev/shm",
        "RuntimeError: DataLoader worker (pid 325) is killed by signal: Bus error.",
        "PyTorch, torch/utils/data/_utils/signal_handling.py; NCCL, src/misc/shmutils.cc",
    ),
    _row(
        Cause.HOST_OUT_OF_MEMORY,
        r"DataLoader worker \(pid[^)]{0,40}\) is killed by signal: Killed",
        "RuntimeError: DataLoader worker (pid 8) is killed by signal: Killed.",
        "PyTorch, torch/utils/data/_utils/signal_handling.py",
    ),
    _row(
        Cause.DISK_FULL,
        r"\[Errno 28\]|[Nn]o space left on device|StorageFull|[Dd]isk quota exceeded|\[Errno 122\]",
        "OSError: [Errno 28] No space left on device",
        _ERRNO,
    ),
    _row(
        Cause.DISK_FULL,
        r"PytorchStreamWriter failed writing|unexpected pos \d+ vs",
        "RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 64 vs 0",
        "PyTorch, caffe2/serialize/inline_container.cc: the write of a checkpoint was cut short",
    ),
    _row(
        Cause.CUDA_OUT_OF_MEMORY,
        r"(?:CUDA|HIP|XPU|NPU) out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED"
        r"|\b(?:torch|cuda)\.OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB.",
        "PyTorch, c10/cuda/CUDACachingAllocator.cpp",
    ),
    _row(
        Cause.CUDA_OUT_OF_MEMORY,
        r"RESOURCE_EXHAUSTED: (?:Out of memory|Attempting to (?:reserve|allocate))"
        r"|ResourceExhaustedError: |OOM when allocating tensor|Cuda failure.{0,6}'out of memory'",
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes.",
        "XLA, bfc_allocator.cc; TensorFlow, core/framework; NCCL, src/include/checks.h",
    ),
    _row(
        Cause.GPU_HARDWARE,
        r"uncorrectable (?:ECC|NVLink) error|ECC_UNCORRECTABLE|fallen off the bus"
        r"|hardware stack error|CUDA error: unknown error|GPU is lost|cudaErrorDevicesUnavailable",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        _CUDA,
    ),
    _row(
        Cause.CUDA_ASSERT,
        r"device-side assert triggered|: block: \[\d+,\d+,\d+\].{0,80}Assertion",
        "RuntimeError: CUDA error: device-side assert triggered",
        _CUDA,
    ),
    _row(
        Cause.CUDA_MEMORY_ACCESS,
        r"illegal memory access|misaligned address|unspecified launch failure"
        r"|illegal instruction was encountered",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        _CUDA,
    ),
    _row(
        Cause.CUDA_UNAVAILABLE,
        r"no kernel image is available|driver version is insufficient|NVIDIA driver on your system"
        r"|[Nn]o CUDA-capable device|Found no NVIDIA driver|invalid device ordinal"
        r"|No CUDA GPUs are available|Torch not compiled with CUDA|system not yet initialized"
        r"|CUDA unknown error - this may be|requires GPU support|all CUDA-capable devices are busy",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        _CUDA,
    ),
    _row(
        Cause.CUDA_UNAVAILABLE,
        r"[Dd]river/library version mismatch",
        "Failed to initialize NVML: Driver/library version mismatch",
        "NVML, nvmlErrorString",
    ),
    _row(
        Cause.COLLECTIVE_INVALID,
        r"ncclInvalid(?:Usage|Argument)|NCCL error in:.{0,200}invalid (?:usage|argument)"
        r"|Duplicate GPU detected|[Mm]ismatch(?:ed)? (?:between )?collectives? (?:on|detected)",
        "DistBackendError: NCCL error in: NCCLUtils.hpp:275, invalid usage (run with",
        "NCCL, src/init.cc; PyTorch, torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp",
    ),
    _row(
        Cause.ADDRESS_IN_USE,
        r"EADDRINUSE|[Aa]ddress already in use|\[Errno 98\]",
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
        "network address. port: 29500, code: -98, name: EADDRINUSE",
        "PyTorch, torch/csrc/distributed/c10d/socket.cpp",
    ),
    _row(
        Cause.NETWORK_FAILED,
        r"[Nn]o route to host|[Nn]etwork is unreachable|IBV_WC_\w{0,20}ERR"
        r"|ibv_\w{1,40}.{0,60}failed|Got completion (?:from|with).{0,80}(?:error|status)"
        r"|Name or service not known|Temporary failure in name resolution|gai error"
        r"|Address family not supported by protocol|no socket interface found"
        r"|connectFullMesh failed",
        "ncclSystemError: socketStartConnect: Connect to 10.0.0.14<52> failed : No route to host",
        "NCCL, src/misc/socket.cc, bootstrap.cc, transport/net_ib.cc; gloo, transport/pair.cc",
    ),
    _row(
        Cause.RENDEZVOUS_FAILED,
        r"Rendezvous\w{0,20}Error|waiting for clients\. \d+/\d+ clients joined"
        r"|The client socket has (?:timed out|failed to connect)",
        "RendezvousTimeoutError",
        "PyTorch, torch/distributed/elastic/rendezvous and torch/csrc/distributed/c10d",
    ),
    _row(
        Cause.COLLECTIVE_TIMEOUT,
        r"(?i:watchdog caught collective|collective operation timeout|timed out waiting)"
        r"|(?i:wait timeout after \d+ms|socket timeout)"
        r"|Timed out waiting \d+ms for (?:recv|send) operation",
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=SEND",
        "PyTorch, torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp; gloo, transport",
    ),
    _row(
        Cause.PEER_LOST,
        r"(?i:connection (?:was )?(?:closed|reset|refused|aborted)|connection was likely closed"
        r"|broken pipe|remote process exited|ncclRemoteError|ncclSystemError|DistNetworkError"
        r"|DistStoreError|remote peer|peer (?:closed|disconnected|failed)|failed to recv"
        r"|process group.{0,40}abort)"
        r"|NCCL error in:.{0,120}unhandled system error|NCCL communicator was aborted",
        "torch.distributed.DistBackendError: Connection closed by peer [127.0.0.1]:35781",
        "gloo, NCCL and c10d's store (PyTorch 2.15, NCCL 2.28)",
    ),
    _row(
        Cause.CHECKPOINT_DAMAGED,
        r"PytorchStreamReader failed|UnpicklingError|EOFError: Ran out of input"
        r"|(?:header|metadata)\w{0,20}.{0,20}(?:incomplete|invalid).{0,20}safetensors"
        r"|SafetensorError: Error while deserializing|MetadataIncompleteBuffer|HeaderTooLarge"
        r"|unexpected EOF, expected \d+ more bytes|BadZipFile",
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central dir",
        "PyTorch, caffe2/serialize/inline_container.cc; safetensors, src/tensor.rs",
    ),
    _row(
        Cause.CHECKPOINT_MISMATCH,
        r"Error\(s\) in loading state_dict|doesn't match the size of parameter group"
        r"|loaded state dict (?:has|contains)|size mismatch for \S+: copying a param"
        r"|Missing key in checkpoint state_dict",
        "RuntimeError: Error(s) in loading state_dict for Net:",
        "PyTorch, torch/nn/modules/module.py, optim/optimizer.py, distributed/checkpoint",
    ),
    _row(
        Cause.NUMERICAL,
        r"(?i:\bloss\b.{0,40}\b(?:is|was|became|got|returned)\b.{0,20}\b(?:nan|inf|infinite)\b)"
        r"|(?i:not finite|non-?finite|found nan in)|FloatingPointError"
        r"|(?i:contains? (?:nan|inf)|returned nan values)|TrainingSpikeException"
        r"|minimum (?:loss )?scale.{0,30}reached|loss scale (?:already )?at minimum",
        "FloatingPointError: Loss became infinite or NaN at iteration=166!",
        "detectron2, torchtitan, DeepSpeed, Megatron-LM and PyTorch's anomaly detection",
    ),
    _row(
        Cause.STORAGE_FAILED,
        r"\[Errno (?:5|30|107|108|116|121)\]|Input/output error|Stale (?:NFS )?file handle"
        r"|Read-only file system|Transport endpoint is not connected|Cannot send after transport",
        "OSError: [Errno 116] Stale file handle",
        _ERRNO,
    ),
    _row(
        Cause.FILES_LIMIT,
        r"\[Errno 24\]|[Tt]oo many open files|received \d+ items of ancdata",
        "OSError: [Errno 24] Too many open files",
        _ERRNO,
    ),
    _row(
        Cause.HOST_OUT_OF_MEMORY,
        r"\bOOMKilled\b|\bOUT_OF_MEMORY\b|\boom-kill|\bMemoryError\b|\[Errno 12\]"
        r"|[Cc]an(?:not|'t) allocate memory|std::bad_alloc|not enough memory: you tried",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:75] CPUAllocator: can't allocate memory",
        "kubelet, Slurm, CPython and PyTorch's c10/core/impl/alloc_cpu.cpp",
    ),
    _row(
        Cause.HOST_OUT_OF_MEMORY,
        r"killed due to (?:the node running low on memory|memory pressure)"
        r"|oom_kill event|srun: error: .{1,200}: Out Of Memory$",
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        "Ray, src/ray/common/memory_monitor; Slurm, src/slurmd/slurmstepd/mgr.c",
    ),
    _row(
        Cause.DATALOADER_DIED,
        r"DataLoader worker \(pid(?:\(s\))?[^)]{0,80}\) (?:exited unexpectedly|is killed by)"
        r"|background workers are no longer alive",
        "RuntimeError: DataLoader worker (pid(s) 3216) exited unexpectedly",
        "PyTorch, torch/utils/data/dataloader.py",
    ),
    _row(
        Cause.DOWNLOAD_FAILED,
        r"HTTPSConnectionPool|MaxRetryError|LocalEntryNotFoundError|RepositoryNotFoundError"
        r"|GatedRepoError|HfHubHTTPError|HTTPError: (?:HTTP Error )?\d{3}|OfflineModeIsEnabled"
        r"|couldn't connect to 'https?://|URLError|Can't load (?:tokenizer|the model|the config)"
        r"|is not a local folder and is not a valid model identifier|Incorrect path_or_model_id"
        r"|ConnectionError: Couldn't reach",
        "OSError: We couldn't connect to 'https://huggingface.co' to load this file",
        "requests, huggingface_hub, transformers and datasets",
    ),
    _row(
        Cause.SYNTAX_INVALID,
        r"(?:SyntaxError|IndentationError|TabError): ",
        "SyntaxError: invalid syntax",
        _PYTHON,
    ),
    _row(
        Cause.IMPORT_FAILED,
        r"(?:ModuleNotFoundError|ImportError)\b|No module named|undefined symbol"
        r"|cannot open shared object file|version `[^']{1,80}' not found",
        "ModuleNotFoundError: No module named 'apex'",
        "CPython, importlib; glibc, dlopen",
    ),
    _row(
        Cause.FILE_MISSING,
        r"\[Errno 2\]|FileNotFoundError|No such file or directory|NotADirectoryError"
        r"|\[Errno 20\]|does not exist\W{0,3}$",
        "FileNotFoundError: [Errno 2] No such file or directory: 'train.json'",
        _PYTHON,
    ),
    _row(
        Cause.PERMISSION_DENIED,
        r"\[Errno (?:1|13)\]|PermissionError|[Pp]ermission denied",
        "PermissionError: [Errno 13] Permission denied: '/data/out'",
        _PYTHON,
    ),
    _row(
        Cause.ARGUMENTS_INVALID,
        r"error: (?:unrecognized arguments|the following arguments are required|argument \S"
        r"|ambiguous option|one of the arguments|invalid choice|unknown option|no such option)"
        r"|Some specified arguments are not used by the HfArgumentParser"
        r"|[Nn]o such option:|NoSuchOption|Missing (?:option|argument) '",
        "train.py: error: unrecognized arguments: --local-rank=0",
        "CPython, argparse; Click; transformers, HfArgumentParser",
    ),
    _row(
        Cause.CUDA_FAILED,
        r"CUDA (?:driver )?error|CUDNN_STATUS|CUBLAS_STATUS|unhandled cuda error"
        r"|ncclUnhandledCudaError",
        "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        _CUDA,
    ),
    _row(
        Cause.PEER_LOST,
        r"NCCL [Ee]rror|ncclInternalError|gloo::\w{1,40}Exception",
        "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:911, unhandled error",
        "PyTorch, torch/csrc/distributed/c10d/NCCLUtils.hpp",
    ),
    _row(
        Cause.KILLED,
        r"exits with return code = -9\b|srun: error: \S{1,200}: tasks? \S{1,200}: Killed",
        "srun: error: node-2: task 5: Killed",
        "DeepSpeed, deepspeed/launcher/launch.py; Slurm, srun",
    ),
    _row(
        Cause.CRASHED,
        r"exits with return code = -(?:4|6|7|8|11)\b",
        "[launch.py:321:sigkill_handler] ['python', 'main.py'] exits with return code = -11",
        "DeepSpeed, deepspeed/launcher/launch.py",
    ),
    _row(
        Cause.TERMINATED,
        r"CANCELLED AT \S{1,40} DUE TO (?:TIME LIMIT|PREEMPTION|JOB REQUEUE)",
        "slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT 2024-04-20 DUE TO TIME LIMIT ***",
        "Slurm, src/slurmd/slurmstepd/req.c",
    ),
    _row(
        Cause.TERMINATED,
        r"KeyboardInterrupt|SignalException|SIGTERM|SIGINT",
        "KeyboardInterrupt",
        _PYTHON,
    ),
    _row(
        Cause.CRASHED,
        r"SIGSEGV|SIGABRT|SIGBUS|SIGILL|SIGFPE|Segmentation fault|core dumped",
        "rank 0: Signal 11 (SIGSEGV)",
        "signal(7); torch/distributed/elastic/multiprocessing/errors",
    ),
    _row(
        Cause.KILLED, r"SIGKILL|^Killed$", "rank 5: Signal 9 (SIGKILL)", "signal(7); POSIX shells"
    ),
)
"""Known wordings."""

PEER_CAUSES: Final = frozenset({Cause.COLLECTIVE_TIMEOUT, Cause.PEER_LOST})
"""Causes that only report that another rank is gone or late."""

OWN_CAUSES: Final = frozenset(
    {
        Cause.IMPORT_FAILED,
        Cause.SYNTAX_INVALID,
        Cause.ARGUMENTS_INVALID,
        Cause.FILE_MISSING,
        Cause.PERMISSION_DENIED,
        Cause.DISK_FULL,
        Cause.STORAGE_FAILED,
        Cause.FILES_LIMIT,
        Cause.CUDA_OUT_OF_MEMORY,
        Cause.CUDA_ASSERT,
        Cause.CUDA_MEMORY_ACCESS,
        Cause.CUDA_UNAVAILABLE,
        Cause.GPU_HARDWARE,
        Cause.CHECKPOINT_DAMAGED,
        Cause.CHECKPOINT_MISMATCH,
        Cause.NUMERICAL,
    }
)
"""Causes of ranks that fail by themselves: neither the loss of a peer nor a stop has them."""

_BY_SIGNAL: Final = MappingProxyType(
    {
        2: Cause.TERMINATED,
        4: Cause.CRASHED,
        6: Cause.CRASHED,
        7: Cause.CRASHED,
        8: Cause.CRASHED,
        9: Cause.KILLED,
        11: Cause.CRASHED,
        15: Cause.TERMINATED,
    }
)
"""Cause of a process that a signal ended, by number; see signal(7)."""

_EXCEPTION: Final = re.compile(r"[A-Za-z_][\w.]{0,200}(?:: |$)")
"""Start of the last line of a traceback."""

_SHELL_SIGNAL: Final = 128
"""A POSIX shell exits with this plus the number of the signal that ended its command."""

_COMMAND_CODES: Final = (126, 127)
"""Exit codes of a POSIX shell that cannot execute a command, or not find it."""


def cause_of(text: str, exit_code: int | None = None) -> Cause | None:
    """Return the cause of a failed rank; None if nothing is known.

    Args:
        text: exception or line of its log that explains its failure; empty if unknown.
        exit_code: exit code; negative for a signal, None if unknown.

    """
    for row in SIGNATURES:
        if row.is_in(text):
            return row.cause
    if _EXCEPTION.match(text):
        return Cause.EXCEPTION
    if exit_code in _COMMAND_CODES:
        return Cause.COMMAND_MISSING
    if exit_code is None or 0 <= exit_code <= _SHELL_SIGNAL:
        return None
    return _BY_SIGNAL.get(-exit_code if exit_code < 0 else exit_code - _SHELL_SIGNAL)


def is_peer_failure(text: str) -> bool:
    """Return whether an exception, as of a collective, only reports that another rank is gone."""
    return cause_of(text) in PEER_CAUSES
