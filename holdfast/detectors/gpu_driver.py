"""Messages of NVIDIA's driver about unusable GPUs that are not XIDs."""

from typing import Final

from holdfast.detectors.contract import Detector, Profile
from holdfast.detectors.log_rules import PCI, LogRule, log_detector
from holdfast.model.health import Remedy, Severity
from holdfast.model.names import Condition, Reason

FAMILY: Final = "gpu-driver"

_DRIVER: Final = "NVIDIA open-gpu-kernel-modules 595.45.04"

RULES: Final = (
    LogRule(
        keyword="NVRM",
        pattern=rf"NVRM: (?:GPU {PCI}: )?RmInitAdapter failed",
        example="NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x40:2477)",
        condition=Condition.NVIDIA_REBOOT,
        reason=Reason.GPU_INIT_FAILED,
        severity=Severity.FATAL,
        remedy=Remedy.REBOOT,
        source=f"{_DRIVER}; seen after XID 79 in its issue 1151",
    ),
    LogRule(
        keyword="NVRM",
        pattern=rf"NVRM: (?:GPU {PCI}: )?rm_init_adapter(?:\([0-9]{{1,4}}\))? failed",
        example="NVRM: GPU 0000:01:00.0: rm_init_adapter failed, device minor number 0",
        condition=Condition.NVIDIA_REBOOT,
        reason=Reason.GPU_INIT_FAILED,
        severity=Severity.FATAL,
        remedy=Remedy.REBOOT,
        source=_DRIVER,
    ),
    LogRule(
        keyword="NVRM",
        pattern=r"NVRM: The NVIDIA probe routine failed for [0-9]{1,4} device",
        example="NVRM: The NVIDIA probe routine failed for 1 device(s).",
        condition=Condition.NVIDIA_REBOOT,
        reason=Reason.GPU_PROBE_FAILED,
        severity=Severity.FATAL,
        remedy=Remedy.REBOOT,
        source=_DRIVER,
    ),
    LogRule(
        keyword="NVRM",
        pattern=r"NVRM: knvlink\w{1,80}PostRxDet\w{1,80}: Failed to update Rx Detect Link mask",
        example=(
            "NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!"
        ),
        condition=Condition.NVIDIA_REBOOT,
        reason=Reason.NVLINK_DETECT_FAILED,
        severity=Severity.FATAL,
        remedy=Remedy.REBOOT,
        source=f"{_DRIVER}; gpud reboots for it (issues 1271 and 1272)",
    ),
)


def build(_: Profile) -> Detector:
    """Return the detector; all profiles agree on it."""
    return log_detector("gpu-driver", FAMILY, RULES)
