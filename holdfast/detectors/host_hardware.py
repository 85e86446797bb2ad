"""Errors of processors, memory and PCIe links that hardware or firmware reports.

Corrected errors are a notice, if anything: a healthy fleet logs them every day. Uncorrectable
errors of memory or a processor need another machine, as no reboot repairs them.
"""

from typing import Final

from holdfast.detectors.contract import Detector, Profile
from holdfast.detectors.log_rules import LogRule, log_detector
from holdfast.model.health import Remedy, Severity
from holdfast.model.names import Condition, Reason

FAMILY: Final = "hardware"

_NPD: Final = "node-problem-detector, kernel-monitor.json"
_BANK: Final = (
    r"(?:(?:(?:mce|core): )?\[Hardware Error\]|EDAC \w{1,20} MC[0-9]{1,3}): "
    r"(?P<device>CPU [0-9]{1,5}): Machine Check(?: Exception| Event)?: "
    r"(?:0x)?[0-9a-f]{1,16} Bank [0-9]{1,3}: ?(?:0x)?"
)
"""Format of mce/core.c, whose name some kernels print, and of sb_edac, skx_edac and i10nm_edac."""

_AMD_BANK: Final = (
    r"\[Hardware Error\]: (?P<device>CPU:[0-9]{1,5}) \([0-9a-f:]{1,12}\) "
    r"MC[0-9]{1,3}_STATUS\[[^\]\n]{0,120}\]: 0x"
)
_UNCORRECTED_STATUS: Final = r"[abef][0-9a-f]{15}(?![0-9a-f])"
_CORRECTED_STATUS: Final = r"[89cd][0-9a-f]{15}(?![0-9a-f])"
_ADDRESS: Final = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_DRIVER: Final = r"[\w-]{1,32}"
_DEVICE: Final = rf"{_DRIVER} (?P<device>{_ADDRESS}): "
_SOURCE: Final = rf"(?: from|:) (?P<device>{_ADDRESS})"
_UNCORRECTED: Final = r"(?:AER: )?(?:Multiple )?Uncorrect(?:ed|able)"
_RECEIVED: Final = r"error (?:message )?received"
_MANUAL: Final = "Intel SDM volume 3, IA32_MCi_STATUS"
_AMD_MANUAL: Final = "AMD64 APM volume 2, MCi_STATUS"
_COUNTED: Final = "retired memory is counted in /proc/meminfo and rated there"
_EDAC: Final = r"EDAC (?P<device>MC[0-9]{1,3}): "


def _rule(
    reason: Reason,
    keyword: str,
    pattern: str,
    example: str,
    source: str,
    *,
    severity: Severity = Severity.WARNING,
    remedy: Remedy = Remedy.NONE,
    condition: Condition = Condition.HOST_HARDWARE,
) -> LogRule:
    return LogRule(
        keyword=keyword,
        pattern=pattern,
        example=example,
        condition=condition,
        reason=reason,
        severity=severity,
        remedy=remedy,
        source=source,
    )


_MACHINE_CHECKS: Final = (
    _rule(
        Reason.MACHINE_CHECK,
        ": Machine ",
        _BANK + _UNCORRECTED_STATUS,
        "mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 4: a600000000020408",
        f"{_MANUAL}: bits 63 (valid) and 61 (uncorrected)",
        severity=Severity.FATAL,
        remedy=Remedy.REPLACE,
    ),
    _rule(
        Reason.MACHINE_CHECK_CORRECTED,
        ": Machine ",
        _BANK + _CORRECTED_STATUS,
        "mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 7: 8c00004000010090",
        f"{_MANUAL}: bit 63 (valid) without bit 61 (uncorrected)",
        severity=Severity.INFO,
    ),
    _rule(
        Reason.MACHINE_CHECK,
        "_STATUS[",
        _AMD_BANK + _UNCORRECTED_STATUS,
        "[Hardware Error]: CPU:7 (17:1:1) MC0_STATUS[-|UE|MiscV|AddrV|-|-|-|UECC|-|Poison|-]: "
        "0xbc002800000c0135",
        f"{_AMD_MANUAL}: bits 63 (valid) and 61 (uncorrected)",
        severity=Severity.FATAL,
        remedy=Remedy.REPLACE,
    ),
    _rule(
        Reason.MACHINE_CHECK_CORRECTED,
        "_STATUS[",
        _AMD_BANK + _CORRECTED_STATUS,
        "[Hardware Error]: CPU:0 (17:1:1) "
        "MC15_STATUS[Over|-|MiscV|AddrV|-|-|SyndV|UECC|Deferred|-|-]: 0xdc2030000000011b",
        f"{_AMD_MANUAL}: bit 63 (valid) without bit 61 (uncorrected); the memory controller "
        "reports what a deferred error destroyed",
        severity=Severity.INFO,
    ),
    _rule(
        Reason.MACHINE_CHECK_CORRECTED,
        ": Machine ",
        r"(?:mce|core): \[Hardware Error\]: Machine check events logged",
        "mce: [Hardware Error]: Machine check events logged",
        "Linux, arch/x86/kernel/cpu/mce/core.c: the events themselves are reported elsewhere",
        severity=Severity.INFO,
    ),
)

