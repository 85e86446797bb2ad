"""InfiniBand and RoCE: messages of Mellanox adapters' driver (mlx5) in the kernel log.

A line begins with ``mlx5_core 0000:c1:00.0: ``, optionally with the name of an interface after the
address, then the name of a function, which older drivers put behind the address once more. Healthy
machines report unplugged cables and less PCIe bandwidth than possible at every boot.
"""

from functools import partial
from typing import Final

from holdfast.detectors.contract import Detector, Profile
from holdfast.detectors.log_rules import log_detector, notice, reboot
from holdfast.model.health import Urgency
from holdfast.model.names import Condition, Reason

FAMILY: Final = "infiniband"

_KERNEL: Final = "Linux, drivers/net/ethernet/mellanox/mlx5"
_ADDRESS: Final = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_DEVICE: Final = rf"mlx5_core (?P<device>{_ADDRESS})(?: [\w.-]{{1,15}}(?: \(\w{{1,20}}\))?)?: "
_FUNCTION: Final = rf"(?:(?:{_ADDRESS}:)?[\w.]{{1,40}}:[0-9]{{1,5}}:(?:\(pid [0-9]{{1,10}}\):)? )?"
_PREFIX: Final = _DEVICE + _FUNCTION
_COMMAND: Final = r"(?:cmd\[[0-9]{1,4}\]: )?\w{1,60}\(0x[0-9a-fA-F]{1,8}\) (?:Async, )?"
_LINE: Final = "mlx5_core 0000:c1:00.0: "

_notice: Final = partial(notice, Condition.NETWORK)
"""Return a rule that only reports: no reboot changes a cable, a slot or the temperature."""

_dead: Final = partial(reboot, Condition.NETWORK, urgency=Urgency.IMMEDIATE)
_silent: Final = partial(reboot, Condition.NETWORK, min_count=3)
"""Return a rule for a timeout; one proves nothing, and jobs may end before the reboot."""

_FAULTS: Final = (
    _silent(
        Reason.MLX5_COMMAND_TIMEOUT,
        "Will cause a leak of a command resource",
        rf"{_PREFIX}{_COMMAND}timeout\. Will cause a leak of a command resource",
        f"{_LINE}wait_func:1195:(pid 1967): ENABLE_HCA(0x104) timeout. "
        "Will cause a leak of a command resource",
        f"{_KERNEL}/core/cmd.c; the count is Holdfast's",
    ),
    _dead(
        Reason.MLX5_HEALTH,
        "ealth ",
        rf"{_PREFIX}device's health compromised(?: - reached miss count|$)",
        f"{_LINE}poll_health:825:(pid 0): device's health compromised - reached miss count.",
        f"{_KERNEL}/core/health.c",
    ),
    _dead(
        Reason.MLX5_HEALTH,
        "synd 0x",
        rf"{_PREFIX}synd 0x[0-9a-fA-F]{{1,4}}: unrecoverable hardware error",
        f"{_LINE}print_health_info:458:(pid 0): synd 0x8: unrecoverable hardware error",
        f"{_KERNEL}/core/health.c",
    ),
    _dead(
        Reason.MLX5_HEALTH,
        "ealth ",
        rf"{_PREFIX}Health issue observed, unrecoverable hardware error,",
        f"{_LINE}print_health_info:431:(pid 0): Health issue observed, unrecoverable hardware "
        "error, severity(3) ERROR:",
        f"{_KERNEL}/core/health.c",
    ),
    _dead(
        Reason.MLX5_HEALTH,
        "ealth ",
        rf"{_PREFIX}health recovery (?:flow aborted|failed)",
        f"{_LINE}mlx5_health_try_recover:338:(pid 5553): health recovery flow aborted, PCI reads "
        "still not working",
        f"{_KERNEL}/core/health.c: the driver has given up the adapter",
    ),
    _silent(
        Reason.MLX5_TX_TIMEOUT,
        "NETDEV WATCHDOG",
        r"NETDEV WATCHDOG: (?P<device>[\w.-]{1,15}) \(mlx5_core\): transmit queue (?:[0-9]|timed)",
        "NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 0 timed out",
        "Linux, net/sched/sch_generic.c; NVSentinel issue 1334; the count is Holdfast's",
    ),
    _silent(
        Reason.MLX5_TX_TIMEOUT,
        "NETDEV WATCHDOG",
        rf"{_DEVICE}NETDEV WATCHDOG: (?:CPU: [0-9]{{1,5}}: )?transmit queue [0-9]{{1,6}} timed out",
        "mlx5_core 0000:c1:00.0 eth0: NETDEV WATCHDOG: CPU: 3: transmit queue 0 timed out 5010 ms",
        "Linux, net/sched/sch_generic.c; the count is Holdfast's",
    ),
    _silent(
        Reason.MLX5_TX_TIMEOUT,
        "TX timeout ",
        rf"{_PREFIX}TX timeout detected",
        "mlx5_core 0000:c1:00.0 eth0: TX timeout detected",
        f"{_KERNEL}/core/en_main.c: at each timeout; older kernels write the watchdog's line once "
        "in a boot; the count is Holdfast's",
    ),
)

