"""Connects a controller to a Kubernetes cluster."""

import os
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from holdfast import __version__
from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.kubeconfig import find_server
from holdfast.adapters.kubernetes.client.leases import LeaderElection
from holdfast.adapters.kubernetes.client.rate_limit import RateLimit
from holdfast.adapters.kubernetes.client.server import Server
from holdfast.adapters.kubernetes.jobs.backend import KubernetesJobs
from holdfast.adapters.kubernetes.jobs.notices import JobEvents
from holdfast.adapters.kubernetes.nodes.cluster import KubernetesCluster
from holdfast.adapters.kubernetes.nodes.dependencies import Dependencies
from holdfast.adapters.kubernetes.nodes.events import COMPONENT, KubernetesEvents
from holdfast.adapters.kubernetes.nodes.incidents import KubernetesIncidents
from holdfast.adapters.kubernetes.nodes.report import ReportIntervals
from holdfast.adapters.kubernetes.nodes.state import STATE
from holdfast.adapters.kubernetes.settings import KubernetesSettings
from holdfast.adapters.providers.table import build_provider
from holdfast.adapters.telemetry.exposition import Samples, family
from holdfast.apps.clock import SystemClock
from holdfast.apps.controller.config import ControllerConfig
from holdfast.apps.controller.event_log import EventLog
from holdfast.apps.controller.kubernetes_calls import Clusters
from holdfast.apps.controller.platform import Platform
from holdfast.decisions.check_schedule import is_check_due
from holdfast.decisions.policy import RemediationPolicy, SilentAgentAction
from holdfast.kit.units import format_duration
from holdfast.model.errors import ConfigError
from holdfast.model.events import Event
from holdfast.model.nodes import NodeRecord
from holdfast.ports.events import EventSink

_AGENT: Final = f"{COMPONENT}/{__version__}"

_RENEWAL_SHARE: Final = 0.4
"""Timeout of a Lease call as a share of the renew deadline: two fit in, and a third begins."""

_ORDER_TIME: Final = timedelta(seconds=5)
"""Timeout of a call to a provider's cluster, which blocks the reconciliation of all nodes."""


