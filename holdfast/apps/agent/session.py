"""Running agent, assembled from its configuration."""

import os
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final

from holdfast.adapters.host.linux import LinuxHost, Logs
from holdfast.adapters.host.machine import Machine
from holdfast.adapters.host.report_files import ReportFiles, sole_agent
from holdfast.adapters.host.sources import journalctl, plans
from holdfast.adapters.telemetry.detection_lines import JsonLog
from holdfast.adapters.telemetry.fan_out import FanOut, ReportObserver
from holdfast.adapters.telemetry.line_output import LineOutput
from holdfast.adapters.telemetry.metrics import AgentMetrics, CountedHost
from holdfast.adapters.telemetry.metrics_endpoint import MetricsEndpoint
from holdfast.apps.agent.config import AgentConfig, KernelSource, TelemetrySettings
from holdfast.apps.agent.detectors import chosen_detectors, is_discarded
from holdfast.apps.agent.equipment import identity_labels, node_equipment
from holdfast.apps.clock import SystemClock
from holdfast.detectors.contract import Detector
from holdfast.detectors.line_trust import trusted_since
from holdfast.detectors.table import displayed_samples, log_keywords, reasons, required_samples
from holdfast.engine.agent_loop import AgentLoop
from holdfast.kit.files import write_atomically
from holdfast.model.errors import ConfigError

HEALTHZ_TIMEOUT: Final = timedelta(seconds=10)
"""Heartbeat timeout after which ``/healthz`` reports the agent as unhealthy."""

_KUBERNETES: Final = "holdfast.adapters.kubernetes.nodes.report"
"""Imported only if configured: TLS takes several MiB."""

_SLURM: Final = "holdfast.adapters.slurm.nodes.report"

Report = Callable[[str], None]


class AgentSession:
    """Running agent, from its start until it ends or its configuration changes."""

    def __init__(self, config: AgentConfig, added: tuple[Detector, ...], report: Report) -> None:
        """Open all sources and sinks of ``config``.

        Args:
            config: configuration of the agent.
            added: see ``added_detectors``.
            report: prints a message.

        Raises:
            ConfigError: a setting cannot be used.

        """
        self.config = config
        self.added = added
        equipment = node_equipment(config, at_once=False)
        with ExitStack() as opened:
            files = ReportFiles(config.report_dir)
            opened.enter_context(sole_agent(config.report_dir))
            boot_id = read_boot_id(config)
            last = files.last()
            is_resumed = last is not None and last.boot_id == boot_id
            cursors = config.report_dir / "state" / "cursors.json"
            lines_since = trusted_lines(config, boot_id, is_resumed=is_resumed)
            watchers = chosen_detectors(config, equipment, added, lines_since)
            self.host = open_host(
                config, watchers, boot_id, cursors, needed=equipment.sources, resume=is_resumed
            )
            opened.callback(self.host.close)
            metrics = AgentMetrics(
                node_name(config), reasons(watchers), machine=identity_labels(config)
            )
            self._loop = AgentLoop(
                host=CountedHost(self.host, metrics),
                sink=FanOut(
                    files,
                    _observers(config, metrics, opened, report),
                    is_discarded=partial(is_discarded, config, added),
                ),
                detectors=watchers,
                node=node_name(config),
                clock=SystemClock(),
                heartbeat=config.heartbeat,
                drill_until=config.drill_until,
            )
            self._opened = opened.pop_all()
        _report_trust(config, None if is_resumed else lines_since, report)

    def step(self) -> datetime:
        """See ``AgentLoop.step``."""
        return self._loop.step()

    def close(self) -> None:
        """Close all sources and sinks."""
        self._opened.close()


def _report_trust(config: AgentConfig, lines_since: datetime | None, report: Report) -> None:
    """Report which log lines count from now on, if that is unusual."""
    if config.drill_until is not None and _is_drill(config):
        report(
            f"drill active until {config.drill_until.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC: "
            "log lines that any user can write lead to repairs of this node"
        )
    if lines_since is not None:
        report(
            f"first start on a running machine: kernel lines before {lines_since:%H:%M:%S} UTC "
            "lead to a repair only if another reading corroborates them"
        )


def node_name(config: AgentConfig) -> str:
    """Name of the node in reports.

    Raises:
        ConfigError: unknown, since the Node object's name may differ from the host name.

    """
    if config.slurm is not None:
        return config.node or os.uname().nodename.split(".")[0]
    if config.kubernetes is None:
        return config.node or os.uname().nodename
    name = config.node or os.environ.get("NODE_NAME")
    if not name:
        raise ConfigError(
            "kubernetes: the name of the Node object is unknown; set the environment variable "
            "NODE_NAME from spec.nodeName of the pod, or give node"
        )
    return name


