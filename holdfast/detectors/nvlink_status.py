"""Parser of the output of ``nvidia-smi nvlink --status``."""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from holdfast.detectors.judgement import Judgement, undecided, whole
from holdfast.model.health import Finding, Remedy, Severity
from holdfast.model.names import Condition, Reason

FAMILY: Final = "nvlink"

_GPU: Final = re.compile(r"^GPU ([0-9]{1,3}): ", re.M)
_LINK: Final = re.compile(r"^\s{1,8}Link ([0-9]{1,3}): (?:([0-9.]{1,12}) GB/s|(<inactive>))", re.M)


def judge_nvlink(text: str, now: datetime, *, expected: int | None = None) -> Judgement:
    """Evaluate the links of each GPU.

    Args:
        text: the output.
        now: time of the evaluation.
        expected: links that each GPU has in this instance type; if None, as many as the GPU with
            most links has, for all GPUs of a node are alike.

    """
    headers = list(_GPU.finditer(text))
    if not headers:
        return undecided(
            f"no GPU in the output: {text.strip()[:200]}" if text.strip() else "its output is empty"
        )
    ends = [*(header.start() for header in headers[1:]), len(text)]
    active = {
        header[1]: sum(bool(link[2]) for link in _LINK.finditer(text[header.end() : end]))
        for header, end in zip(headers, ends, strict=True)
    }
    full = max(active.values()) if expected is None else expected
    return whole(_short(active, full, now))


def _short(active: dict[str, int], full: int, now: datetime) -> Iterator[Finding]:
    for gpu, links in active.items():
        if links < full:
            yield Finding(
                family=FAMILY,
                condition=Condition.NVIDIA_GPU_UNHEALTHY,
                reason=Reason.NVLINK_COUNT,
                severity=Severity.FATAL,
                remedy=Remedy.REBOOT,
                message=f"GPU {gpu} has {links} active NVLinks, expected {full}",
                observed_at=now,
                device=gpu,
            )
