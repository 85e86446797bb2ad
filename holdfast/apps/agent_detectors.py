"""The detectors that an agent's configuration asks for."""

from dataclasses import replace

from holdfast.apps.agent_config import AgentConfig, DetectorSettings
from holdfast.detectors.contract import KERNEL_LOG, Detector, LogLine, Readings
from holdfast.detectors.table import detectors
from holdfast.model.health import Fault, Finding, Remedy


def chosen_detectors(config: AgentConfig) -> tuple[Detector, ...]:
    """The detectors that are to run, those in shadow mode calling for nothing."""
    return tuple(
        _shadowed(detector) if _is_shadow(config, detector) else detector
        for detector in _all(config)
        if _settings(config, detector).enabled
        and (detector.reads == {KERNEL_LOG} or not config.logs_only)
    )


def is_void(config: AgentConfig, fault: Fault) -> bool:
    """Whether an earlier agent saw ``fault`` with a detector that may no longer find faults."""
    return config.shadow or any(
        _finds(detector, fault)
        for detector in _all(config)
        if not _settings(config, detector).enabled or _is_shadow(config, detector)
    )


def _finds(detector: Detector, fault: Fault) -> bool:
    """Whether ``fault`` is one of ``detector``: of its families, or found anew in its evidence."""
    line = LogLine(message=fault.message, observed_at=fault.since)
    found = detector.detect(Readings(kernel_log=(line,))) if KERNEL_LOG in detector.reads else []
    return fault.family in detector.settles or any(one.key == fault.key for one in found)


def _all(config: AgentConfig) -> tuple[Detector, ...]:
    return detectors(config.profile, {int(code): remedy for code, remedy in config.xid.items()})


def _settings(config: AgentConfig, detector: Detector) -> DetectorSettings:
    return config.detectors.get(detector.name, DetectorSettings())


def _is_shadow(config: AgentConfig, detector: Detector) -> bool:
    return config.shadow or _settings(config, detector).shadow


def _shadowed(detector: Detector) -> Detector:
    def detect(readings: Readings) -> list[Finding]:
        return [_harmless(finding) for finding in detector.detect(readings)]

    return replace(detector, detect=detect)


def _harmless(finding: Finding) -> Finding:
    if finding.remedy is Remedy.NONE:
        return finding
    message = f"in shadow mode, would call for {finding.remedy}: {finding.message}"
    return replace(finding, remedy=Remedy.NONE, message=message)
