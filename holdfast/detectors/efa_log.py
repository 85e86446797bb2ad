"""AWS Elastic Fabric Adapter: messages of its driver in the kernel log.

A line begins with ``efa 0000:a0:19.0 rdmap160s25: `` where the InfiniBand core prints it, on older
kernels with ``infiniband efa_0: ``, before the device is registered with ``(null): ``, and with
``efa 0000:a0:19.0: `` where the PCI core prints it. Commands that fail while a process ends, as
``DEREG_MR``, are no fault.
"""

import re
from typing import Final

from holdfast.detectors.contract import Detector, Profile
from holdfast.detectors.log_rules import LogRule, log_detector, reboot
from holdfast.model.health import Urgency
from holdfast.model.names import Condition, Reason

FAMILY: Final = "efa"

_DRIVER: Final = "https://github.com/amzn/amzn-drivers, kernel/linux/efa"
_NAME: Final = r"efa_?[0-9]{1,4}|rdmap[0-9a-z]{1,16}"
_ADDRESS: Final = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_PREFIX: Final = (
    rf"(?:\(null\): |(?:infiniband|efa) (?P<device>{_NAME}|{_ADDRESS})(?: (?:{_NAME}))?: "
    rf"(?:(?:{_NAME}): )?)"
)
"""Prefix of a line. If it has an address, that is the device: its name depends on udev rules."""


def _silent(keyword: str, text: str, begin: str = "") -> LogRule:
    """Return a rule for a timeout: one may occur on a busy host; a broken device never responds."""
    return reboot(
        Condition.NETWORK,
        Reason.EFA_COMMAND_TIMEOUT,
        keyword,
        rf"{_PREFIX}{re.escape(begin or keyword)}",
        f"efa 0000:a0:19.0 rdmap160s25: {text}",
        f"{_DRIVER}; how often is our own judgement",
        min_count=3,
    )


def _absent(keyword: str, text: str) -> LogRule:
    return reboot(
        Condition.NETWORK,
        Reason.EFA_INIT_FAILED,
        keyword,
        rf"{_PREFIX}{re.escape(keyword)}",
        f"efa 0000:a0:19.0: {text}",
        _DRIVER,
        urgency=Urgency.IMMEDIATE,
    )


RULES: Final = (
    _silent(
        "Reading register timed out",
        "Reading register timed out. expected: req id[7] offset[0x58] actual: req id[6] "
        "offset[0x58]",
    ),
    _silent("Admin queue is closed", "Admin queue is closed"),
    _silent("Wait for completion (polling) timeout", "Wait for completion (polling) timeout"),
    _silent(
        "for admin cmd",
        "The device didn't send any completion for admin cmd CREATE_QP(1) status 0 (ctx 0x1)",
        begin="The device didn't send any completion for admin cmd",
    ),
    _silent(
        "for admin cmd",
        "The device sent a completion but the driver didn't receive any MSI-X interrupt for admin "
        "cmd CREATE_QP(1) status 0",
        begin="The device sent a completion but the driver didn't receive any MSI-X interrupt",
    ),
    _absent("EFA device init failed", "EFA device init failed"),
    _absent("Device isn't ready, abort com init", "Device isn't ready, abort com init"),
    _absent("Failed to enable MSI-X", "Failed to enable MSI-X. irq_num -28"),
    _absent("Reset indication didn't turn o", "Reset indication didn't turn on"),
)


def build(_: Profile) -> Detector:
    """Return the detector; all profiles agree on it."""
    return log_detector("efa-log", FAMILY, RULES)
