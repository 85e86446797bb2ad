"""Prints as JSON whether NVIDIA GPUs compute, by NVML's utilization over a few seconds.

``python -m holdfast.adapters.host.accelerator_activity`` runs as a separate process, because a call
into a wedged driver never returns. Standard library only: NVML is part of the driver.

A GPU whose kernel waits in an NCCL collective is busy, too: utilization is the share of time in
which a kernel runs. Copies over NVLink use no kernel, so GPUs that send or receive are busy, too.
"""

import argparse
import ctypes
import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Final

from holdfast.adapters.host.accelerator_memory import (
    NVML,
    Utilization,
    named_devices,
    opened_nvml,
)
from holdfast.decisions.job_activity import AcceleratorUse
from holdfast.kit.processes import die_with_parent

NVLINK_FIELDS: Final = (138, 139)
"""``NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX`` and ``..._RX``: payload in KiB."""

_ALL_LINKS: Final = 0xFFFFFFFF
_LEAST_KIB: Final = 1024
"""Payload during the samples above which a GPU is busy. A link without transfers has no payload;
this is an assumption for what a driver may send by itself."""

_PERIOD_S: Final = 0.5
"""Time between two samples. Each is of the last second, or the last sixth of one, by product."""


class Field(ctypes.Structure):
    """``nvmlFieldValue_t``; the value is that of an unsigned 64-bit field."""

    _fields_ = (
        ("field", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency", ctypes.c_longlong),
        ("type", ctypes.c_int),
        ("status", ctypes.c_int),
        ("value", ctypes.c_ulonglong),
    )


def main(argv: list[str]) -> int:
    """Print the use of the GPUs. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--devices", default="", help="indexes, UUIDs or MIG names, as CUDA_VISIBLE_DEVICES"
    )
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--library", default=NVML, help="NVML")
    options = parser.parse_args(argv)
    die_with_parent(os.getppid())
    json.dump(_use(options.devices, options.library, options.samples), sys.stdout)
    return 0


def _use(devices: str, name: str, samples: int) -> AcceleratorUse:
    library = opened_nvml(name)
    if library is None:
        return AcceleratorUse.UNKNOWN
    selected = [one for one in devices.split(",") if one]
    found, unknown = named_devices(library, selected)
    use = AcceleratorUse.UNKNOWN if unknown or not found else AcceleratorUse.IDLE
    before = _nvlink_kib(library, found)
    for sample in range(samples):
        for device in found.values():
            seen = Utilization()
            status = library.nvmlDeviceGetUtilizationRates(device, ctypes.byref(seen))
            if status == 0 and seen.gpu > 0:
                return AcceleratorUse.BUSY
            if status != 0:  # an instance of a MIG GPU has none
                use = AcceleratorUse.UNKNOWN
        if sample + 1 < samples and found:
            time.sleep(_PERIOD_S)
    after = _nvlink_kib(library, found)
    has_moved = any(after[name] - before[name] > _LEAST_KIB for name in before.keys() & after)
    return AcceleratorUse.BUSY if has_moved else use


def _nvlink_kib(library: ctypes.CDLL, devices: Mapping[str, ctypes.c_void_p]) -> dict[str, int]:
    """Return the payload that NVLink has moved so far; a GPU without NVLink is missing."""
    found = {}
    for name, device in devices.items():
        fields = (Field * len(NVLINK_FIELDS))()
        for one, number in zip(fields, NVLINK_FIELDS, strict=True):
            one.field, one.scope = number, _ALL_LINKS
        status = library.nvmlDeviceGetFieldValues(device, len(fields), fields)
        if status == 0 and all(one.status == 0 for one in fields):
            found[name] = sum(one.value for one in fields)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
