"""Thread-safe access to a fleet."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Protocol, TypeVar

from holdfast.apps.target import Where, open_fleets
from holdfast.apps.views.nodes import Fleet, NodeStatus
from holdfast.model.incidents import Incident
from holdfast.model.requests import Request

T = TypeVar("T")


class RepairableFleet(Protocol):
    """Methods of ``Fleet`` that the cluster API uses."""

    @property
    def name(self) -> str:
        """See ``Fleet.name``."""
        ...

    @property
    def is_active(self) -> bool:
        """See ``Fleet.is_active``."""
        ...

    def nodes(self) -> Sequence[NodeStatus]:
        """See ``Fleet.nodes``."""
        ...

    def incidents(self) -> Sequence[Incident]:
        """See ``Fleet.incidents``."""
        ...

    def submit(self, node: str, request: Request) -> str:
        """See ``Fleet.submit``."""
        ...


class SharedFleet:
    """The ``RepairableFleet`` of a cluster, until it is closed.

    It is opened, used and closed in one dedicated thread: a SQLite connection belongs to its
    thread.
    """

    def __init__(self, where: Where) -> None:
        """Find the cluster.

        Raises:
            ConfigError: it cannot be found.

        """
        with ExitStack() as stack:
            self._thread = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="fleet"))
            self._opened = ExitStack()
            self._fleet = self._in_thread(lambda: self._open(where))
            stack.pop_all()

    def close(self) -> None:
        """Close all open resources."""
        self._in_thread(self._opened.close)
        self._thread.shutdown()

    @property
    def name(self) -> str:
        """See ``Fleet.name``."""
        return self._in_thread(lambda: self._fleet.name)

    @property
    def is_active(self) -> bool:
        """See ``Fleet.is_active``."""
        return self._in_thread(lambda: self._fleet.is_active)

    def nodes(self) -> Sequence[NodeStatus]:
        """See ``Fleet.nodes``."""
        return self._in_thread(self._fleet.nodes)

    def incidents(self) -> Sequence[Incident]:
        """See ``Fleet.incidents``."""
        return self._in_thread(self._fleet.incidents)

    def submit(self, node: str, request: Request) -> str:
        """See ``Fleet.submit``."""
        return self._in_thread(lambda: self._fleet.submit(node, request))

    def _open(self, where: Where) -> Fleet:
        [fleet] = self._opened.enter_context(open_fleets(where))
        return fleet

    def _in_thread(self, work: Callable[[], T]) -> T:
        return self._thread.submit(work).result()
