"""What ``holdfast agent --config FILE`` reads, and what its options override."""

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Self

from holdfast.detectors.contract import Profile
from holdfast.detectors.table import detectors
from holdfast.model.health import Remedy


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen for TCP connections."""

    host: str
    port: int

    @classmethod
    def parse(cls, value: object) -> Self:
        """Read ``"127.0.0.1:20257"``, ``"[::1]:20257"``, ``":20257"`` (all addresses) or ``20257``.

        A port alone is one of the loopback address 127.0.0.1.
        """
        host, colon, port = str(value).rpartition(":")
        is_port = not isinstance(value, bool) and port.isascii() and port.isdecimal()
        is_host = ":" not in host or (host[0], host[-1]) == ("[", "]")
        if not is_host or not is_port or int(port) > 0xFFFF:
            raise ValueError(
                f"{value!r} is no address such as 127.0.0.1:20257, and no port from 0 to 65535"
            )
        return cls(host.strip("[]") if colon else "127.0.0.1", int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorSettings:
    """One detector."""

    enabled: bool = True
    """Whether it looks at anything."""

    shadow: bool = False
    """Whether what it finds is only told, as notices, and never calls for a remedy."""


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

    kmsg: Path = Path("/dev/kmsg")
    """The kernel's log: the device, or a file that holds its records."""

    log_files: tuple[Path, ...] | None = None
    """Syslog files to follow; ``/var/log/messages`` if left out and if it exists."""

    boot_id_file: Path = Path("/proc/sys/kernel/random/boot_id")
    """Holds another text after every boot."""

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

    detectors: dict[str, DetectorSettings] = field(default_factory=dict)
    """A table for each detector that is not to run as usual, by its name."""

    xid: dict[str, Remedy] = field(default_factory=dict)
    """The remedy for single XID codes, such as ``74 = "reboot"``, whatever the profile says."""

    log: LogSettings = field(default_factory=LogSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)

    def __post_init__(self) -> None:
        if self.heartbeat <= timedelta(0):
            raise ValueError(f"heartbeat must be longer than 0s, got {self.heartbeat}")
        names = {detector.name for detector in detectors(self.profile)}
        if unknown := sorted(self.detectors.keys() - names):
            raise ValueError(
                f"detectors: unknown {', '.join(unknown)}; known are {', '.join(sorted(names))}"
            )
        if wrong := [code for code in self.xid if not (code.isascii() and code.isdecimal())]:
            raise ValueError(f"xid: the keys are codes such as 74, got {', '.join(wrong)}")
