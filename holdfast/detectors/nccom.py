"""What ``nccom-test`` of the Neuron tools writes.

Source: "NCCOM-TEST User Guide" of the Neuron SDK. Its bandwidths are in GiB by second.
"""

import re
from typing import Final

from holdfast.detectors.judgement import LONGEST_MESSAGE, Judgement, undecided, whole

LARGE_BYTES: Final = 1024**3
"""The size from which on the bandwidth is judged; with 32 MB it is half of that with 1 GiB."""

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
    """Say whether the test came to its end. What failed it may be the software as well."""
    failure = _FAILURE.search(text)
    if failure is not None:
        return undecided(f"the test failed: {failure[0].strip()}"[:LONGEST_MESSAGE])
    if _ROW.search(text) is None:
        return undecided("it has no results")
    if _END.search(text) is None:
        return undecided("the end of the test is missing")
    if nccom_bandwidth(text) is None:
        return undecided(f"no message had {LARGE_BYTES} bytes, so the bandwidth says nothing")
    return whole([])


def nccom_bandwidth(text: str) -> float | None:
    """Bus bandwidth at the largest size, GiB by second; None if none had ``LARGE_BYTES``."""
    rows = {int(row["size"]): float(row["bus"]) for row in _ROW.finditer(text)}
    largest = max(rows, default=0)
    return rows[largest] if largest >= LARGE_BYTES else None
