"""Requests of deep health checks that nobody but Holdfast makes."""

from collections.abc import Callable, Iterable

from holdfast.decisions.suspect_nodes import SuspectNode
from holdfast.model.errors import BackendError
from holdfast.model.events import Event
from holdfast.ports.cluster import ClusterBackend
from holdfast.ports.events import EventSink
from holdfast.ports.leadership import Leadership


class CheckRequests:
    """Requests the check of each suspect node once."""

    def __init__(self, cluster: ClusterBackend, leadership: Leadership, events: EventSink) -> None:
        """Request checks from ``cluster``, and report them to ``events``."""
        self._cluster = cluster
        self._leadership = leadership
        self._events = events
        self._requested: set[str] = set()

    def request(
        self,
        suspects: Iterable[SuspectNode],
        event_of: Callable[[SuspectNode, bool], Event],
        on_error: Callable[[str, BackendError], object],
    ) -> bool:
        """Return whether any check was requested that was not before.

        Args:
            suspects: nodes to check.
            event_of: the event of a request; the flag is whether there are deep health checks.
            on_error: called when the backend fails; the request is repeated in the next round.

        """
        has_requested = False
        for one in suspects:
            if one.request.id in self._requested or not self._leadership.is_held():
                continue
            try:
                is_checked = self._cluster.request_check(one.node, one.request)
            except BackendError as error:
                on_error(f"requesting a check of {one.node}", error)
                continue
            self._requested.add(one.request.id)
            has_requested |= is_checked
            self._events.emit(event_of(one, is_checked))
        return has_requested
