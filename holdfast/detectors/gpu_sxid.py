"""SXids: errors of NVSwitches and their links that NVIDIA's driver writes to the kernel log.

The grammar of a line, from NVIDIA's open-gpu-kernel-modules 595.45.04::

    nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal, Link 28 sourcetrack timeout error

The second word is ``Fatal``, ``Non-fatal`` or ``Correctable``; some lines have none. One or more
lines with ``Severity`` or ``Data`` follow and repeat the code: they belong to the first.
"""

from typing import Final

from holdfast.detectors.contract import Detector, Profile
from holdfast.detectors.log_rules import LogRule, log_detector
from holdfast.detectors.sxid_codes import ALWAYS_FATAL, SXID_NAMES
from holdfast.model.health import Remedy, Severity
from holdfast.model.names import Condition, Reason

FAMILY: Final = "sxid"

_KEYWORD: Final = "SXid"
_DRIVER: Final = r"nvidia-[\w-]{1,32}: SXid \((?P<device>[^()]{1,80})\): "
_CONTINUATION: Final = r"(?!, (?:Severity [0-9]|Data \{))"
_CODE: Final = rf"{_DRIVER}(?P<code>[0-9]{{1,6}})(?![0-9A-Za-z]){_CONTINUATION}"
_ALWAYS: Final = "|".join(map(str, sorted(ALWAYS_FATAL)))
_LINK: Final = "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): "
_GUIDE: Final = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/"

_FATAL_FORMS: Final = (
    (
        rf"{_DRIVER}(?P<code>{_ALWAYS})(?![0-9A-Za-z]){_CONTINUATION}",
        f"{_LINK}23001, Fatal, Link 12 ingress SRC-VC buffer overflow (First)",
        f"{_GUIDE}: always fatal",
    ),
    (
        rf"{_CODE}, Fatal\b",
        f"{_LINK}20034, Fatal, Link 30 LTSSM Fault Up",
        f"rated by the driver; {_GUIDE}",
    ),
)
_FATAL: Final = {
    Profile.HYPERPOD: (Condition.NVIDIA_TERMINATE, Reason.XID_REPLACE, Remedy.REPLACE),
    Profile.NVIDIA: (Condition.NVIDIA_REBOOT, Reason.XID_REBOOT, Remedy.REBOOT),
}
"""HyperPod replaces the node after a fatal SXid. NVIDIA's guide resets all GPUs and switches at
once, which is a reboot."""

_NOTICES: Final = (
    LogRule(
        keyword=_KEYWORD,
        pattern=rf"{_CODE}, Correctable\b",
        example=f"{_LINK}11012, Correctable, Link 03 ingress NCISOC HDR ECC limit (First)",
        condition=Condition.NVIDIA_GPU_UNHEALTHY,
        reason=Reason.SXID_WARNING,
        severity=Severity.INFO,
        source=f"rated by the driver; {_GUIDE}",
    ),
    LogRule(
        keyword=_KEYWORD,
        pattern=_CODE,
        example=f"{_LINK}20012, Non-fatal, Link 36 LTSSM Fault Down",
        condition=Condition.NVIDIA_GPU_UNHEALTHY,
        reason=Reason.SXID_WARNING,
        severity=Severity.WARNING,
        source=f"rated by the driver, or not rated: inspect the node; {_GUIDE}",
    ),
)


def rules(profile: Profile) -> tuple[LogRule, ...]:
    """Return the rows with the ratings of ``profile``."""
    condition, reason, remedy = _FATAL[profile]
    fatal = tuple(
        LogRule(
            keyword=_KEYWORD,
            pattern=pattern,
            example=example,
            condition=condition,
            reason=reason,
            severity=Severity.FATAL,
            remedy=remedy,
            source=source,
        )
        for pattern, example, source in _FATAL_FORMS
    )
    return fatal + _NOTICES


def build(profile: Profile) -> Detector:
    """Return the detector that rates faults as ``profile`` does."""
    return log_detector("gpu-sxid", FAMILY, rules(profile), SXID_NAMES)
