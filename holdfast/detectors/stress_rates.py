"""What ``stress-ng --metrics`` measured."""

import re
from typing import Final

_NUMBER: Final = r"[0-9]{1,15}(?:\.[0-9]{1,9})?"
_PREFIX: Final = r"^stress-ng: (?:metrc|info): +\[[0-9]+\] "
_ROUNDS: Final = re.compile(
    rf"{_PREFIX}(?P<name>[a-z0-9-]{{1,30}}) +[0-9]{{1,18}}(?: +{_NUMBER}){{3}} +"
    rf"(?P<rate>{_NUMBER}) +{_NUMBER}\b",
    re.M,
)
_DISK: Final = re.compile(
    rf"{_PREFIX}hdd +(?P<rate>{_NUMBER}) MB/sec (?P<way>read|write) rate", re.M
)


def rounds_per_s(text: str, stressor: str) -> float | None:
    """Rounds by second of real time, of all workers of a stressor; None if it does not say so."""
    rates = {row["name"]: float(row["rate"]) for row in _ROUNDS.finditer(text)}
    return rates.get(stressor)


def disk_rates(text: str) -> dict[str, float]:
    """MB by second: ``read`` and ``write``, the mean of its workers, as far as it says so."""
    return {row["way"]: float(row["rate"]) for row in _DISK.finditer(text)}
