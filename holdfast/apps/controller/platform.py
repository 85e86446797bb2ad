"""What a controller needs of the platform whose nodes it looks after."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.apps.controller.config import ControllerConfig
from holdfast.ports.cluster import ClusterBackend
from holdfast.ports.events import EventSink
from holdfast.ports.incidents import IncidentStore
from holdfast.ports.jobs import JobBackend
from holdfast.ports.leadership import Leadership
from holdfast.ports.provider import NodeProvider


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """One cluster, connected."""

    name: str
    """Of the cluster, for metrics."""

    cluster: ClusterBackend
    provider: NodeProvider
    incidents: IncidentStore
    events: EventSink
    leadership: Leadership
    is_ready: Callable[[], bool]
    """Whether the first snapshot can be read."""

    troubles: Callable[[], Sequence[str]]
    """Why what is known of the cluster is not kept up to date just now."""

    families: Callable[[], Sequence[str]]
    """Metrics of its own, in Prometheus' text form."""

    jobs: JobBackend | None = None
    """The jobs that ask to be restarted; None where nobody else than the platform does that."""

    close: Callable[[], None]
    """Lets go of everything: leadership first."""


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
            config: which, and how.
            wake: called, from any thread, when there may be something to decide.
            acts: whether to take part in the choice of who leads; else it is only read.

        Raises:
            ConfigError: something of ``config`` cannot be used.

        """
        ...
