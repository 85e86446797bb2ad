"""AWS Trainium and Inferentia: messages of the Neuron runtime and driver in the kernel log.

The driver prints hardware errors of the runtime, with or without a time before::

    NEURON_HW_ERR=SRAM_UNCORRECTABLE_ERROR instance-id=i-.. hostname=.. nd-id=0 nc-id=0
        serial-num=.. action=TERMINATE_INSTANCE

The driver's own lines begin with ``neuron:`` and the name of a function.
"""

from datetime import timedelta
from typing import Final

from holdfast.detectors.contract import Detector, Profile
from holdfast.detectors.log_rules import LogRule, log_detector
from holdfast.model.health import Remedy, Severity, Urgency
from holdfast.model.names import Condition, Reason

FAMILY: Final = "neuron"

KEYWORD: Final = "NEURON_HW_ERR="
_REST: Final = (
    " instance-id=i-0592464924bd45322 hostname=ip-172-31-61-252 nd-id=0 nc-id=0"
    " serial-num=19fcda00f5ff6eb9"
)
_RUNTIME: Final = (
    "https://awsdocs-neuron.readthedocs-hosted.com/en/latest/neuron-runtime/nrt-troubleshoot.html"
)
_DRIVER: Final = "aws-neuron-driver fca19f7"

_HARDWARE: Final = {
    "SRAM_UNCORRECTABLE_ERROR": Reason.NEURON_SRAM,
    "NC_UNCORRECTABLE_ERROR": Reason.NEURON_NC,
    "HBM_UNCORRECTABLE_ERROR": Reason.NEURON_HBM,
    "DMA_ERROR": Reason.NEURON_DMA,
}
_ACTIONS: Final = (
    ("action=REBOOT_INSTANCE", Severity.FATAL, Remedy.REBOOT),
    ("action=NONE", Severity.WARNING, Remedy.NONE),
    ("", Severity.FATAL, Remedy.REPLACE),
)
"""Actions in the line. ``action=TERMINATE_INSTANCE`` is the one that the guide shows; without an
action, or with an unknown one, AWS's recovery agent replaces the instance anyway."""


def _pattern(error: str, action: str) -> str:
    """Return the pattern of the runtime's line, after up to three words of a prefix."""
    requested = rf"(?=[^\n]{{0,500}}?\s{action}(?!\w))" if action else ""
    device = r"(?:[^\n]{0,500}?\snd-id=(?P<neuron>[0-9]{1,4})(?![0-9]))?"
    return rf"(?:[\w:.+,-]{{1,64}} ){{0,3}}NEURON_HW_ERR={error}(?!\w){requested}{device}"


_HARDWARE_RULES: Final = tuple(
    LogRule(
        keyword=KEYWORD,
        pattern=_pattern(error, action),
        example=f"NEURON_HW_ERR={error}{_REST} {action or 'action=TERMINATE_INSTANCE'}",
        condition=Condition.NEURON,
        reason=reason,
        severity=severity,
        remedy=remedy,
        source=f"{_RUNTIME}; rules of AWS's Neuron node problem detector",
    )
    for error, reason in _HARDWARE.items()
    for action, severity, remedy in _ACTIONS
)

_HANG_ACTIONS: Final = (
    ("action=TERMINATE_INSTANCE", Severity.FATAL, Remedy.REPLACE),
    ("action=REBOOT_INSTANCE", Severity.FATAL, Remedy.REBOOT),
    ("action=NONE", Severity.WARNING, Remedy.NONE),
    ("", Severity.WARNING, Remedy.RESTART_APP),
)
"""Actions for a hang of collectives. The guide looks for the cause on the peers and restarts the
job, so that only an explicit action affects this node, and only after its jobs."""

_HANG_RULES: Final = tuple(
    LogRule(
        keyword=KEYWORD,
        pattern=_pattern("HANG_ON_COLLECTIVES", action),
        example=f"NEURON_HW_ERR=HANG_ON_COLLECTIVES{_REST} {action}".rstrip(),
        condition=Condition.NEURON,
        reason=Reason.NEURON_HANG,
        severity=severity,
        remedy=remedy,
        urgency=Urgency.DEFERRED if remedy.touches_node else Urgency.IMMEDIATE,
        source=f"{_RUNTIME}: runtime error 1200; rules of AWS's Neuron node problem detector",
    )
    for action, severity, remedy in _HANG_ACTIONS
)