_MEMORY: Final = (
    _rule(
        Reason.EDAC_UNCORRECTED,
        " UE ",
        rf"{_EDAC}(?:[0-9]{{1,10}} UE |UE (?:page|row) )",
        "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (channel:1 slot:0)",
        "Linux, drivers/edac/edac_mc.c: uncorrectable; older kernels write no count",
        severity=Severity.FATAL,
        remedy=Remedy.REPLACE,
    ),
    _rule(
        Reason.MEMORY_READ_ERROR,
        " CE ",
        rf"{_EDAC}(?:[0-9]{{1,10}} CE |CE (?:page|row) )",
        "EDAC MC1: 1 CE memory scrubbing error on CPU_SrcID#1_Ha#0_Chan#0_DIMM#0 (channel:0)",
        f"Linux, drivers/edac/edac_mc.c: corrected; {_NPD} (MemoryReadError)",
        severity=Severity.INFO,
    ),
    _rule(
        Reason.EDAC_DEVICE,
        "EDAC DEVICE",
        r"EDAC (?P<device>DEVICE[0-9]{1,3}): [CU]E: ",
        "EDAC DEVICE0: UE: cpu_l2 instance: cpu0 block: L2 count: 1 'uncorrectable error'",
        "Linux, drivers/edac/edac_device.c: caches and other parts; the remedy depends on the part",
    ),
    _rule(
        Reason.MEMORY_CORRUPTED,
        "hardware memory ",
        r"(?:mce: )?Uncorrected hardware memory error in user-access at [0-9a-f]{1,16}",
        "mce: Uncorrected hardware memory error in user-access at 1850602400",
        f"Linux, arch/x86/kernel/cpu/mce/core.c; {_COUNTED}",
    ),
    _rule(
        Reason.MEMORY_CORRUPTED,
        "hardware memory ",
        r"(?:Memory failure: 0x[0-9a-f]{1,16}: |MCE(?: 0x[0-9a-f]{1,16})?: )"
        r"(?:Sending SIGBUS to|Killing) (?P<device>[^\n]{1,64}?):[0-9]{1,10} (?:early )?due to "
        "hardware memory corruption",
        "Memory failure: 0x1840200: Sending SIGBUS to python:42 due to hardware memory corruption",
        f"Linux, mm/memory-failure.c and arch/x86/mm/fault.c; {_COUNTED}",
    ),
    _rule(
        Reason.MEMORY_CORRUPTED,
        "Memory failure: ",
        r"Memory failure: 0x[0-9a-f]{1,16}: recovery action for [^:\n]{1,60}: \w",
        "Memory failure: 0x208900: recovery action for reserved kernel page: Failed",
        f"Linux, mm/memory-failure.c; {_COUNTED}",
    ),
)

_FIRMWARE: Final = (
    _rule(
        Reason.CPER_FATAL,
        "event severity: ",
        r"\{[0-9]{1,10}\}\[Hardware Error\]: event severity: fatal",
        "{1}[Hardware Error]: event severity: fatal",
        f"Linux, drivers/firmware/efi/cper.c; {_NPD} (CperHardwareErrorFatal)",
        severity=Severity.FATAL,
        remedy=Remedy.REPLACE,
        condition=Condition.CPER_FATAL,
    ),
    _rule(
        Reason.CPER_LAST_BOOT,
        "event severity: ",
        r"\[Hardware Error\]: event severity: fatal",
        "[Hardware Error]: event severity: fatal",
        "Linux, drivers/acpi/apei/bert.c: the error that ended an earlier boot; some firmware "
        "reports it again at every boot",
    ),
    _rule(
        Reason.CPER_RECOVERABLE,
        "event severity: ",
        r"\{[0-9]{1,10}\}\[Hardware Error\]: event severity: recoverable",
        "{1}[Hardware Error]: event severity: recoverable",
        f"Linux, drivers/firmware/efi/cper.c; {_NPD} (CperHardwareErrorRecoverable)",
    ),
    _rule(
        Reason.CPER_CORRECTED,
        "event severity: ",
        r"\{[0-9]{1,10}\}\[Hardware Error\]: event severity: corrected",
        "{1}[Hardware Error]: event severity: corrected",
        f"Linux, drivers/firmware/efi/cper.c; {_NPD} (CperHardwareErrorCorrected)",
        severity=Severity.INFO,
    ),
)

