"""Parser of the output of ``nccom-test`` of the Neuron tools.

Source: "NCCOM-TEST User Guide" of the Neuron SDK. Its bandwidths are in GiB per second.
"""

import re
from typing import Final

from holdfast.detectors.judgement import LONGEST_MESSAGE, Judgement, undecided, whole

LARGE_BYTES: Final = 1024**3
"""Minimum message size for a bandwidth; with 32 MB it is half of that with 1 GiB."""

_NUMBER: Final = r"[0-9]{1,12}(?:\.[0-9]{1,6})?"
_ROW: Final = re.compile(
    rf"^\s*(?P<size>[0-9]{{1,15}})\s+[0-9]{{1,15}}\s+[a-z]+[0-9]+\s+{_NUMBER}\s+{_NUMBER}\s+"
    rf"(?P<bus>{_NUMBER})\s*$",
    re.M,
)
_END: Final = re.compile(r"^\s*Avg bus bandwidth:\s", re.M)
_FAILURE: Final = re.compile(
    r"[^\n]{0,100}(?:Failure running|errors? found - test failed|is not running)[^\n]{0,200}"
)


def judge_nccom(text: str) -> Judgement:
    """Evaluate whether the test completed. A failure may be one of the software as well."""
    failure = _FAILURE.search(text)
    if failure is not None:
        return undecided(f"the test failed: {failure[0].strip()}"[:LONGEST_MESSAGE])
    if _ROW.search(text) is None:
        return undecided("no results in the output")
    if _END.search(text) is None:
        return undecided("the output of the test is cut off")
    if nccom_bandwidth(text) is None:
        return undecided(f"no message had {LARGE_BYTES} bytes, so the bandwidth is not significant")
    return whole([])


def nccom_bandwidth(text: str) -> float | None:
    """Return the bus bandwidth at the largest size in GiB/s; None if none had ``LARGE_BYTES``."""
    rows = {int(row["size"]): float(row["bus"]) for row in _ROW.finditer(text)}
    largest = max(rows, default=0)
    return rows[largest] if largest >= LARGE_BYTES else None
