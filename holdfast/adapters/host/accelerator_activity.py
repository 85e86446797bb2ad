"""Prints as JSON whether NVIDIA GPUs compute, by NVML's utilization over a few seconds.

``python -m holdfast.adapters.host.accelerator_activity`` runs as a separate process, because a call
into a wedged driver never returns. Standard library only: NVML is part of the driver.

A GPU whose kernel waits in an NCCL collective is busy, too: utilization is the share of time in
which a kernel runs.
"""

import argparse
import ctypes
import json
import os
import sys
import time
from typing import Final

from holdfast.adapters.host.accelerator_memory import (
    NVML,
    Utilization,
    named_devices,
    opened_nvml,
)
from holdfast.decisions.job_activity import AcceleratorUse
from holdfast.kit.processes import die_with_parent

_PERIOD_S: Final = 0.5
"""Time between two samples. Each is of the last second, or the last sixth of one, by product."""


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
    return use


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
