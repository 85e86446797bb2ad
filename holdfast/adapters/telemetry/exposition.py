"""Prometheus text exposition format."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

LabelSet = tuple[tuple[str, str], ...]
Samples = Mapping[LabelSet, float]


def process_families() -> Iterator[str]:
    """Standard process metrics of Prometheus clients."""
    fields = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace")
    user, system, *_, resident = fields.rpartition(")")[2].split()[11:22]
    seconds = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    size = int(resident) * os.sysconf("SC_PAGE_SIZE")
    yield family("process_cpu_seconds_total", "counter", "User and system time.", {(): seconds})
    yield family("process_resident_memory_bytes", "gauge", "Resident memory.", {(): size})


def labels(**values: str) -> LabelSet:
    """Label set with values."""
    return tuple(sorted(values.items()))


def family(name: str, kind: str, about: str, samples: Samples) -> str:
    """Metric family with all its samples; ``kind`` is ``counter`` or ``gauge``."""
    lines = [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{_shown(pairs)} {value:.15g}" for pairs, value in samples.items()]
    return "\n".join(lines) + "\n"


def _shown(pairs: LabelSet) -> str:
    if not pairs:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
