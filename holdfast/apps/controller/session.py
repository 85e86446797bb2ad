"""Runs a controller from its configuration."""

import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from typing import Final

from holdfast.adapters.notices.sink import Notices
from holdfast.adapters.telemetry.http_server import HttpResponse, HttpServer
from holdfast.apps.clock import SystemClock
from holdfast.apps.controller.config import ControllerConfig, PlatformName
from holdfast.apps.controller.dry_run import DryRun
from holdfast.apps.controller.event_log import EventLog
from holdfast.apps.controller.job_metrics import JobMetrics, WatchedJobs
from holdfast.apps.controller.loop import STANDBY, ControllerLoop, Wakeup
from holdfast.apps.controller.metrics import (
    METRICS,
    STARTING_PAGES,
    ControllerMetrics,
    WatchedCluster,
    WatchedProvider,
    pages,
    replacement_families,
)
from holdfast.apps.controller.platform import Connect, Platform
from holdfast.apps.controller.progress import Progress, Watchdog
from holdfast.apps.listen_address import ListenAddress
from holdfast.decisions.job_resume import ResumePolicy
from holdfast.engine.job_reconciler import JobPorts, JobReconciler
from holdfast.engine.node_reconciler import NodePorts, NodeReconciler
from holdfast.kit.signals import handling
from holdfast.model.errors import BackendError
from holdfast.model.events import CallFailed

PLATFORMS: Final = {
    PlatformName.KUBERNETES: "holdfast.apps.controller.on_kubernetes",
    PlatformName.SLURM: "holdfast.apps.controller.on_slurm",
}
"""Module with the ``connect`` of each platform, imported when the platform is selected."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

Write = Callable[[str], None]


def run_controller(config: ControllerConfig, warn: Write) -> None:
    """Run the controller of a cluster until SIGTERM or SIGINT.

    Args:
        config: configuration of the controller.
        warn: takes messages that are not events of the cluster.

    Raises:
        ConfigError: a setting of ``config`` is invalid.
        StorageFull: state cannot be recorded, so no action is allowed.
        StateDamaged: state cannot be recorded until a restart has restored it.

    """
    clock = SystemClock()
    wake = Wakeup()
    with ExitStack() as opened:
        served = dict(STARTING_PAGES)
        probed = {path: page for path, page in served.items() if path != METRICS}
        address = _serve(config.listen, served, opened)  # first, to report a port in use
        probes = _serve(config.probes, probed, opened)
        platform = _connect(config, wake.set, acts=True)
        opened.callback(platform.close)
        log = EventLog(config.log, clock)
        notices = _notices(config, platform.name, log, opened)
        job_metrics = JobMetrics(platform.leadership, clock)
        sinks = [log, platform.events, notices, job_metrics]
        metrics = ControllerMetrics(platform.name, platform.leadership, sinks)
        progress = Progress()
        ports = NodePorts(
            cluster=WatchedCluster(platform.cluster, metrics.seen, progress),
            provider=WatchedProvider(platform.provider, progress),
            incidents=platform.incidents,
            events=metrics,
            clock=clock,
            leadership=platform.leadership,
        )
        errors = _PlatformErrors(platform, warn)
        served.update(pages(metrics, progress, platform, _more(metrics, job_metrics, config)))
        probed.update({path: served[path] for path in probed})
        _report_addresses(((address, served), (probes, probed)), warn)
        loop = ControllerLoop(
            NodeReconciler(ports, config.nodes),
            _job_reconciler(platform, ports, config, job_metrics, progress),
            leadership=platform.leadership,
            is_ready=errors.is_ready,
            metrics=metrics,
            progress=progress,
            wake=wake,
            clock=clock,
        )
        opened.callback(Watchdog(progress, warn).stop)
        with handling(_SIGNALS, lambda *_: loop.stop()):
            loop.run()


def _more(
    metrics: ControllerMetrics, job_metrics: JobMetrics, config: ControllerConfig
) -> Callable[[], Iterator[str]]:
    def families() -> Iterator[str]:
        yield from job_metrics.families()
        yield from replacement_families(metrics.led_view(), config.nodes, SystemClock().now())

    return families


def _notices(config: ControllerConfig, cluster: str, log: EventLog, opened: ExitStack) -> Notices:
    def failed(what: str, why: str) -> None:
        log.emit(CallFailed(what=what, error=why))

    notices = Notices(config.notices, cluster, SystemClock(), failed)
    notices.start()
    opened.callback(notices.stop)
    return notices


def _serve(
    address: ListenAddress | None,
    served: Mapping[str, Callable[[], HttpResponse]],
    opened: ExitStack,
) -> ListenAddress | None:
    if address is None:
        return None
    server = HttpServer(address.host, address.port, served)
    opened.callback(server.close)
    return replace(address, port=server.port)


def _report_addresses(
    addresses: Iterable[tuple[ListenAddress | None, Iterable[str]]], warn: Write
) -> None:
    for address, paths in addresses:
        if address is not None:
            warn(f"serving {', '.join(paths)} on http://{address}")


def report_plan(config: ControllerConfig, warn: Write, write: Write, *, once: bool) -> None:
    """Report the planned actions until SIGTERM or SIGINT, or ``once``.

    Raises:
        ConfigError: a setting of ``config`` is invalid.
        BackendError: the cluster cannot be read, with ``once``.

    """
    clock = SystemClock()
    wake = Wakeup()
    is_stopped = False

    def stop() -> None:
        nonlocal is_stopped
        is_stopped = True
        wake.set()

    with ExitStack() as opened, handling(_SIGNALS, lambda *_: stop()):
        platform = _connect(config, wake.set, acts=False)
        opened.callback(platform.close)
        dry_run = DryRun(platform.cluster, config.nodes, clock)
        errors = _PlatformErrors(platform, warn)
        while not is_stopped:
            if errors.is_ready():
                _write_plan(dry_run, warn, write, once=once)
                if once:
                    return
            wake.wait(STANDBY.total_seconds())


def _job_reconciler(
    platform: Platform,
    ports: NodePorts,
    config: ControllerConfig,
    metrics: JobMetrics,
    progress: Progress,
) -> JobReconciler | None:
    if platform.jobs is None:
        return None
    job_ports = JobPorts(
        jobs=WatchedJobs(platform.jobs, metrics.seen, progress),
        cluster=ports.cluster,
        incidents=ports.incidents,
        events=ports.events,
        clock=ports.clock,
        leadership=ports.leadership,
        stragglers=platform.stragglers,
    )
    return JobReconciler(job_ports, ResumePolicy(job=config.jobs, nodes=config.nodes))


class _PlatformErrors:
    """Reports each error that keeps a platform from being read once."""

    def __init__(self, platform: Platform, warn: Write) -> None:
        self._platform = platform
        self._warn = warn
        self._reported: frozenset[str] = frozenset()

    def is_ready(self) -> bool:
        """Whether the platform can be read."""
        now = frozenset(self._platform.errors())
        for problem in sorted(now - self._reported):
            self._warn(f"{problem}; retrying")
        self._reported = now
        return self._platform.is_ready()


def _write_plan(dry_run: DryRun, warn: Write, write: Write, *, once: bool) -> None:
    try:
        for line in dry_run.new_lines():
            write(line)
    except BackendError as error:
        if once:
            raise
        warn(str(error))


def _connect(config: ControllerConfig, wake: Callable[[], None], *, acts: bool) -> Platform:
    connect: Connect = import_module(PLATFORMS[config.platform]).connect
    return connect(config, wake, acts=acts)
