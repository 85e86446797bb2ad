"""What the nodes of a Kubernetes cluster depend on."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.adapters.kubernetes.nodes.pods import Owner
from holdfast.model.nodes import NodeRecord
from holdfast.ports.clock import Clock
from holdfast.ports.events import EventSink


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """What ``KubernetesCluster`` needs beside the API server."""

    clock: Clock
    events: EventSink
    """Is told of what cannot be used, and of calls that failed beside the rounds."""

    changed: Callable[[], None]
    """Called, from any thread, when there may be something to decide."""

    may_act: Callable[[], bool]
    """Whether this process may change the cluster just now; a reader never may."""

    evicted: Callable[[str, Owner], None]
    """Takes a node and the owner of a pod that was asked to leave it."""

    fresh: timedelta = timedelta(seconds=10)
    """For so long a healthy node counts as heard without another look. A quarter of the policy's
    ``heartbeat_timeout``, so that no node falls silent for want of looking."""

    stops_itself: Callable[[str], bool] = lambda _pod: False
    """Whether a pod, as ``namespace/name``, is left to what stops its job as a whole."""

    is_check_due: Callable[[str, NodeRecord, datetime], bool] | None = None
    """Whether a node of a group is to be checked as soon as it is idle; None if none ever is."""