def open_host(
    config: AgentConfig,
    watchers: tuple[Detector, ...],
    boot_id: str,
    cursors: Path,
    *,
    needed: Collection[str],
    resume: bool,
) -> LinuxHost:
    """The machine with the sources that ``watchers`` need; see ``LinuxHost`` and ``Logs``.

    Raises:
        ConfigError: a log cannot be read.

    """
    machine = Machine(root=config.root, path=config.command_path)
    kmsg = config.kmsg or machine.root / "dev/kmsg"
    logs = Logs(
        kmsg=kmsg if config.source is KernelSource.KMSG else None,
        journalctl=journalctl(machine) if config.source is KernelSource.JOURNALD else (),
        log_files=_log_files(config),
        cursors=cursors,
    )
    return LinuxHost(
        logs,
        boot_id=boot_id,
        resume=resume,
        keywords=log_keywords(watchers),
        clock=SystemClock(),
        plans=plans(required_samples(watchers) | displayed_samples(watchers), machine, needed),
    )


def read_boot_id(config: AgentConfig) -> str:
    """ID of this boot.

    Raises:
        ConfigError: the boot ID cannot be read or is empty.

    """
    path = config.boot_id_file or config.root / "proc/sys/kernel/random/boot_id"
    try:
        boot_id = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the boot ID from {path}: {error}") from error
    if not boot_id:
        raise ConfigError(f"cannot read the boot ID from {path}: it is empty")
    return boot_id


def trusted_lines(config: AgentConfig, boot_id: str, *, is_resumed: bool) -> datetime | None:
    """See ``trusted_since``; the time of the first start in this boot is kept beside the cursors.

    Raises:
        ConfigError: the file cannot be written.

    """
    path = config.report_dir / "state" / "first-start"
    try:
        known_boot, _, text = path.read_text(encoding="utf-8").strip().partition(" ")
        first_start = datetime.fromisoformat(text) if known_boot == boot_id else None
    except (OSError, ValueError):
        first_start = None
    if first_start is None:
        if is_resumed:  # by an agent that did not keep it, which has read the older lines
            return None
        first_start = SystemClock().now()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, f"{boot_id} {first_start.isoformat()}\n")
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}") from error
    return trusted_since(_booted_at(config), first_start)


def _booted_at(config: AgentConfig) -> datetime | None:
    """Return the boot time of the node; with ``boot_id_file``, that file's modification time."""
    now = SystemClock().now()
    try:
        if config.boot_id_file is not None:
            return datetime.fromtimestamp(config.boot_id_file.stat().st_mtime, now.tzinfo)
        uptime = (config.root / "proc/uptime").read_text(encoding="utf-8")
        return now - timedelta(seconds=float(uptime.split()[0]))
    except (OSError, ValueError, IndexError, OverflowError):
        return None


def _observers(
    config: AgentConfig, metrics: AgentMetrics, opened: ExitStack, report: Report
) -> list[ReportObserver]:
    observers: list[ReportObserver] = []
    targets = ([None] if config.log.stdout else []) + ([config.log.file] if config.log.file else [])
    for target in targets:
        output = LineOutput(target, report)
        opened.callback(output.close)
        observers.append(JsonLog(output))
    if config.telemetry.listen is not None or config.telemetry.probes is not None:
        endpoint = MetricsEndpoint(metrics, timeout=HEALTHZ_TIMEOUT)
        opened.callback(endpoint.close)
        _serve(endpoint, config.telemetry, report)
        observers += [metrics, endpoint]
    if config.kubernetes is not None:
        reporter = import_module(_KUBERNETES).open_reporter(
            config.kubernetes,
            node_name(config),
            timeout=HEALTHZ_TIMEOUT,
            clock=SystemClock(),
            log=report,
        )
        opened.callback(reporter.close)
        observers.append(reporter)
    if config.slurm is not None:
        shared = import_module(_SLURM).open_reporter(
            config.slurm,
            node_name(config),
            root=config.root,
            timeout_s=HEALTHZ_TIMEOUT.total_seconds(),
            report_problem=report,
        )
        opened.callback(shared.close)
        observers.append(shared)
    return observers


def _serve(endpoint: MetricsEndpoint, telemetry: TelemetrySettings, report: Report) -> None:
    if (address := telemetry.listen) is not None:
        port = endpoint.serve(address.host, address.port)
        report(f"serving /metrics and /healthz on http://{replace(address, port=port)}")
    if (address := telemetry.probes) is not None:
        port = endpoint.serve_probes(address.host, address.port)
        report(f"serving /healthz on http://{replace(address, port=port)}")


def _log_files(config: AgentConfig) -> tuple[Path, ...]:
    """Return the files to follow; in a drill the one that public guides write to."""
    usual = config.root / "var/log/messages"
    if _is_drill(config) and not config.log_files and usual.exists():
        return (usual,)
    return config.log_files


def _is_drill(config: AgentConfig) -> bool:
    return config.drill_until is not None and SystemClock().now() < config.drill_until
