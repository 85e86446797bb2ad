"""The host's processors, memory and PCIe links: errors that hardware or firmware tells the kernel.

Corrected errors are a notice, if anything: a healthy fleet logs them every day. Memory that lost
data and a processor that could not correct an error mean another machine, as no reboot mends them.
"""

from typing import Final

from holdfast.detectors.contract import Detector, Profile
from holdfast.detectors.log_rules import LogRule, log_detector
from holdfast.model.health import Remedy, Severity
from holdfast.model.names import Condition, Reason

FAMILY: Final = "hardware"

_NPD: Final = "node-problem-detector, kernel-monitor.json"
_BANK: Final = (
    r"mce: \[Hardware Error\]: (?P<device>CPU [0-9]{1,5}): Machine Check(?: Exception)?: "
    r"[0-9a-f]{1,16} Bank [0-9]{1,3}: "
)
_ADDRESS: Final = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_PORT: Final = rf"[\w-]{{1,32}} (?P<device>{_ADDRESS}): "
_UNCORRECTED: Final = r"(?:AER: )?(?:Multiple )?Uncorrect(?:ed|able)"
_RECEIVED: Final = r"error (?:message )?received"
_MANUAL: Final = "Intel SDM volume 3, IA32_MCi_STATUS"


def _rule(
    reason: Reason,
    mark: str,
    pattern: str,
    example: str,
    source: str,
    *,
    severity: Severity = Severity.WARNING,
    remedy: Remedy = Remedy.NONE,
    condition: Condition = Condition.HOST_HARDWARE,
) -> LogRule:
    return LogRule(
        mark=mark,
        pattern=pattern,
        example=example,
        condition=condition,
        reason=reason,
        severity=severity,
        remedy=remedy,
        source=source,
    )


RULES: Final = (
    _rule(
        Reason.MACHINE_CHECK,
        ": Machine Check",
        rf"{_BANK}[abef][0-9a-f]{{15}}(?![0-9a-f])",
        "mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 4: a600000000020408",
        f"{_MANUAL}: bits 63 (valid) and 61 (uncorrected)",
        severity=Severity.FATAL,
        remedy=Remedy.REPLACE,
    ),
    _rule(
        Reason.MACHINE_CHECK_CORRECTED,
        ": Machine Check",
        rf"{_BANK}[89cd][0-9a-f]{{15}}(?![0-9a-f])",
        "mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 7: 8c00004000010090",
        f"{_MANUAL}: bit 63 (valid) without bit 61 (uncorrected)",
        severity=Severity.INFO,
    ),
    _rule(
        Reason.MACHINE_CHECK_CORRECTED,
        "Machine check events logged",
        r"mce: \[Hardware Error\]: Machine check events logged",
        "mce: [Hardware Error]: Machine check events logged",
        "Linux, arch/x86/kernel/cpu/mce/core.c: the events themselves are told elsewhere",
        severity=Severity.INFO,
    ),
    _rule(
        Reason.EDAC_UNCORRECTED,
        " UE ",
        r"EDAC (?P<device>MC[0-9]{1,3}): [0-9]{1,10} UE ",
        "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (channel:1 slot:0)",
        "Linux, drivers/edac/edac_mc.c: uncorrectable",
        severity=Severity.FATAL,
        remedy=Remedy.REPLACE,
    ),
    _rule(
        Reason.MEMORY_READ_ERROR,
        " CE ",
        r"EDAC (?P<device>MC[0-9]{1,3}): [0-9]{1,10} CE ",
        "EDAC MC1: 1 CE memory scrubbing error on CPU_SrcID#1_Ha#0_Chan#0_DIMM#0 (channel:0)",
        f"Linux, drivers/edac/edac_mc.c: corrected; {_NPD} (MemoryReadError)",
        severity=Severity.INFO,
    ),
    _rule(
        Reason.CPER_FATAL,
        "event severity: fatal",
        r"\{[0-9]{1,10}\}\[Hardware Error\]: event severity: fatal",
        "{1}[Hardware Error]: event severity: fatal",
        f"Linux, drivers/firmware/efi/cper.c; {_NPD} (CperHardwareErrorFatal)",
        severity=Severity.FATAL,
        remedy=Remedy.REPLACE,
        condition=Condition.CPER_FATAL,
    ),
    _rule(
        Reason.CPER_RECOVERABLE,
        "event severity: recoverable",
        r"\{[0-9]{1,10}\}\[Hardware Error\]: event severity: recoverable",
        "{1}[Hardware Error]: event severity: recoverable",
        f"Linux, drivers/firmware/efi/cper.c; {_NPD} (CperHardwareErrorRecoverable)",
    ),
    _rule(
        Reason.CPER_CORRECTED,
        "event severity: corrected",
        r"\{[0-9]{1,10}\}\[Hardware Error\]: event severity: corrected",
        "{1}[Hardware Error]: event severity: corrected",
        f"Linux, drivers/firmware/efi/cper.c; {_NPD} (CperHardwareErrorCorrected)",
        severity=Severity.INFO,
    ),
    _rule(
        Reason.PCIE_FATAL,
        "(Fatal) error",
        rf"{_PORT}{_UNCORRECTED} \(Fatal\) {_RECEIVED}",
        "pcieport 0000:00:02.0: AER: Uncorrected (Fatal) error received: id=0010",
        "Linux, drivers/pci/pcie/aer.c",
        severity=Severity.FATAL,
        remedy=Remedy.REBOOT,
    ),
    _rule(
        Reason.PCIE_NONFATAL,
        "(Non-Fatal) error",
        rf"{_PORT}{_UNCORRECTED} \(Non-Fatal\) {_RECEIVED}",
        "pcieport 0000:60:01.0: AER: Uncorrectable (Non-Fatal) error message received from "
        "0000:63:00.0",
        "Linux, drivers/pci/pcie/aer.c",
    ),
    _rule(
        Reason.PCIE_NONFATAL,
        "AER: can't recover",
        rf"{_PORT}AER: can't recover",
        "nvidia 0000:63:00.0: AER: can't recover (no error_detected callback)",
        "Linux, drivers/pci/pcie/err.c: the driver does not take part; the error itself is told "
        "before",
    ),
)


def build(_: Profile) -> Detector:
    """The detector; all profiles agree."""
    return log_detector("host-hardware", FAMILY, RULES)