_UNKNOWN_RULE: Final = LogRule(
    keyword=KEYWORD,
    pattern=_pattern(r"(?!NONE\b)[A-Z][A-Z_]{2,60}", ""),
    example=f"NEURON_HW_ERR=HANG_ON_COMPUTE{_REST} action=TERMINATE_INSTANCE",
    condition=Condition.NEURON,
    reason=Reason.NEURON_UNKNOWN,
    severity=Severity.WARNING,
    source=f"{_RUNTIME}: errors under other names: inspect the node",
)


def _function(text: str) -> str:
    return rf"neuron:\w{{1,80}}: {text}"


_DRIVER_RULES: Final = (
    LogRule(
        keyword="DMA completion timeout on nd",
        pattern=_function(r"DMA completion timeout on nd(?P<neuron>[0-9]{1,4})"),
        example=(
            "neuron:ndma_memcpy_wait_for_completion: "
            "DMA completion timeout on nd00 for eng q0 desc count 64"
        ),
        condition=Condition.NEURON,
        reason=Reason.NEURON_DMA_TIMEOUT,
        severity=Severity.FATAL,
        remedy=Remedy.REBOOT,
        min_count=3,
        window=timedelta(minutes=10),
        source=f"{_DRIVER}; aws-neuron-sdk issue 1390: it stays until the device is reset",
    ),
    LogRule(
        keyword="reset request",
        pattern=_function(
            r"nd(?P<neuron>[0-9]{1,4}): reset request [0-9]{1,10} "
            r"(?:failed|was initiated, but failed)"
        ),
        example="neuron:nr_reset_thread_fn: nd0: reset request 1 failed",
        condition=Condition.NEURON,
        reason=Reason.NEURON_RESET,
        severity=Severity.FATAL,
        remedy=Remedy.REBOOT,
        source=_DRIVER,
    ),
    LogRule(
        keyword="is in an invalid state",
        pattern=_function(r"nd(?P<neuron>[0-9]{1,4}) is in an invalid state"),
        example="neuron:ncdev_device_init: nd3 is in an invalid state",
        condition=Condition.NEURON,
        reason=Reason.NEURON_INVALID_STATE,
        severity=Severity.WARNING,
        source=_DRIVER,
    ),
    LogRule(
        keyword=", cmd: ",
        pattern=_function(r"seq: [0-9]{1,10}, cmd: [0-9]{1,10} timed out"),
        example="neuron:fw_io_execute_request: seq: 12, cmd: 3 timed out",
        condition=Condition.NEURON,
        reason=Reason.NEURON_COMMAND_TIMEOUT,
        severity=Severity.WARNING,
        source=_DRIVER,
    ),
    LogRule(
        keyword="Scrub failed for nd",
        pattern=_function(r"Scrub failed for nd(?P<neuron>[0-9]{1,4})"),
        example="neuron:ndhal_scrub: Scrub failed for nd2 HBM 1",
        condition=Condition.NEURON,
        reason=Reason.NEURON_SCRUB_FAILED,
        severity=Severity.WARNING,
        source=_DRIVER,
    ),
    LogRule(
        keyword="Total Uncorrected ecc err count",
        pattern=_function(
            r"\[ND (?P<neuron>[0-9]{1,4})\] Total Uncorrected ecc err count is [^\n]{1,80}invalid"
        ),
        example=(
            "neuron:fw_io_ecc_read: [ND 5] Total Uncorrected ecc err count is 2, but repair state "
            "is 0 which is invalid. Please contact Neuron for support."
        ),
        condition=Condition.NEURON,
        reason=Reason.NEURON_REPAIR_STATE,
        severity=Severity.WARNING,
        source=_DRIVER,
    ),
    LogRule(
        keyword="secondary devices reported good links",
        pattern=_function(r"Only [0-9]{1,4} out of [0-9]{1,4} secondary devices reported good"),
        example=("neuron:npe_election: Only 13 out of 15 secondary devices reported good links"),
        condition=Condition.NEURON,
        reason=Reason.NEURON_LINKS,
        severity=Severity.WARNING,
        source=_DRIVER,
    ),
)

RULES: Final = (*_HARDWARE_RULES, *_HANG_RULES, _UNKNOWN_RULE, *_DRIVER_RULES)


def build(_: Profile) -> Detector:
    """Return the detector; all profiles agree on it."""
    return log_detector("neuron-log", FAMILY, RULES)
