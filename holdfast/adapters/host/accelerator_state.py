"""Reads the memory in use and the utilization of NVIDIA GPUs through NVML.

``python -m holdfast.adapters.host.accelerator_state --devices NAMES`` prints them as JSON, with the
functions of ``accelerator_memory``. It runs as a separate process, because a call into a wedged
driver never returns, which is evidence of a hang itself.
"""

import argparse
import ctypes
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from holdfast.adapters.host.accelerator_memory import (
    NVML,
    Utilization,
    device_uuid,
    memory_mib,
    named_devices,
    opened_nvml,
)
from holdfast.decisions.rank_accelerators import Accelerator, device_of
from holdfast.decisions.rank_snapshots import RankSnapshot
from holdfast.kit.printed_value import PrintedValue
from holdfast.kit.serial import to_plain

DRIVER: Final = Path("/proc/driver/nvidia")
LIMIT_S: Final = 4.0
"""Time of the driver: nvidia-smi takes up to 2 s where persistence mode is off."""

_BUS_ID_AT: Final = 16 + 5 * 4  # of nvmlPciInfo_t: the legacy form, and five numbers
_PCI_BYTES: Final = _BUS_ID_AT + 32
_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"


def main(argv: list[str]) -> int:
    """Print the devices. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", default="", help="names of instances of MIG GPUs")
    parser.add_argument("--library", default=NVML, help="NVML")
    options = parser.parse_args(argv)
    library = opened_nvml(options.library)
    if library is None:
        json.dump([], sys.stdout)
        return 0
    found = devices_of(library, [name for name in options.instances.split(",") if name])
    json.dump(to_plain(tuple(found)), sys.stdout)
    return 0


def devices_of(
    library: ctypes.CDLL, instances: Sequence[str]
) -> Mapping[Accelerator, ctypes.c_void_p]:
    """Return all GPUs, and these instances of MIG GPUs, each with its handle."""
    found = dict(named_devices(library, [])[0])
    if instances:
        found |= named_devices(library, instances)[0]
    return {_state(library, *one): one[1] for one in found.items()}


def mig_instances(environment: Mapping[str, str]) -> list[str]:
    """Return the instances of MIG GPUs that are visible to a rank."""
    names = [name.strip() for name in environment.get(_VISIBLE, "").split(",")]
    return [name for name in names if name.startswith("MIG-")]


def _state(library: ctypes.CDLL, name: str, device: ctypes.c_void_p) -> Accelerator:
    memory, rates = memory_mib(library, device), Utilization()
    pci = ctypes.create_string_buffer(_PCI_BYTES)
    has_rates = library.nvmlDeviceGetUtilizationRates(device, ctypes.byref(rates)) == 0
    is_gpu = library.nvmlDeviceGetPciInfo_v3(device, pci) == 0
    return Accelerator(
        name=name.removeprefix("GPU "),
        uuid=device_uuid(library, device),
        bus_id=pci.raw[_BUS_ID_AT:].partition(b"\0")[0].decode("ascii", "replace")
        if is_gpu
        else "",
        used_mib=None if memory is None else memory[0],
        total_mib=None if memory is None else memory[1],
        utilization=rates.gpu if has_rates else None,
    )


def read_devices(
    environment: Mapping[str, str], limit_s: float = LIMIT_S, driver: Path = DRIVER
) -> tuple[tuple[Accelerator, ...], str]:
    """Return the GPUs of this machine, and why they could not be read; empty if they could.

    Args:
        environment: of the ranks; names instances of MIG GPUs, which are read, too.
        limit_s: time after which the driver does not respond, in seconds.
        driver: exists if the driver is loaded.

    """
    if not driver.exists():
        return (), ""
    module = "holdfast.adapters.host.accelerator_state"
    instances = ",".join(mig_instances(environment))
    command = (sys.executable, "-m", module, f"--instances={instances}")
    try:
        printed = PrintedValue(tuple[Accelerator, ...], command, limit_s=limit_s)
    except OSError as error:
        return (), f"the accelerators could not be read: {error.strerror}"
    found = printed.awaited(None)
    printed.close()
    return (
        (found, "")
        if found is not None
        else ((), f"the accelerators were not read within {limit_s:g} s")
    )


def with_accelerators(
    snapshots: Sequence[RankSnapshot],
    environments: Mapping[int, Mapping[str, str]],
    devices: Sequence[Accelerator],
) -> tuple[RankSnapshot, ...]:
    """Return snapshots with the accelerators of the ranks.

    Args:
        snapshots: of all ranks of some nodes.
        environments: of the ranks, as far as they are known; a warm rank's has no local rank.
        devices: of the machine.

    """
    first = {one.node: one.rank for one in sorted(snapshots, key=lambda one: -one.rank)}
    return tuple(
        replace(
            one,
            accelerator=device_of(
                devices,
                environments[one.rank].get(_VISIBLE),
                _local_rank(environments[one.rank], one.rank - first[one.node]),
            ),
        )
        if one.rank in environments
        else one
        for one in snapshots
    )


def _local_rank(environment: Mapping[str, str], default: int) -> int:
    given = environment.get("LOCAL_RANK", "")
    return int(given) if given.isascii() and given.isdecimal() else default


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
