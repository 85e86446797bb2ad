"""InfiniBand and RoCE: what the driver of Mellanox adapters (mlx5) writes to the kernel log.

A line begins with ``mlx5_core 0000:c1:00.0: ``, maybe with the name of an interface after the
address. An unplugged cable, too little power of a slot and less PCIe bandwidth than possible are
told at every boot of healthy machines.
"""

from datetime import timedelta
from typing import Final

from holdfast.detectors.contract import Detector, Profile
from holdfast.detectors.log_rules import LogRule, log_detector
from holdfast.model.health import Remedy, Severity, Urgency
from holdfast.model.names import Condition, Reason

FAMILY: Final = "infiniband"

_KERNEL: Final = "Linux, drivers/net/ethernet/mellanox/mlx5"
_ADDRESS: Final = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_PREFIX: Final = rf"mlx5_core (?P<device>{_ADDRESS})(?: [\w.-]{{1,15}})?: "
_FUNCTION: Final = r"(?:[\w.]{1,40}:[0-9]{1,5}:(?:\(pid [0-9]{1,10}\):)? )?"

RULES: Final = (
    LogRule(
        mark="Will cause a leak of a command resource",
        pattern=rf"{_PREFIX}{_FUNCTION}\w{{1,60}}\(0x[0-9a-fA-F]{{1,8}}\) timeout\. Will cause",
        example=(
            "mlx5_core 0000:c1:00.0: wait_func:1195:(pid 1967): ENABLE_HCA(0x104) timeout. "
            "Will cause a leak of a command resource"
        ),
        condition=Condition.NETWORK,
        reason=Reason.MLX5_COMMAND_TIMEOUT,
        severity=Severity.FATAL,
        remedy=Remedy.REBOOT,
        urgency=Urgency.DEFERRED,
        min_count=3,
        window=timedelta(minutes=10),
        source=f"{_KERNEL}/core/cmd.c; how often is our own judgement",
    ),
    LogRule(
        mark="health compromised - reached miss count",
        pattern=rf"{_PREFIX}{_FUNCTION}device's health compromised - reached miss count",
        example=(
            "mlx5_core 0000:c1:00.0: poll_health:825:(pid 0): device's health compromised - "
            "reached miss count."
        ),
        condition=Condition.NETWORK,
        reason=Reason.MLX5_HEALTH,
        severity=Severity.FATAL,
        remedy=Remedy.REBOOT,
        source=f"{_KERNEL}/core/health.c",
    ),
    LogRule(
        mark="unrecoverable hardware error",
        pattern=rf"{_PREFIX}{_FUNCTION}synd 0x[0-9a-fA-F]{{1,4}}: unrecoverable hardware error",
        example=(
            "mlx5_core 0000:c1:00.0: print_health_info:458:(pid 0): synd 0x8: unrecoverable "
            "hardware error"
        ),
        condition=Condition.NETWORK,
        reason=Reason.MLX5_HEALTH,
        severity=Severity.FATAL,
        remedy=Remedy.REBOOT,
        source=f"{_KERNEL}/core/health.c",
    ),
    LogRule(
        mark="NETDEV WATCHDOG",
        pattern=r"NETDEV WATCHDOG: (?P<device>[\w.-]{1,15}) \(mlx5_core\): transmit queue [0-9]",
        example="NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 0 timed out",
        condition=Condition.NETWORK,
        reason=Reason.MLX5_TX_TIMEOUT,
        severity=Severity.FATAL,
        remedy=Remedy.REBOOT,
        urgency=Urgency.DEFERRED,
        min_count=3,
        window=timedelta(minutes=10),
        source="Linux, net/sched/sch_generic.c; NVSentinel issue 1334; how often is our judgement",
    ),
    LogRule(
        mark="Port module event[error]",
        pattern=rf"{_PREFIX}{_FUNCTION}Port module event\[error\]: module [0-9]",
        example=(
            "mlx5_core 0000:c1:00.0: Port module event[error]: module 0, Cable error, "
            "High Temperature"
        ),
        condition=Condition.NETWORK,
        reason=Reason.MLX5_MODULE,
        severity=Severity.WARNING,
        source=f"{_KERNEL}/core/events.c",
    ),
    LogRule(
        mark="nv_get_p2p_free_callback",
        pattern=(
            r"(?:nvidia-peermem )?(?:nvidia-peermem: )?nv_get_p2p_free_callback:[0-9]{1,5} "
            r"ERROR detected invalid context"
        ),
        example="nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context",
        condition=Condition.NETWORK,
        reason=Reason.PEERMEM,
        severity=Severity.WARNING,
        source="NVIDIA open-gpu-kernel-modules, nvidia-peermem.c; gpud notes it as an event",
    ),
)


def build(_: Profile) -> Detector:
    """The detector; all profiles agree."""
    return log_detector("infiniband-log", FAMILY, RULES)
