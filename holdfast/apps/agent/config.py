"""Configuration file of ``holdfast agent``, overridden by command-line options."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
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
from holdfast.kit.ranges import require_longer_than_zero, require_not_negative
from holdfast.model.health import Remedy


class KernelSource(StrEnum):
    """Source of kernel messages."""

    KMSG = "kmsg"
    """The device ``/dev/kmsg``, which takes root or ``CAP_SYSLOG``."""

    JOURNALD = "journald"
    """The systemd journal, through ``journalctl``."""

    FILES = "files"
    """Only the syslog files in ``log_files``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorSettings:
    """Settings of one detector."""

    enabled: bool | None = None
    """Whether the detector is enabled. Default: all are, except those that need exclusive access
    to the devices."""

    every: timedelta | None = None
    """Polling interval of the detector's source, such as ``"24h"``. Default: the interval of the
    detector. If several detectors share a source, the shortest interval applies."""

    shadow: bool = False
    """Whether its findings are reported as notices only and never request a remedy."""

    needs_corroboration: bool = False
    """Whether a finding from the kernel log, where lines can be forged, stays a warning until
    another reading corroborates it. Applies to findings whose remedy affects the node."""

    def __post_init__(self) -> None:
        require_longer_than_zero(self, "every")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedDevices:
    """Expected device counts of the node: a device may be lost before the agent first reads it.

    Counts that are omitted come from the instance type; 0 expects none.
    """

    gpus: int | None = None
    """Number of NVIDIA GPUs."""

    efa: int | None = None
    """Number of EFA devices. The instance type gives only the maximum, because a node may be
    launched with fewer: fewer than the maximum is a warning, unless this is set."""

    neuron_devices: int | None = None
    """Number of AWS Trainium and Inferentia (Neuron) devices."""

    def __post_init__(self) -> None:
        require_not_negative(self, "gpus", "efa", "neuron_devices")


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentitySettings:
    """AWS identity of the machine, for the labels of its metrics.

    Values that are omitted are read from the machine: from its firmware on EC2, and from
    ``/opt/ml/config/resource_config.json`` below ``root`` on HyperPod.
    """

    instance_id: str | None = None
    """EC2 instance ID, such as ``"i-0592464924bd45322"``."""

    instance_group: str | None = None
    """Name of the instance group."""

    cluster: str | None = None
    """Name of the HyperPod cluster."""

    cluster_id: str | None = None
    """ID of the cluster: the last part of its ARN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Output of JSON log lines in the format of HyperPod's health monitoring agent."""

    stdout: bool = False
    """Whether to write the lines to standard output."""

    file: Path | None = None
    """File to append the lines to. It may be renamed to rotate it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """Endpoint for Prometheus metrics."""

    listen: ListenAddress | None = None
    """Listen address of ``/metrics`` and ``/healthz``, such as ``"127.0.0.1:20257"``, the port of
    node-problem-detector; a port alone binds to the loopback address. Default: not served."""

    probes: ListenAddress | None = None
    """Listen address of ``/healthz`` alone, for probes: a flood of requests to ``listen`` does not
    delay them. Default: not served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """Settings of the agent of one node. Command-line options override the file."""

    node: str | None = None
    """Name of the node in reports. Default: the host name."""

    root: Path = Path("/")
    """Root directory of the machine's ``/proc``, ``/sys``, ``/dev``, ``/run`` and ``/var/log``,
    such as ``"/host"`` in a container. It is not prepended to paths that are set explicitly."""

    command_path: str | None = None
    """Directories of commands such as ``nvidia-smi``, separated by colons. Default: ``PATH``."""

    source: KernelSource = KernelSource.KMSG
    """Source of kernel messages: ``"kmsg"``, the device; ``"journald"``, the systemd journal,
    through ``journalctl``; ``"files"``, only the files in ``log_files``."""

    kmsg: Path | None = None
    """Kernel log: the device, or a file that holds its records. Default: ``/dev/kmsg`` below
    ``root``."""

    log_files: tuple[Path, ...] = ()
    """Syslog files to follow as well, such as ``["/var/log/kern.log"]``. Local users can forge
    their lines, so a finding is only a warning until another reading corroborates it. In a drill
    the default is ``/var/log/messages`` below ``root``, if it exists."""

    drill_until: datetime | None = None
    """End of a drill, at most one hour ahead, such as ``2026-01-31T12:00:00Z``. Until then, lines
    of log files and lines that were written to ``/dev/kmsg`` count like those of the kernel."""

    boot_id_file: Path | None = None
    """File with the boot ID, which changes on every boot. Default:
    ``/proc/sys/kernel/random/boot_id`` below ``root``."""

    report_dir: Path = Path("/run/holdfast")
    """Directory of ``report.json`` and ``heartbeat``."""

    heartbeat: timedelta = timedelta(milliseconds=500)
    """Heartbeat interval, such as ``"500ms"``."""

    profile: Profile = Profile.HYPERPOD
    """Vendor profile that classifies a fault where vendors disagree."""

    shadow: bool = False
    """Whether all detectors only report their findings and never request a remedy."""

    logs_only: bool = False
    """Whether to read only logs, for several agents that share one machine: its disks and memory
    do not belong to any one of their nodes."""

    instance_type: str | None = None
    """Instance type, such as ``"p5.48xlarge"``. Default on Amazon EC2: read from the machine."""

    corroboration_window: timedelta = timedelta(minutes=5)
    """Longest time between a finding and the reading that corroborates it, before or after."""

    detectors: dict[str, DetectorSettings] = field(default_factory=dict)
    """Settings by detector name, for detectors that differ from their defaults."""

    rule_files: tuple[Path, ...] = ()
    """Rule files for the kernel log, such as ``["/etc/holdfast/rules.toml"]``. Each must be
    owned by root or by the user of the agent, and writable by its owner alone."""

    plugins: tuple[str, ...] = ()
    """Detector plug-ins of installed packages: names of entry points in the group
    ``holdfast.detectors``."""

    xid: dict[str, Remedy] = field(default_factory=dict)
    """Remedy by XID code, such as ``74 = "reboot"``; overrides the profile."""

    expected: ExpectedDevices = field(default_factory=ExpectedDevices)
    identity: IdentitySettings = field(default_factory=IdentitySettings)
    log: LogSettings = field(default_factory=LogSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    kubernetes: AgentKubernetes | None = None
    slurm: AgentSlurm | None = None

    def __post_init__(self) -> None:
        require_longer_than_zero(self, "heartbeat", "corroboration_window")
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
                f"detectors: unknown {', '.join(unknown)}; expected one of"
                f" {', '.join(sorted(names))}"
            )
        self._check_corroboration()
        if self.instance_type is not None and equipment_of(self.instance_type) is None:
            raise ValueError(
                f"instance_type: unknown instance type {self.instance_type}; omit it and list "
                "the expected devices under [expected]"
            )
        if wrong := [code for code in self.xid if not (code.isascii() and code.isdecimal())]:
            raise ValueError(f"xid: expected codes such as 74 as keys, got {', '.join(wrong)}")

    def _check_corroboration(self) -> None:
        corroborated = {name for name, one in self.detectors.items() if one.needs_corroboration}
        if alone := sorted(corroborated - set(CORROBORATED)):
            raise ValueError(
                f"needs_corroboration: no other reading supports {', '.join(alone)}; "
                f"supported are {', '.join(CORROBORATED)}"
            )
