"""Interface between a controller and the platform of its cluster."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.apps.controller.config import ControllerConfig
from holdfast.model.job_views import JobView
from holdfast.ports.cluster import ClusterBackend
from holdfast.ports.events import EventSink
from holdfast.ports.incidents import IncidentStore
from holdfast.ports.jobs import JobBackend
from holdfast.ports.leadership import Leadership
from holdfast.ports.provider import NodeProvider


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """Connected cluster."""

    name: str
    """Name of the cluster, for metrics."""

    cluster: ClusterBackend
    provider: NodeProvider
    incidents: IncidentStore
    events: EventSink
    leadership: Leadership
    is_ready: Callable[[], bool]
    """Whether the first snapshot can be read."""

    errors: Callable[[], Sequence[str]]
    """Current errors that keep the view of the cluster from being updated."""

    close: Callable[[], None]
    """Releases all resources, the leadership first."""

    families: Callable[[], Sequence[str]] = tuple
    """Returns the metric families of the platform, in Prometheus' text format."""

    jobs: JobBackend | None = None
    """Jobs to restart; None if the platform itself restarts jobs."""

    stragglers: Callable[[], Sequence[JobView]] = tuple
    """Returns running jobs that are not among ``jobs``, each with its straggler."""


class Connect(Protocol):
    """``connect`` of the module of a platform."""

    def __call__(
        self,
        config: ControllerConfig,
        wake: Callable[[], None],
        *,
        acts: bool,
    ) -> Platform:
        """Connect to a cluster.

        Args:
            config: configuration of the controller.
            wake: called from any thread when the cluster may have changed.
            acts: whether to take part in the leader election; otherwise the cluster is only read.

        Raises:
            ConfigError: a setting of ``config`` is invalid.

        """
        ...