_MODULE: Final = rf"(?:{_PREFIX}|mlx5_\w{{1,40}}:[0-9]{{1,5}}:\(pid [0-9]{{1,10}}\): )"
"""Prefix of module events: printed without the address by some of NVIDIA's own drivers."""

_NOTICES: Final = (
    _notice(
        Reason.MLX5_TX_QUEUE,
        "TX timeout ",
        rf"{_PREFIX}TX timeout on queue: ?[0-9]",
        "mlx5_core 0000:c1:00.0 eth0: TX timeout on queue: 12, SQ: 0x1278, CQ: 0xf2, SQ Cons: 0x8 "
        "SQ Prod: 0xa, usecs since last trans: 21565000",
        f"{_KERNEL}/core/en_main.c: one line for each queue; the driver restarts the queue",
    ),
    _notice(
        Reason.MLX5_TEMPERATURE,
        "Cable error",
        rf"{_MODULE}Port module event(?:\[error\])?: module [0-9]{{1,3}}, Cable error, High Temp",
        f"{_LINE}Port module event[error]: module 0, Cable error, High Temperature",
        f"{_KERNEL}/core/events.c: heat",
    ),
    _notice(
        Reason.MLX5_TEMPERATURE,
        "High temperature on sensors",
        rf"{_PREFIX}High temperature on sensors",
        f"{_LINE}temp_warn:170:(pid 0): High temperature on sensors with bit set 0 1",
        f"{_KERNEL}/core/events.c: heat",
    ),
    _notice(
        Reason.MLX5_TEMPERATURE,
        "synd 0x",
        rf"{_PREFIX}synd 0x10: High temp",
        f"{_LINE}print_health_info:520:(pid 0): synd 0x10: High temperature",
        f"{_KERNEL}/core/health.c: heat; an adapter that fails is reported separately",
    ),
    _notice(
        Reason.MLX5_TEMPERATURE,
        "ealth ",
        rf"{_PREFIX}Health issue observed, High temp",
        f"{_LINE}print_health_info:431:(pid 0): Health issue observed, High temperature, "
        "severity(2) CRITICAL:",
        f"{_KERNEL}/core/health.c: heat; an adapter that fails is reported separately",
    ),
    _notice(
        Reason.MLX5_SLOT_POWER,
        "Cable error",
        rf"{_MODULE}Port module event\[error\]: module [0-9]{{1,3}}, Cable error, Power budget",
        f"{_LINE}port_module:252:(pid 0): Port module event[error]: module 0, Cable error, Power "
        "budget exceeded",
        f"{_KERNEL}/core/events.c: the port supplies less power than the module needs",
    ),
    _notice(
        Reason.MLX5_SLOT_POWER,
        "insufficient power on the PCIe slot",
        rf"{_MODULE}Detected insufficient power on the PCIe slot",
        f"{_LINE}mlx5_pcie_event:299:(pid 268269): Detected insufficient power on the PCIe slot "
        "(27W).",
        f"{_KERNEL}/core/events.c; harmless on some machines, which write it at every boot",
    ),
    _notice(
        Reason.MLX5_MODULE,
        "Cable error",
        rf"{_MODULE}Port module event\[error\]: module [0-9]",
        f"{_LINE}port_module:247:(pid 0): Port module event[error]: module 1, Cable error, "
        "Bus stuck (I2C or data shorted)",
        f"{_KERNEL}/core/events.c",
    ),
    _notice(
        Reason.MLX5_FIRMWARE,
        "synd 0x",
        rf"{_PREFIX}synd 0x[0-9a-fA-F]{{1,4}}: \w",
        f"{_LINE}print_health_info:520:(pid 0): synd 0x1: firmware internal error",
        f"{_KERNEL}/core/health.c: the driver restarts the firmware by itself",
    ),
    _notice(
        Reason.MLX5_FIRMWARE,
        "ealth ",
        rf"{_PREFIX}Health issue observed, ",
        f"{_LINE}print_health_info:431:(pid 0): Health issue observed, firmware internal error, "
        "severity(3) ERROR:",
        f"{_KERNEL}/core/health.c: the driver restarts the firmware by itself",
    ),
    _notice(
        Reason.MLX5_FIRMWARE,
        "Fatal error ",
        rf"{_PREFIX}Fatal error [0-9]{{1,4}} detected",
        f"{_LINE}poll_health:820:(pid 0): Fatal error 1 detected",
        f"{_KERNEL}/core/health.c: the driver tries to recover the adapter",
    ),
    _notice(
        Reason.PEERMEM,
        "nv_get_p2p_free_callback",
        r"(?:nvidia-peermem )?(?:nvidia-peermem: )?nv_get_p2p_free_callback:[0-9]{1,5} "
        r"ERROR detected invalid context",
        "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context",
        "NVIDIA open-gpu-kernel-modules, nvidia-peermem.c; gpud notes it as an event",
    ),
)

RULES: Final = _FAULTS + _NOTICES


def build(_: Profile) -> Detector:
    """Return the detector; all profiles agree on it."""
    return log_detector("infiniband-log", FAMILY, RULES)
