"""Inventory of the devices of a node, from samples, for people.

Names of values are the same on every platform; the console and ``holdfast nodes describe`` show
them. Error counters that are 0 are left out of network and Neuron devices, of which an instance may
have 32.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Final

from holdfast.detectors import gpu_state, network_state, neuron_state
from holdfast.detectors.contract import Sample
from holdfast.detectors.judgement import counter
from holdfast.detectors.nvidia_smi_forms import LONGEST, Gpu, read_xml
from holdfast.model.hardware import (
    DEVICES_LIMIT,
    VALUE_CHARS,
    VALUES_LIMIT,
    Device,
    DeviceGroup,
    DeviceKind,
)

GPUS: Final = gpu_state.SOURCE
NETWORK: Final = network_state.SOURCE
NEURON: Final = neuron_state.SOURCE
NVLINK: Final = "nvlink-errors"
MEMORY: Final = "edac"

SAMPLES: Final[Mapping[str, timedelta]] = {NVLINK: timedelta(minutes=10)}
"""Samples that no detector reads, with their intervals; they need a detector of ``GPUS``."""

_UNAVAILABLE: Final = re.compile(r"\[?(?:N/A|Not Supported|Not Available)\]?", re.IGNORECASE)

_TEXTS: Final = {
    "temperature": ("temperature/gpu_temp",),
    "memory_temperature": ("temperature/memory_temp",),
    "power": (
        "gpu_power_readings/average_power_draw",
        "gpu_power_readings/power_draw",
        "power_readings/power_draw",
    ),
    "fabric": ("fabric/state",),
    "fabric_status": ("fabric/status",),
    "recovery_action": ("gpu_recovery_action",),
    "vbios": ("vbios_version",),
    "serial": ("serial",),
}
"""Value by name: elements of ``nvidia-smi -q -x``, of which the first that is available counts."""

_SUMS: Final = {
    "ecc_corrected": re.compile(
        r"ecc_errors/volatile/(?:[sd]ram_correctable|single_bit(?:_ecc)?/total)"
    ),
    "ecc_uncorrected": re.compile(
        r"ecc_errors/volatile/(?:.*uncorrectable.*|double_bit(?:_ecc)?/total)"
    ),
    "ecc_uncorrected_lifetime": re.compile(
        r"ecc_errors/aggregate/(?:(?:[sd]ram_)?uncorrectable(?:_parity|_secded)?"
        r"|double_bit(?:_ecc)?/total)"
    ),
    "remapped_rows": re.compile(r"remapped_rows/remapped_row_(?:corr|unc)"),
}
"""Value by name: elements with counts, which are added. Volatile ones count since the last boot or
reset of the GPU."""

_DRIVER: Final = re.compile(r"<driver_version>\s{0,80}([0-9.]{1,40})\s{0,80}</driver_version>")
_CUDA: Final = re.compile(r"<cuda_version>\s{0,80}([0-9.]{1,40})\s{0,80}</cuda_version>")
_HEAD: Final = 4000
"""Characters of the document in which its own fields are, before the first GPU."""

_NVLINK_GPU: Final = re.compile(r"^GPU ([0-9]{1,3}):(?: ([^\n(]{1,100}))?", re.M)
_NVLINK_COUNT: Final = re.compile(
    r"^\s{1,12}Link ([0-9]{1,3}): (Replay|Recovery|CRC) Errors: ([0-9]{1,20})", re.M
)

Reader = Callable[[Sample], DeviceGroup | None]


def inventory(
    known: tuple[DeviceGroup, ...], samples: Mapping[str, Sample]
) -> tuple[DeviceGroup, ...]:
    """Return ``known`` with the devices of new samples; a failed reading changes only ``error``."""
    groups = {one.kind: one for one in known}
    for name, (kind, read) in _READERS.items():
        sample = samples.get(name)
        if sample is None:
            continue
        group = None if sample.error else read(sample)
        before = groups.get(kind)
        if group is not None:
            groups[kind] = group
        elif before is not None:
            why = sample.error or "the output cannot be read"
            groups[kind] = replace(before, error=why[:VALUE_CHARS])
    return tuple(groups[kind] for kind in DeviceKind if kind in groups)


def _group(
    kind: DeviceKind,
    sample: Sample,
    devices: Iterable[Device],
    versions: Mapping[str, str] | None = None,
) -> DeviceGroup | None:
    found = tuple(devices)
    if not found:
        return None
    return DeviceGroup(
        kind=kind,
        read_at=sample.taken_at,
        versions={name: text[:VALUE_CHARS] for name, text in (versions or {}).items()},
        devices=tuple(map(_bounded, found[:DEVICES_LIMIT])),
        left_out=max(0, len(found) - DEVICES_LIMIT),
    )


def _bounded(one: Device) -> Device:
    """Return a device with texts of limited length and number: drivers and tools wrote them."""
    values = list(one.values.items())[:VALUES_LIMIT]
    return Device(
        name=one.name[:VALUE_CHARS],
        model=one.model[:VALUE_CHARS],
        values={name[:VALUE_CHARS]: text[:VALUE_CHARS] for name, text in values},
    )


def _shown(values: Mapping[str, str | None]) -> dict[str, str]:
    """Return the available values."""
    return {
        name: text for name, text in values.items() if text and not _UNAVAILABLE.fullmatch(text)
    }


# NVIDIA


def _gpus(sample: Sample) -> DeviceGroup | None:
    head = sample.text[:_HEAD]
    versions = {
        name: match[1]
        for name, pattern in (("driver", _DRIVER), ("cuda", _CUDA))
        if (match := pattern.search(head)) is not None
    }
    return _group(DeviceKind.GPU, sample, map(_gpu, read_xml(sample.text).gpus), versions)


def _gpu(gpu: Gpu) -> Device:
    fields = dict(gpu.fields)
    texts = {
        name: next((fields[path] for path in paths if not _is_missing(fields.get(path))), None)
        for name, paths in _TEXTS.items()
    }
    if texts["fabric_status"] == "Success":  # the state implies it
        texts["fabric_status"] = None
    sums = {name: _total(gpu, pattern) for name, pattern in _SUMS.items()}
    return Device(
        name=gpu_state.device(gpu.address),
        model=fields.get("product_name", ""),
        values=_shown({**texts, **sums}),
    )


def _is_missing(text: str | None) -> bool:
    return not text or _UNAVAILABLE.fullmatch(text) is not None


def _total(gpu: Gpu, pattern: re.Pattern[str]) -> str | None:
    """Return the sum of the counts of a GPU; None if none is available."""
    counts = [counter(text) for path, text in gpu.fields if pattern.fullmatch(path)]
    known = [one for one in counts if one is not None]
    return str(sum(known)) if known else None


def _nvlinks(sample: Sample) -> DeviceGroup | None:
    text = sample.text[:LONGEST]
    headers = list(_NVLINK_GPU.finditer(text))
    ends = [*(header.start() for header in headers[1:]), len(text)]
    devices = []
    for header, end in zip(headers, ends, strict=bool(headers)):
        counts = _NVLINK_COUNT.findall(text[header.end() : end])
        sums: dict[str, int] = {}
        for _, kind, count in counts:
            sums[kind.lower()] = sums.get(kind.lower(), 0) + int(count)
        if counts:
            links = {"links": str(len({link for link, _, _ in counts}))}
            values = links | {f"{kind}_errors": str(count) for kind, count in sums.items()}
            model = (header[2] or "").strip()
            devices.append(Device(name=f"GPU {header[1]}", model=model, values=values))
    return _group(DeviceKind.NVLINK, sample, devices)


# Neuron, network, memory


def _neuron(sample: Sample) -> DeviceGroup | None:
    names = sorted({name for name in sample.values if "/" not in name}, key=_number)
    driver = _shown({"driver": sample.values.get("/driver")})
    return _group(
        DeviceKind.NEURON, sample, (_neuron_device(name, sample) for name in names), driver
    )


def _neuron_device(name: str, sample: Sample) -> Device:
    own = f"{name}/"
    files = {
        path.removeprefix(own): text for path, text in sample.values.items() if path.startswith(own)
    }
    cores = sum("/" not in path and path.startswith("neuron_core") for path in files)
    errors: Counter[str] = Counter()
    for path, text in files.items():
        if "stats/" in path:  # those of a core end with /total
            errors[path.removesuffix("/total").rpartition("/")[2]] += counter(text) or 0
    values = {
        "cores": str(cores) if cores else None,
        "serial": files.get("info/serial_number"),
        **{key: str(count) for key, count in sorted(errors.items()) if count},
    }
    return Device(name=name, values=_shown(values))


def _network(sample: Sample) -> DeviceGroup | None:
    return _group(DeviceKind.NETWORK, sample, _ports(sample))


def _ports(sample: Sample) -> Iterator[Device]:
    devices = sorted((name for name in sample.values if name and "/" not in name), key=_number)
    for name in devices:
        ports = sorted(
            {
                path.rpartition("/")[0]
                for path in sample.values
                if path.startswith(f"{name}/") and path.endswith("/state")
            }
        )
        firmware = sample.values.get(f"{name}/firmware")
        for port in ports or [name]:
            values = {
                "state": sample.values.get(f"{port}/state", "").partition(": ")[2],
                "rate": sample.values.get(f"{port}/rate"),
                "firmware": firmware,
                **{key: str(count) for key, count in _counted(port, sample)},
            }
            yield Device(name=port, model=sample.values[name], values=_shown(values))


def _counted(port: str, sample: Sample) -> Iterator[tuple[str, int]]:
    """Yield the counters of a port that are not 0; ``flaps`` of the last hour."""
    for path, text in sorted(sample.values.items()):
        owner, _, name = path.rpartition("/")
        is_counter = owner == port and name not in {"state", "rate", "active", "firmware"}
        if is_counter and (count := counter(text)):
            yield name, count


def _memory(sample: Sample) -> DeviceGroup | None:
    names = sorted({path.partition("/")[0] for path in sample.values}, key=_number)
    devices = (
        Device(
            name=name.upper(),
            values=_shown(
                {
                    "ecc_corrected": sample.values.get(f"{name}/ce_count"),
                    "ecc_uncorrected": sample.values.get(f"{name}/ue_count"),
                }
            ),
        )
        for name in names
    )
    return _group(DeviceKind.MEMORY, sample, devices)


def _number(name: str) -> tuple[str, int]:
    """Return a key that sorts ``neuron2`` before ``neuron10``."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :][:9] or -1)


_READERS: Final[Mapping[str, tuple[DeviceKind, Reader]]] = {
    GPUS: (DeviceKind.GPU, _gpus),
    NVLINK: (DeviceKind.NVLINK, _nvlinks),
    NEURON: (DeviceKind.NEURON, _neuron),
    NETWORK: (DeviceKind.NETWORK, _network),
    MEMORY: (DeviceKind.MEMORY, _memory),
}
"""Reader by sample."""
