"""The tables of docs/reference/reasons.md: what each reason means and what leads to it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import import_module
from typing import Final

from holdfast.detectors import gpu_xid, table
from holdfast.detectors.contract import LogLine, Profile, Readings
from holdfast.detectors.log_rules import LogRule
from holdfast.detectors.xid_codes import XID_CODES, CodeAction
from holdfast.kit.units import format_duration
from holdfast.model.health import Remedy, Urgency

Row = tuple[str, ...]

LOG_TITLES: Final = ("Family", "Reason", "Severity", "Remedy", "Example", "Source")
STATE_TITLES: Final = ("Detector", "Family", "Reason", "Severity", "Remedy", "Source")
XID_TITLES: Final = ("XID", "Meaning", "Reason", "Severity", "`hyperpod`", "`nvidia`")
_BY_LINE: Final = {
    CodeAction.LINK: "`reset-gpu` if the line contains `Fatal`, else `none`",
    CodeAction.ACTION: "what the line asks for",
}


def log_rows() -> Iterator[Row]:
    """A row for each rule about the kernel log; those of SXids as HyperPod has them."""
    for build in table.ROWS:
        module = import_module(build.__module__)
        rules = module.rules(Profile.HYPERPOD) if hasattr(module, "rules") else ()
        for rule in getattr(module, "RULES", rules):
            if isinstance(rule, LogRule):
                yield _log_row(module.FAMILY, rule)


def state_rows() -> Iterator[Row]:
    """A row for each reason of each detector of state."""
    for detector in table.detectors(Profile.HYPERPOD):
        for row in detector.state_reasons:
            yield (
                f"`{detector.name}`",
                row.family,
                f"`{row.reason.value}`",
                row.severity.value,
                _remedy(row.remedy, row.urgency),
                row.source,
            )


def xid_rows() -> Iterator[Row]:
    """A row for each XID."""
    for code, row in XID_CODES.items():
        line = LogLine(
            message=f"NVRM: Xid (PCI:0000:b9:00): {code}, ", observed_at=datetime.now(UTC)
        )
        hyperpod, nvidia = (
            gpu_xid.build(profile).detect(Readings(kernel_log=(line,)))[0] for profile in Profile
        )
        yield (
            str(code),
            row.name,
            f"`{hyperpod.reason}`",
            hyperpod.severity.value,
            _BY_LINE.get(row.hyperpod, f"`{hyperpod.remedy.value}`"),
            _BY_LINE.get(row.nvidia, f"`{nvidia.remedy.value}`"),
        )


def _remedy(remedy: Remedy, urgency: Urgency) -> str:
    return f"`{remedy.value}`" + " once its jobs have ended" * (urgency is Urgency.DEFERRED)


def _log_row(family: str, rule: LogRule) -> Row:
    remedy = _remedy(rule.remedy, rule.urgency)
    if rule.min_count > 1:
        remedy += f", if seen {rule.min_count} times in {format_duration(rule.window)}"
    return (
        family,
        f"`{rule.reason.value}`",
        rule.severity.value,
        remedy,
        f"`{rule.example}`",
        rule.source,
    )
