"""Dependencies of the nodes of a Kubernetes cluster."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.adapters.kubernetes.nodes.pods import PodOwner
from holdfast.model.nodes import NodeRecord
from holdfast.ports.clock import Clock
from holdfast.ports.events import EventSink


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """Dependencies of ``KubernetesCluster`` beside the API server."""

    clock: Clock
    events: EventSink
    """Receives events about invalid values and about calls that failed between rounds."""

    changed: Callable[[], None]
    """Called, from any thread, when a new round may be needed."""

    may_act: Callable[[], bool]
    """Whether this process may change the cluster; always false for a reader."""

    evicted: Callable[[str, PodOwner], None]
    """Receives a node and the owner of a pod that was evicted from it."""

    fresh: timedelta = timedelta(seconds=10)
    """Time for which a healthy node's heartbeat is not read again: a quarter of the policy's
    ``heartbeat_timeout``, so that no node times out unread."""

    elected: Callable[[], int] = lambda: 0
    """Returns how many times this process became the leader after others may have led."""

    stops_itself: Callable[[str], bool] = lambda _pod: False
    """Whether a pod, as ``namespace/name``, is stopped together with its whole job."""

    is_check_due: Callable[[str, NodeRecord, datetime], bool] | None = None
    """Whether a node of a group is due for a check when idle; None without such checks."""
