"""Waits until the memory of NVIDIA GPUs is free again, through NVML.

``python -m holdfast.adapters.host.accelerator_memory`` runs as a separate process, because a call
into a wedged driver never returns. Standard library only: NVML is part of the driver. Exit status
0: free, or there is no NVML to ask; 1: memory is still in use, standard output has the details.
"""

import argparse
import ctypes
import sys
import time
from collections.abc import Iterator
from typing import Final

TOLERANCE_MIB: Final = 512
"""Memory that may stay in use per GPU; default of NVIDIA's resiliency extension
(``gpu_memory_tolerance_mb``)."""

_POLL_S: Final = 0.1
_MIB: Final = 1 << 20
_UUID_BYTES: Final = 96  # NVML_DEVICE_UUID_V2_BUFFER_SIZE


class _Memory(ctypes.Structure):
    """``nvmlMemory_t``, in bytes."""

    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


def main(argv: list[str]) -> int:
    """Wait. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timeout", type=float, required=True, help="seconds")
    parser.add_argument("--devices", default="", help="indexes or UUIDs as CUDA_VISIBLE_DEVICES")
    parser.add_argument("--library", default="libnvidia-ml.so.1", help="NVML")
    options = parser.parse_args(argv)
    try:
        library = ctypes.CDLL(options.library)
    except OSError:
        return 0
    if library.nvmlInit_v2() != 0:
        return 0
    selected = [name for name in options.devices.split(",") if name]
    deadline = time.monotonic() + options.timeout
    while busy := list(_busy(library, selected)):
        if time.monotonic() > deadline:
            sys.stdout.write("; ".join(busy) + "\n")
            return 1
        time.sleep(_POLL_S)
    return 0


def _busy(library: ctypes.CDLL, selected: list[str]) -> Iterator[str]:
    """Yield each GPU with more memory in use than tolerated; one that cannot be read is skipped."""
    count = ctypes.c_uint()
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    for index in range(count.value):
        device = ctypes.c_void_p()
        if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) != 0:
            continue
        if selected and not _is_selected(library, index, device, selected):
            continue
        memory = _Memory()
        status = library.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory))
        used = int(memory.used) // _MIB
        if status == 0 and used > TOLERANCE_MIB:
            yield f"GPU {index}: {used} MiB in use, expected at most {TOLERANCE_MIB} MiB"


def _is_selected(
    library: ctypes.CDLL, index: int, device: ctypes.c_void_p, selected: list[str]
) -> bool:
    text = ctypes.create_string_buffer(_UUID_BYTES)
    library.nvmlDeviceGetUUID(device, text, _UUID_BYTES)
    uuid = text.value.decode("ascii", "replace")
    return any(name == str(index) or (uuid and uuid.startswith(name)) for name in selected)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
