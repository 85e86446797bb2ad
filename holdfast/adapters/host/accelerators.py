"""Accelerator health from driver files in sysfs."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.adapters.host.small_files import names_in, read_small

_GPU: Final = re.compile(r'<gpu id="([0-9A-Fa-f:.]{1,20})"')
_NO_PENDING: Final = "<remapped_row_pending>No<"
_DRIVER: Final = re.compile(r"NVRM version: .{1,80}? ([0-9]{2,4})\.[0-9]")
_NEURON: Final = re.compile(r"neuron[0-9]+")
_CORE: Final = re.compile(r"neuron_core[0-9]+")

_DEVICE_FILES: Final = (
    "info/serial_number",
    "reset",
    "stats/hardware/mem_ecc_repairable_uncorrected",
    "stats/hardware/mem_ecc_uncorrected",
    "stats/hardware/sram_ecc_uncorrected",
)
_CORE_COUNTERS: Final = (
    "other_info/reset_fail_count",
    "status/hw_collectives_error",
    "status/hw_dma_abort_error",
    "status/hw_error",
    "status/hw_hbm_ue_error",
    "status/hw_nc_ue_error",
    "status/hw_repairable_hbm_ue_error",
)
"""Counters of hardware errors (neuron_sysfs_metrics.c of driver 2.24.7)."""


def nvidia(root: Path, text: str) -> dict[str, str]:
    """Return the GPUs in the output of ``nvidia-smi -q -x`` and the machine's uptime in seconds.

    ``applied/ADDRESS`` is present if the GPU reports that no row remapping is pending.
    """
    uptime = (read_small(root / "proc/uptime") or "").partition(".")[0]
    values = {"uptime_s": uptime}
    _, *parts = _GPU.split(text)
    for address, part in zip(parts[::2], parts[1::2], strict=True):
        values[f"gpu/{address}"] = ""
        if _NO_PENDING in part:
            values[f"applied/{address}"] = ""
    return values


def nvidia_driver(root: Path) -> int | None:
    """Return the major version of the NVIDIA driver, such as 570; None if it is not loaded."""
    version = _DRIVER.match(read_small(root / "proc/driver/nvidia/version") or "")
    return None if version is None else int(version[1])


def instance_type(root: Path) -> str:
    """Return the DMI product name; on EC2 Nitro instances it is the instance type."""
    return read_small(root / "sys/class/dmi/id/product_name") or ""


def neuron(root: Path) -> dict[str, str]:
    """Return the health files of Neuron devices by path, such as ``neuron0/reset``.

    ``/driver`` is the version of the driver. ``/read`` is always present, so that a reading without
    devices is not empty.
    """
    driver = read_small(root / "sys/module/neuron/version")
    return {"/read": "", **({"/driver": driver} if driver else {})} | dict(
        _neuron_files(root / "sys/devices/virtual/neuron_device")
    )


def neuron_counters(root: Path) -> frozenset[str]:
    """Return the Neuron devices whose error counters the driver exports, such as ``nd3``."""
    names = (name.partition("/")[0] for name in neuron(root) if "/stats/" in name)
    return frozenset(f"nd{int(name.removeprefix('neuron'))}" for name in names)


def _neuron_files(devices: Path) -> Iterator[tuple[str, str]]:
    for device in names_in(devices):
        if not _NEURON.fullmatch(device):
            continue
        entries = names_in(devices / device)
        if entries:
            yield device, ""
        cores = [entry for entry in entries if _CORE.fullmatch(entry)]
        counters = [f"{core}/stats/{name}/total" for core in cores for name in _CORE_COUNTERS]
        for name in (*_DEVICE_FILES, *counters):
            text = read_small(f"{devices}/{device}/{name}")
            if text is not None:
                yield f"{device}/{name}", text
        for core in cores:
            yield f"{device}/{core}", ""
