"""Summary of a deep health check for its caller: one line of JSON."""

import json
from dataclasses import replace
from typing import Final

from holdfast.kit.serial import parse_value, to_plain
from holdfast.model.node_checks import CheckSummary, NodeCheck

LIMIT: Final = 4000
"""Limit in bytes, to fit into a container's termination message (4 KiB in Kubernetes)."""


def summary_of(check: NodeCheck, summary: str) -> CheckSummary:
    """Result of a check with all measurements, in the format of ``summary``."""
    measured: dict[str, float] = {}
    for part in check.parts:
        for name, value in part.measured.items():
            measured[name] = min(value, measured.get(name, value))
    bounds = {name: value for part in check.parts for name, value in part.bounds.items()}
    return CheckSummary(
        summary=summary, measured=measured, bounds=bounds, outcome=check.outcome, kinds=check.kinds
    )


def summary_text(report: CheckSummary) -> str:
    """One line of at most ``LIMIT`` bytes; texts are truncated before numbers are dropped."""
    text = _line(report.summary, report)
    excess = len(text) - LIMIT
    return (
        text
        if excess <= 0
        else _line(report.summary[: max(0, len(report.summary) - excess)], report)
    )


def read_summary(text: str) -> CheckSummary:
    """Summary that a check wrote, or the last line of another program's output."""
    lines = text.strip().splitlines()
    last = lines[-1] if lines else ""
    try:
        return parse_value(CheckSummary, last)
    except ValueError:
        return CheckSummary(summary=last)


def _line(summary: str, report: CheckSummary) -> str:
    return json.dumps(to_plain(replace(report, summary=summary)))
