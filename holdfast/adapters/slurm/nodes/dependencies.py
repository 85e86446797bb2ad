"""Dependencies of the cluster backend on the rest of the controller."""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from datetime import datetime

from holdfast.adapters.slurm.commands.node_text import JobFacts
from holdfast.adapters.slurm.nodes.signatures import Trust
from holdfast.model.nodes import NodeRecord, NodeView
from holdfast.ports.clock import Clock
from holdfast.ports.events import EventSink


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """Dependencies of the cluster other than Slurm."""

    clock: Clock
    events: EventSink
    """Sink for reports of invalid values and of calls that failed outside of rounds."""

    changed: Callable[[], None]
    """Called, from any thread, when a new round may be needed."""

    trust: Trust
    """Whose reports are accepted."""

    may_act: Callable[[], bool]
    """Whether this process may change the cluster now; False for readers."""

    is_check_due: Callable[[str, NodeRecord, datetime], bool] | None = None
    """Whether a node of a partition is due for a check once it is idle; None if no check is
    configured."""

    stops_itself: Callable[[str], bool] = lambda _: False
    """Whether the job loop stops a job, so that the node loop leaves it alone."""

    displaces: Callable[[str, NodeView], None] = lambda _job, _node: None
    """Called with a job that the node loop requeues, and the node that the job has to leave."""

    left: Callable[[Iterable[JobFacts]], Container[tuple[str, str]]] = lambda _jobs: ()
    """Returns pairs of job and node: the job is allocated the node, but runs no step there."""
