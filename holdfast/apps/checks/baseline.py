"""Thresholds from the measurements of a fleet."""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from holdfast.detectors.thresholds import EVERY_TYPE, Thresholds, is_ceiling
from holdfast.model.deep_checks import Outcome
from holdfast.model.errors import ConfigError

ENOUGH: Final = 20
"""Number of values below which a low percentile is close to the lowest value."""

_EXPECTED: Final = "expected output of holdfast check node, pair, pairs or show with --output json"
_MEASURES: Final = tuple(field.name for field in fields(Thresholds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Distribution of one value over the nodes of one instance type."""

    instance_type: str
    measure: str
    count: int
    least: float
    median: float
    greatest: float
    threshold: float
    """The requested percentile: from below for a rate, from above for a time."""


def spreads(files: Iterable[Path], percentile: float) -> list[Spread]:
    """Return the distributions of the measurements in checks that passed.

    Args:
        files: each holds one or more documents that ``holdfast check node``, ``pair``, ``pairs``
            or ``show`` printed with ``--output json``.
        percentile: in per cent.

    Raises:
        ConfigError: a file cannot be read or holds something else; all such files are named.

    """
    values: dict[tuple[str, str], list[float]] = {}
    problems: list[str] = []
    for path in files:
        try:
            for kind, measure, value in _values(path):
                values.setdefault((kind, measure), []).append(value)
        except ValueError as error:
            problems.append(f"{path}: {error}")
    if problems:
        raise ConfigError(problems)
    return [_spread(*key, sorted(found), percentile) for key, found in sorted(values.items())]


def as_toml(found: Sequence[Spread]) -> str:
    """Return the thresholds in the format of ``holdfast check node --config``."""
    lines: list[str] = []
    for kind in dict.fromkeys(one.instance_type for one in found):
        lines.append(f"[thresholds.{json.dumps(kind)}]")
        of_kind = (one for one in found if one.instance_type == kind)
        lines += [f"{one.measure} = {one.threshold!r}" for one in of_kind]
        lines.append("")
    return "\n".join(lines)


def at_percentile(values: Sequence[float], percentile: float) -> float:
    """Return the nearest-rank percentile of sorted ``values``, which is one of them."""
    return values[max(0, math.ceil(len(values) * percentile / 100) - 1)]


def _values(path: Path) -> Iterator[tuple[str, str, float]]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error
    for document in _documents(text):
        for kind, measured in _passed(document):
            yield from _measured(kind, measured)


def _passed(document: Any) -> Iterator[tuple[str, object]]:
    """Yield the instance type and the measurements of each passed check or part."""
    if isinstance(document, list) and document and all(isinstance(one, dict) for one in document):
        for one in document:  # of check show; an active check has no result
            result = one.get("result") or {}
            if not isinstance(result, dict) or "result" not in one:
                raise ValueError(_EXPECTED)
            if result.get("passed") is True:
                yield str(one.get("instance_type") or EVERY_TYPE), result.get("measured") or {}
        return
    checks = document.get("checks", [document]) if isinstance(document, dict) else None
    if not isinstance(checks, list):
        raise ValueError(_EXPECTED)
    for check in checks:
        parts = check.get("parts") if isinstance(check, dict) else None
        if not isinstance(parts, list):
            raise ValueError(_EXPECTED)
        for part in parts:
            if isinstance(part, dict) and part.get("outcome") == Outcome.PASSED:
                yield str(check.get("instance_type") or EVERY_TYPE), part.get("measured") or {}


def _measured(kind: str, measured: object) -> Iterator[tuple[str, str, float]]:
    if not isinstance(measured, dict):
        raise ValueError(f"measured: expected an object, got {measured!r}")
    for name, value in measured.items():
        if name not in _MEASURES:
            raise ValueError(f"measured: unknown {name!r}; expected one of {', '.join(_MEASURES)}")
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise ValueError(f"measured: {name}: expected a number, got {value!r}")
        yield kind, name, float(value)


def _documents(text: str) -> Iterator[Any]:
    decoder, place = json.JSONDecoder(), 0
    while rest := text[place:].lstrip():
        place = len(text) - len(rest)
        try:
            document, place = decoder.raw_decode(text, place)
        except ValueError as error:
            raise ValueError(f"not JSON: {error}") from error
        yield document


def _spread(kind: str, measure: str, values: Sequence[float], percentile: float) -> Spread:
    return Spread(
        instance_type=kind,
        measure=measure,
        count=len(values),
        least=values[0],
        median=at_percentile(values, 50),
        greatest=values[-1],
        threshold=at_percentile(values, 100 - percentile if is_ceiling(measure) else percentile),
    )
