"""Detectors that an agent's configuration enables."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from holdfast.apps.agent.config import AgentConfig, DetectorSettings
from holdfast.detectors import neuron_state
from holdfast.detectors.contract import KERNEL_LOG, LOGS, Detector, LogLine, Readings
from holdfast.detectors.custom_rules import NAME as CUSTOM_RULES
from holdfast.detectors.instance_types import UNKNOWN_EQUIPMENT, Equipment
from holdfast.detectors.line_trust import LineTrust
from holdfast.detectors.table import detectors
from holdfast.model.health import Fault, Finding, Remedy
from holdfast.model.names import Reason


def chosen_detectors(
    config: AgentConfig,
    equipment: Equipment = UNKNOWN_EQUIPMENT,
    added: tuple[Detector, ...] = (),
    lines_since: datetime | None = None,
) -> tuple[Detector, ...]:
    """The enabled detectors of a node with ``equipment``, with those of ``added_detectors``.

    In shadow mode a detector requests no remedy. With ``needs_corroboration``, for log lines that
    may be forged, and for lines before ``lines_since``, it only warns until another reading
    supports its finding.
    """
    trust = replace(_line_trust(config, equipment), trusted_since=lines_since)
    return tuple(
        _changed(config, trust.applied(detector))
        for detector in (_timed(config, one) for one in (*_all(config, equipment), *added))
        if _is_on(config, detector)
        and (detector.reads <= {KERNEL_LOG, LOGS} or not config.logs_only)
    )


def is_discarded(config: AgentConfig, added: tuple[Detector, ...], fault: Fault) -> bool:
    """Whether ``fault`` is from a detector that is disabled or in shadow mode by now.

    Also if it is from a custom rule that was removed or no longer matches its evidence.
    """
    if fault.family.startswith(f"{CUSTOM_RULES}:") and not any(
        _finds(detector, fault) for detector in added
    ):
        return True
    return config.shadow or any(
        _finds(detector, fault)
        for detector in (*_all(config), *added)
        if not _is_on(config, detector) or _is_shadow(config, detector)
    )


def _line_trust(config: AgentConfig, equipment: Equipment) -> LineTrust:
    readers = [one for one in _all(config) if one.name == neuron_state.STATE]
    reads_counters = not config.logs_only and any(
        _is_on(config, one) and not _is_shadow(config, one) for one in readers
    )
    return LineTrust(
        corroboration_window=config.corroboration_window,
        drill_until=config.drill_until,
        neuron_counters=equipment.neuron_counters if reads_counters else frozenset(),
    )


def _finds(detector: Detector, fault: Fault) -> bool:
    """Whether ``fault`` is from ``detector``: of its families, or found again in its evidence."""
    line = LogLine(message=fault.message, observed_at=fault.since)
    found = detector.detect(Readings(kernel_log=(line,))) if KERNEL_LOG in detector.reads else []
    if fault.reason == Reason.FAULTS_OMITTED:  # its message is that of one of them
        is_found = any(one.family == fault.family for one in found)
    else:
        is_found = any(one.key == fault.key for one in found)
    return fault.family in detector.settles or is_found


def _all(config: AgentConfig, equipment: Equipment = UNKNOWN_EQUIPMENT) -> tuple[Detector, ...]:
    remedies = {int(code): remedy for code, remedy in config.xid.items()}
    return detectors(config.profile, remedies, equipment)


def _settings(config: AgentConfig, detector: Detector) -> DetectorSettings:
    return config.detectors.get(detector.name, DetectorSettings())


def _is_on(config: AgentConfig, detector: Detector) -> bool:
    enabled = _settings(config, detector).enabled
    return not detector.is_opt_in if enabled is None else enabled


def _timed(config: AgentConfig, detector: Detector) -> Detector:
    every = _settings(config, detector).every
    return detector if every is None else replace(detector, every=every)


def _is_shadow(config: AgentConfig, detector: Detector) -> bool:
    return config.shadow or _settings(config, detector).shadow


def _changed(config: AgentConfig, detector: Detector) -> Detector:
    """The detector, with the configured shadow mode and corroboration."""
    if _is_shadow(config, detector):
        change: Callable[[Finding], Finding] = _harmless
    elif _settings(config, detector).needs_corroboration:
        change = partial(_doubted, config.corroboration_window)
    else:
        return detector

    def detect(readings: Readings) -> list[Finding]:
        return [change(finding) for finding in detector.detect(readings)]

    return replace(detector, detect=detect)


def _doubted(within: timedelta, finding: Finding) -> Finding:
    return replace(finding, corroborated_within=within) if finding.remedy.touches_node else finding


def _harmless(finding: Finding) -> Finding:
    if finding.remedy is Remedy.NONE:
        return finding
    message = f"shadow mode: would request {finding.remedy}: {finding.message}"
    return replace(finding, remedy=Remedy.NONE, message=message)
