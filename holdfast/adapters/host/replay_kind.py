"""What the steps of a replay run on: healthy nodes of different kinds may round differently.

Libraries choose their instructions, and with them the order of sums, by processor and version.
"""

import os
import re
import sys
from typing import Any, Final

_CPUINFO: Final = "/proc/cpuinfo"
_READ_BYTES: Final = 8192
"""The first processor comes first."""

_MODEL: Final = re.compile(
    r"^(?:model name|CPU implementer|CPU part)[ \t]*:[ \t]*(\S[^\n]{0,80})", re.M
)
"""x86 has a model name, ARM has numbers: ``arch/x86/kernel/cpu/proc.c`` and
``arch/arm64/kernel/cpuinfo.c`` of Linux."""


def replay_kind(cpuinfo: str = _CPUINFO) -> str:
    """Return processor, Python, and PyTorch with its GPUs if it was imported."""
    parts = [_processor(cpuinfo), f"Python {sys.version_info[0]}.{sys.version_info[1]}"]
    torch = sys.modules.get("torch")
    if torch is not None:
        parts += _torch(torch)
    return ", ".join(parts)


def _processor(cpuinfo: str) -> str:
    try:
        with open(cpuinfo, encoding="utf-8", errors="replace") as file:
            found = _MODEL.findall(file.read(_READ_BYTES).split("\n\n")[0])
    except OSError:
        found = []
    return " ".join((os.uname().machine, *found))


def _torch(torch: Any) -> list[str]:
    parts = [f"torch {torch.__version__} with {torch.backends.cpu.get_cpu_capability()}"]
    gpus = range(torch.cuda.device_count())
    if gpus:
        names = sorted({torch.cuda.get_device_name(number) for number in gpus})
        parts += [f"CUDA {torch.version.cuda}", *names]
    return parts
