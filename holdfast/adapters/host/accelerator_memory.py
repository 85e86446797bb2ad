"""Waits until the memory of NVIDIA GPUs is free again, through NVML.

``python -m holdfast.adapters.host.accelerator_memory`` runs as a separate process, because a call
into a wedged driver never returns. Standard library only: NVML is part of the driver. Exit status
0: free, or there is no NVML to ask; 1: memory is still in use; 2: a name of ``--devices`` matches
no device, so that its memory is not known. Of 1 and 2, standard output has the details.

An instance of a MIG GPU has a memory of its own; that of the other instances of its GPU does not
count.
"""

import argparse
import ctypes
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

TOLERANCE_MIB: Final = 512
"""Memory that may stay in use per GPU; default of NVIDIA's resiliency extension
(``gpu_memory_tolerance_mb``)."""

NVML: Final = "libnvidia-ml.so.1"
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


class Utilization(ctypes.Structure):
    """``nvmlUtilization_t``, in percent."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


def main(argv: list[str]) -> int:
    """Wait. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timeout", type=float, required=True, help="seconds")
    parser.add_argument(
        "--devices", default="", help="indexes, UUIDs or MIG names, as CUDA_VISIBLE_DEVICES"
    )
    parser.add_argument("--library", default=NVML, help="NVML")
    options = parser.parse_args(argv)
    if options.devices.startswith("-"):
        return 0  # CUDA shows no device
    library = opened_nvml(options.library)
    if library is None:
        return 0
    devices, unknown = named_devices(library, [name for name in options.devices.split(",") if name])
    deadline = time.monotonic() + options.timeout
    while busy := list(_busy(library, devices)):
        if time.monotonic() > deadline:
            sys.stdout.write("; ".join(busy) + "\n")
            return 1
        time.sleep(_POLL_S)
    if unknown:
        sys.stdout.write(f"{', '.join(unknown)}: no such device\n")
        return 2
    return 0


def opened_nvml(name: str) -> ctypes.CDLL | None:
    """Load and initialize NVML. Returns None without a driver."""
    try:
        library = ctypes.CDLL(name)
    except OSError:
        return None
    return library if library.nvmlInit_v2() == 0 else None


def named_devices(
    library: ctypes.CDLL, selected: Sequence[str]
) -> tuple[Mapping[str, ctypes.c_void_p], list[str]]:
    """Return the devices with these names, all GPUs without one, and the names that match none."""
    gpus = dict(_gpus(library))
    by_uuid = {device_uuid(library, gpu): f"GPU {index}" for index, gpu in gpus.items()}
    found = {} if selected else {f"GPU {index}": gpu for index, gpu in gpus.items()}
    unknown = []
    for name in selected:
        instance = _instance(library, name) if name.startswith("MIG-") else None
        matches = [of for uuid, of in by_uuid.items() if uuid.startswith(name)]
        if instance is not None:
            found[name] = instance
        elif name.isascii() and name.isdecimal() and int(name) in gpus:
            found[f"GPU {int(name)}"] = gpus[int(name)]
        elif matches:
            found[matches[0]] = gpus[int(matches[0].split()[1])]
        else:
            unknown.append(name)
    return found, unknown


def _gpus(library: ctypes.CDLL) -> Iterator[tuple[int, ctypes.c_void_p]]:
    """Yield index and handle of each GPU; one that cannot be read is skipped."""
    count = ctypes.c_uint()
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    for index in range(count.value):
        device = ctypes.c_void_p()
        if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == 0:
            yield index, device


def _instance(library: ctypes.CDLL, name: str) -> ctypes.c_void_p | None:
    """Return the handle of an instance of a MIG GPU; None if there is none of the name."""
    device = ctypes.c_void_p()
    status = library.nvmlDeviceGetHandleByUUID(
        name.encode("ascii", "replace"), ctypes.byref(device)
    )
    return device if status == 0 else None


def device_uuid(library: ctypes.CDLL, device: ctypes.c_void_p) -> str:
    """Return the UUID of a device; empty if it cannot be read."""
    text = ctypes.create_string_buffer(_UUID_BYTES)
    library.nvmlDeviceGetUUID(device, text, _UUID_BYTES)
    return text.value.decode("ascii", "replace")


def _busy(library: ctypes.CDLL, devices: Mapping[str, ctypes.c_void_p]) -> Iterator[str]:
    """Yield each device with more memory in use than tolerated; an unreadable one is skipped."""
    for name, device in devices.items():
        memory = memory_mib(library, device)
        if memory is not None and memory[0] > TOLERANCE_MIB:
            yield f"{name}: {memory[0]} MiB in use, expected at most {TOLERANCE_MIB} MiB"


def memory_mib(library: ctypes.CDLL, device: ctypes.c_void_p) -> tuple[int, int] | None:
    """Return memory in use and in total, in MiB; None if it cannot be read."""
    memory = _Memory()
    if library.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) != 0:
        return None
    return int(memory.used) // _MIB, int(memory.total) // _MIB


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
