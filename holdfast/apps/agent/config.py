"""What ``holdfast agent --config FILE`` reads, and what its options override."""

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

from holdfast.adapters.kubernetes.nodes.agent_settings import AgentKubernetes
from holdfast.adapters.slurm.nodes.agent_settings import AgentSlurm
from holdfast.apps.listen_address import ListenAddress
from holdfast.detectors.contract import Profile
from holdfast.detectors.corroborations import CORROBORATED
from holdfast.detectors.custom_rules import NAME as CUSTOM_RULES
from holdfast.detectors.instance_types import equipment_of
from holdfast.detectors.table import detectors
from holdfast.model.health import Remedy


class KernelSource(StrEnum):
    """Where the messages of the kernel are read."""

    KMSG = "kmsg"
    """The device ``/dev/kmsg``, which takes root or ``CAP_SYSLOG``."""

    JOURNALD = "journald"
    """The journal of systemd, by way of ``journalctl``."""

    FILES = "files"
    """Syslog files alone, those of ``log_files``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorSettings:
    """One detector."""

    enabled: bool | None = None
    """Whether it looks at anything. All do if this is left out, save for those that need the
    devices for themselves."""

    every: timedelta | None = None
    """How often what it reads is read, such as ``"24h"``; as often as is usual for it if left out.
    Of several detectors of one source the shortest time counts."""

    shadow: bool = False
    """Whether what it finds is only told, as notices, and never calls for a remedy."""

    second_witness: bool = False
    """Whether what it finds in the kernel's log, where lines can be forged, only warns until
    another reading supports it, if its remedy touches the node."""

    def __post_init__(self) -> None:
        if self.every is not None and self.every <= timedelta(0):
            raise ValueError(f"every must be longer than 0s, got {self.every}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedDevices:
    """How many devices the node should have: one may be lost before the agent ever saw it.

    What is left out is taken from the instance type; 0 expects none.
    """

    gpus: int | None = None
    """GPUs of NVIDIA."""

    efa: int | None = None
    """EFA devices. The instance type does not tell, as a node may be launched with fewer: with
    fewer than it can have there is a warning, unless this is given."""

    neuron_devices: int | None = None
    """Neuron devices of AWS Trainium and Inferentia."""

    def __post_init__(self) -> None:
        for name in ("gpus", "efa", "neuron_devices"):
            count = getattr(self, name)
            if count is not None and count < 0:
                raise ValueError(f"{name} must not be negative, got {count}")


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentitySettings:
    """What AWS calls the machine, for the labels of its metrics.

    What is left out is read from the machine: from its firmware on EC2, and from
    ``/opt/ml/config/resource_config.json`` below ``root`` on HyperPod.
    """

    instance_id: str | None = None
    """Such as ``"i-0592464924bd45322"``."""

    instance_group: str | None = None
    """Name of the instance group."""

    cluster: str | None = None
    """Name of the HyperPod cluster."""

    cluster_id: str | None = None
    """Last part of the cluster's ARN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """The JSON log lines of HyperPod's health monitoring agent."""

    stdout: bool = False
    """Whether they go to standard output."""

    file: Path | None = None
    """The file that they are appended to. It may be renamed to rotate it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """Metrics for Prometheus."""

    listen: ListenAddress | None = None
    """Where ``/metrics`` and ``/healthz`` are served, such as ``"127.0.0.1:20257"``, the port of
    node-problem-detector; a port alone is one of the loopback address. Nowhere if left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """The agent of one node. The options of the command line win over the file."""

    node: str | None = None
    """Name of the node in reports; the host name if left out."""

    root: Path = Path("/")
    """Where the machine's own ``/proc``, ``/sys``, ``/dev``, ``/run`` and ``/var/log`` are below,
    such as ``"/host"`` in a container. A path that is given on its own is taken as it is."""

    command_path: str | None = None
    """Folders with commands such as ``nvidia-smi``, separated by colons; ``PATH`` if left out."""

    source: KernelSource = KernelSource.KMSG
    """Where the kernel's messages are read: ``"kmsg"``, the device; ``"journald"``, the journal of
    systemd, by way of ``journalctl``; ``"files"``, those of ``log_files`` and nothing else."""

    kmsg: Path | None = None
    """The kernel's log: the device, or a file that holds its records; ``/dev/kmsg`` below ``root``
    if left out."""

    log_files: tuple[Path, ...] | None = None
    """Syslog files to follow, too; ``/var/log/messages`` below ``root`` if left out and if it
    exists."""

    boot_id_file: Path | None = None
    """Holds another text after every boot; ``/proc/sys/kernel/random/boot_id`` below ``root`` if
    left out."""

    report_dir: Path = Path("/run/holdfast")
    """Where to keep ``report.json`` and ``heartbeat``."""

    heartbeat: timedelta = timedelta(milliseconds=500)
    """Time between two signs of life, such as ``"500ms"``."""

    profile: Profile = Profile.HYPERPOD
    """Whose opinion of a fault counts where vendors disagree."""

    shadow: bool = False
    """Whether all detectors only tell what they find, and never call for a remedy."""

    logs_only: bool = False
    """Whether to read logs and nothing else, where several agents share one machine: its disks and
    its memory are not those of any one of their nodes."""

    instance_type: str | None = None
    """Such as ``"p5.48xlarge"``; on Amazon EC2 the machine knows, if left out."""

    corroboration_window: timedelta = timedelta(minutes=5)
    """How far a second witness may be from what it supports, before or after."""

    detectors: dict[str, DetectorSettings] = field(default_factory=dict)
    """A table for each detector that is not to run as usual, by its name."""

    rule_files: tuple[Path, ...] = ()
    """Files with rules for the kernel log, such as ``["/etc/holdfast/rules.toml"]``. Each must be
    owned by root or by the user of the agent, and writable by its owner alone."""

    plugins: tuple[str, ...] = ()
    """Detectors of installed packages, by the names of their entry points in the group
    ``holdfast.detectors``."""

    xid: dict[str, Remedy] = field(default_factory=dict)
    """The remedy for single XID codes, such as ``74 = "reboot"``, whatever the profile says."""

    expected: ExpectedDevices = field(default_factory=ExpectedDevices)
    identity: IdentitySettings = field(default_factory=IdentitySettings)
    log: LogSettings = field(default_factory=LogSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    kubernetes: AgentKubernetes | None = None
    slurm: AgentSlurm | None = None

    def __post_init__(self) -> None:
        if self.heartbeat <= timedelta(0):
            raise ValueError(f"heartbeat must be longer than 0s, got {self.heartbeat}")
        if self.kubernetes is not None and self.slurm is not None:
            raise ValueError(
                "kubernetes and slurm: a node belongs to one cluster; remove one of them"
            )
        if self.source is KernelSource.FILES and not self.log_files:
            raise ValueError('source = "files" needs log_files, such as ["/var/log/kern.log"]')
        built_in = {detector.name for detector in detectors(self.profile)}
        if taken := sorted({*built_in, CUSTOM_RULES} & set(self.plugins)):
            raise ValueError(f"plugins: {', '.join(taken)} is the name of a built-in detector")
        names = {*built_in, *self.plugins, *((CUSTOM_RULES,) if self.rule_files else ())}
        if unknown := sorted(self.detectors.keys() - names):
            raise ValueError(
                f"detectors: unknown {', '.join(unknown)}; known are {', '.join(sorted(names))}"
            )
        self._check_witnesses()
        if self.instance_type is not None and equipment_of(self.instance_type) is None:
            raise ValueError(
                f"instance_type: unknown instance type {self.instance_type}; omit it and list "
                "the expected devices under [expected]"
            )
        if wrong := [code for code in self.xid if not (code.isascii() and code.isdecimal())]:
            raise ValueError(f"xid: expected codes such as 74 as keys, got {', '.join(wrong)}")

    def _check_witnesses(self) -> None:
        if self.corroboration_window <= timedelta(0):
            raise ValueError(
                f"corroboration_window must be longer than 0s, got {self.corroboration_window}"
            )
        wanted = {name for name, one in self.detectors.items() if one.second_witness}
        if alone := sorted(wanted - set(CORROBORATED)):
            raise ValueError(
                f"second_witness: no other reading supports {', '.join(alone)}; one can be asked "
                f"for with {', '.join(CORROBORATED)}"
            )