class _Part(Protocol):
    """Component with threads of its own."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Lead:
    """The ``Leadership`` of one of several controllers."""

    election: LeaderElection

    def is_held(self) -> bool:
        """See ``Leadership.is_held``."""
        return self.election.leading


class EventFanOut:
    """An ``EventSink`` that forwards events to several; for events outside of rounds."""

    def __init__(self, *sinks: EventSink) -> None:
        self._sinks = sinks

    def emit(self, event: Event) -> None:
        """See ``EventSink.emit``."""
        for sink in self._sinks:
            sink.emit(event)


class NoLeadership:
    """The ``Leadership`` of a process that never acts."""

    def is_held(self) -> bool:
        """Return False."""
        return False


def connect(config: ControllerConfig, wake: Callable[[], None], *, acts: bool) -> Platform:
    """See ``Connect``."""
    settings, clock = config.kubernetes, SystemClock()
    server = _server(config)
    limit = RateLimit(per_second=settings.requests_per_second, burst=settings.burst)
    with ExitStack() as opened:
        api = Api(server, user_agent=_AGENT, field_manager=COMPONENT, limit=limit)
        opened.callback(api.close)
        provider = build_provider(config.provider, clock, Clusters(api, _elsewhere))
        events = KubernetesEvents(api, clock, namespace=settings.namespace, memory=STATE)
        election = _election(server, settings, wake, lambda: _is_cordoned(cluster))
        leadership = Lead(election) if acts else NoLeadership()
        reported = JobEvents(events, lambda job: jobs.owner(job), clock)  # noqa: PLW0108 - see below
        dependencies = Dependencies(
            clock=clock,
            events=EventFanOut(EventLog(config.log, clock), reported),
            changed=wake,
            may_act=leadership.is_held,
            elected=lambda: election.elected,
            evicted=events.evicted,
            fresh=config.nodes.heartbeat_timeout / 4,
            stops_itself=lambda pod: jobs.stops_itself(pod),  # noqa: PLW0108 - see below
            is_check_due=_due(config.nodes),
        )
        cluster = KubernetesCluster(api, settings, dependencies)
        jobs = KubernetesJobs(api, settings, dependencies, cluster)
        jobs.open()
        opened.callback(jobs.close)
        _begin([events, cluster, election] if acts else [cluster], opened)
        return Platform(
            name=config.cluster or settings.context or server.url,
            cluster=cluster,
            provider=provider,
            incidents=KubernetesIncidents(api),
            events=reported,
            jobs=jobs,
            leadership=leadership,
            is_ready=lambda: cluster.synced,
            errors=lambda: _given(*cluster.errors, *jobs.errors, events.error, election.error),
            families=lambda: _families(limit),
            close=opened.pop_all().close,
        )


def _begin(parts: Sequence[_Part], opened: ExitStack) -> None:
    for part in parts:
        part.start()
        opened.callback(part.stop)


def _due(policy: RemediationPolicy) -> Callable[[str, NodeRecord, datetime], bool] | None:
    """Return a predicate for nodes to check once they are idle; None without periodic checks."""
    if policy.deep_check_every is None:
        return None
    return lambda group, record, now: is_check_due(group, record, policy, now)


def _given(*errors: str) -> tuple[str, ...]:
    return tuple(filter(None, errors))


def _server(config: ControllerConfig) -> Server:
    """Validate the configuration and return the API server of the cluster.

    Raises:
        ConfigError: a setting is invalid, or no cluster is configured.

    """
    lease = timedelta(seconds=ReportIntervals().lease)
    if config.nodes.heartbeat_timeout <= lease:
        raise ConfigError(
            f"nodes.heartbeat_timeout must be longer than {format_duration(lease)}, the time"
            " between two renewals of an agent's Lease, got"
            f" {format_duration(config.nodes.heartbeat_timeout)}"
        )
    nodes = config.nodes
    needs_image = {
        "deep_check_on_start": nodes.deep_check_on_start,
        "deep_check_every": nodes.deep_check_every,
        "deep_check_pairs": nodes.deep_check_pairs,
        "silent_agent_action": nodes.silent_agent_action is SilentAgentAction.DEEP_CHECK,
    }
    for key, is_enabled in needs_image.items():
        if is_enabled and not config.kubernetes.check.image:
            raise ConfigError(
                f"nodes.{key} needs kubernetes.check.image, the image that a deep health check runs"
            )
    return find_server(config.kubernetes.kubeconfig, config.kubernetes.context)


def _elsewhere(server: Server) -> Api:
    return Api(server, user_agent=_AGENT, field_manager=COMPONENT, timeout=_ORDER_TIME)


def _is_cordoned(cluster: KubernetesCluster) -> bool:
    """Whether the controller's own node, which the chart names, is about to be drained."""
    own = cluster.node_states().get(os.environ.get("NODE_NAME", ""))
    return own is not None and own.is_unschedulable


def _election(
    server: Server,
    settings: KubernetesSettings,
    wake: Callable[[], None],
    yields: Callable[[], bool],
) -> LeaderElection:
    durations = settings.election
    timeout = durations.renew_deadline * _RENEWAL_SHARE
    return LeaderElection(
        Api(server, user_agent=_AGENT, field_manager=COMPONENT, timeout=timeout),
        namespace=settings.namespace,
        name=durations.lease,
        identity=f"{os.uname().nodename}_{uuid.uuid4()}",
        changed=wake,
        durations=durations,
        yields=yields,
    )


def _families(limit: RateLimit) -> Sequence[str]:
    waited: Samples = {(): limit.waited.total_seconds()}
    return [
        family(
            "holdfast_kubernetes_throttled_seconds_total",
            "counter",
            "Time that requests waited for the controller's own rate limit.",
            waited,
        )
    ]
