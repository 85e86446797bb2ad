"""Single health report of a node, for scripts and probes."""

import select
from collections.abc import Callable
from contextlib import closing
from typing import Final

from holdfast.adapters.host.linux import LinuxHost
from holdfast.adapters.telemetry.fan_out import FanOut
from holdfast.apps.agent.config import AgentConfig
from holdfast.apps.agent.detectors import chosen_detectors
from holdfast.apps.agent.equipment import node_equipment
from holdfast.apps.agent.extensions import added_detectors
from holdfast.apps.agent.session import node_name, open_host, read_boot_id
from holdfast.apps.clock import SystemClock
from holdfast.detectors.contract import Readings
from holdfast.engine.agent_loop import AgentLoop
from holdfast.model.report import NodeReport

_POLL_S: Final = 0.2
"""Polling interval for samples that are still missing."""


def probe(config: AgentConfig) -> NodeReport:
    """Health report from reading everything once; a running agent is not affected.

    Raises:
        ConfigError: a log cannot be opened.
        BackendError: a log cannot be read.

    """
    sink = _LastReport()
    equipment = node_equipment(config, at_once=True)
    watchers = chosen_detectors(config, equipment, added_detectors(config))
    boot_id = read_boot_id(config)
    unused = config.root / "unused"  # nothing is committed: no cursors are stored
    with closing(
        open_host(config, watchers, boot_id, unused, needed=equipment.sources, resume=False)
    ) as host:
        loop = AgentLoop(
            host=_Untouched(host),
            sink=FanOut(sink, ()),
            detectors=watchers,
            node=node_name(config),
            clock=SystemClock(),
            heartbeat=config.heartbeat,
            drill_until=config.drill_until,
        )
        loop.step()
        while not host.has_all_samples:
            select.select(host.filenos(), [], [], _POLL_S)
            loop.step()
    return sink.report


class _LastReport:
    """A ``ReportSink`` that keeps the report in memory."""

    report: NodeReport  # the first step publishes one, or raises

    def last(self) -> NodeReport | None:
        return None

    def publish(self, report: NodeReport) -> None:
        self.report = report

    def heartbeat(self, boot_id: str, sequence: int) -> None:
        """Do nothing: a probe is too short for heartbeats."""


class _Untouched:
    """A ``Host`` that stores no read positions."""

    def __init__(self, host: LinuxHost) -> None:
        self.boot_id: Callable[[], str] = host.boot_id
        self.read: Callable[[], Readings] = host.read

    def commit(self) -> None:
        """Do nothing: only the running agent stores positions."""