_HOWTO: Final = "Linux, Documentation/PCI/pcieaer-howto.rst: the link is unreliable until a reset"

_LINKS: Final = (
    _rule(
        Reason.PCIE_FATAL,
        "Fatal)",
        rf"{_DRIVER} {_ADDRESS}: {_UNCORRECTED} \(Fatal\) {_RECEIVED}{_SOURCE}",
        "pcieport 0000:60:01.0: AER: Uncorrectable (Fatal) error message received from "
        "0000:63:00.0",
        f"{_HOWTO}; the device is the one behind the port that reports it",
        severity=Severity.FATAL,
        remedy=Remedy.REBOOT,
    ),
    _rule(
        Reason.PCIE_FATAL,
        "Fatal)",
        rf"{_DEVICE}{_UNCORRECTED} \(Fatal\) {_RECEIVED}",
        "pcieport 0000:00:02.0: AER: Uncorrected (Fatal) error received: id=0010",
        f"{_HOWTO}; older kernels write no address of the device",
        severity=Severity.FATAL,
        remedy=Remedy.REBOOT,
    ),
    _rule(
        Reason.PCIE_FATAL,
        "Fatal)",
        rf"{_DEVICE}(?:AER: )?PCIe Bus Error: severity=Uncorrect(?:ed|able) \(Fatal\)",
        "nvidia 0000:63:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction "
        "Layer, (Receiver ID)",
        _HOWTO,
        severity=Severity.FATAL,
        remedy=Remedy.REBOOT,
    ),
    _rule(
        Reason.PCIE_NONFATAL,
        "Fatal)",
        rf"{_DRIVER} {_ADDRESS}: {_UNCORRECTED} \(Non-Fatal\) {_RECEIVED}{_SOURCE}",
        "pcieport 0000:60:01.0: AER: Uncorrectable (Non-Fatal) error message received from "
        "0000:63:00.0",
        "Linux, drivers/pci/pcie/aer.c",
    ),
    _rule(
        Reason.PCIE_NONFATAL,
        "Fatal)",
        rf"{_DEVICE}(?:AER: )?(?:PCIe Bus Error: severity=)?"
        rf"(?:Multiple )?Uncorrect(?:ed|able) \(Non-Fatal\)(?:,| {_RECEIVED})",
        "nvidia 0000:63:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction "
        "Layer, (Requester ID)",
        "Linux, drivers/pci/pcie/aer.c",
    ),
    _rule(
        Reason.PCIE_CONTAINED,
        "DPC: containment event",
        rf"{_DRIVER} {_ADDRESS}: DPC: containment event, status:0x[0-9a-f]{{1,8}}[:,] "
        rf"ERR_(?:NON)?FATAL received from (?P<device>{_ADDRESS})",
        "pcieport 0015:00:00.0: DPC: containment event, status:0x200d, ERR_FATAL received from "
        "0015:01:00.0",
        "Linux, drivers/pci/pcie/dpc.c: the device's driver reports the consequences",
    ),
    _rule(
        Reason.PCIE_CONTAINED,
        "DPC: containment event",
        rf"{_DEVICE}DPC: containment event, status:0x",
        "pcieport 0000:89:02.0: DPC: containment event, status:0x1f01 source:0x0000",
        "Linux, drivers/pci/pcie/dpc.c: the device's driver reports the consequences",
    ),
    _rule(
        Reason.PCIE_NONFATAL,
        "evice recovery failed",
        rf"{_DEVICE}AER: [Dd]evice recovery failed",
        "pcieport 0000:40:01.0: AER: device recovery failed",
        "Linux, drivers/pci/pcie/err.c: so it ends wherever a driver does not take part",
    ),
    _rule(
        Reason.PCIE_NONFATAL,
        "an't recover",
        rf"{_DEVICE}AER: [Cc]an't recover",
        "nvidia 0000:63:00.0: AER: can't recover (no error_detected callback)",
        "Linux, drivers/pci/pcie/err.c: the driver does not take part; the port has reported the "
        "error itself",
    ),
)

RULES: Final = _MACHINE_CHECKS + _MEMORY + _FIRMWARE + _LINKS


def build(_: Profile) -> Detector:
    """Return the detector; all profiles agree on it."""
    return log_detector("host-hardware", FAMILY, RULES)
