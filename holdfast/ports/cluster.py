"""A cluster: its nodes, and what Holdfast remembers about them."""

from collections.abc import Collection
from typing import Protocol

from holdfast.model.actions import CloseBreaker, TripBreaker
from holdfast.model.names import DeepCheck
from holdfast.model.nodes import ClusterView, NodeRecord, Pool
from holdfast.model.requests import Request


class ClusterBackend(Protocol):
    """Reads a cluster and stores the course of each repair with its node.

    Every method may raise ``BackendError``: the caller does nothing further for that node in this
    round and comes again. Every method returns quickly; none waits for what it began. Calling a
    method twice with the same arguments is the same as calling it once.
    """

    def snapshot(self, peer_pools: Collection[Pool] = ()) -> ClusterView:
        """Return all nodes as they are now.

        Args:
            peer_pools: ``Plan.peer_pools`` of the round before. A backend that has to ask whether
                a node is idle does so for the nodes of these pools, too, so that
                ``NodeView.is_idle`` is true for idle ones.

        """
        ...

    def put(self, node: str, record: NodeRecord) -> None:
        """Store the record of a node, durably, and mark the node for its scheduler to match.

        Jobs can be placed on the node exactly while ``record.phase`` is schedulable.
        """
        ...

    def clear_request(self, node: str, request_id: str) -> None:
        """Forget a request of a person that was taken up. Unknown requests are ignored."""
        ...

    def request_check(self, node: str, request: Request) -> bool:
        """Record a request for a deep health check of a node, as a person would.

        One that waits there stays in its place.

        Returns:
            False where there are no deep health checks; then nothing is recorded.

        """
        ...

    def drain(self, node: str) -> None:
        """Ask the jobs on the node to leave. Called in every round while it drains."""
        ...

    def start_check(self, node: str, check_id: str, kinds: tuple[DeepCheck, ...]) -> None:
        """Start the deep health check ``check_id`` of ``kinds``, unless it was started already.

        Called in every round until ``NodeView.check`` holds its result. No ``kinds`` are all that
        is configured.
        """
        ...

    def start_pair(self, node: str, partner: str, test_id: str) -> None:
        """Start the test ``test_id`` between two nodes, unless it was started already.

        Called in every round until ``NodeView.pair`` of ``node`` holds its result. No job is on
        either node. A test ends when it is in no record any more, whether or not it had a result.
        """
        ...

    def retire(self, node: str) -> None:
        """Forget a node whose replacement has taken over."""
        ...

    def trip_breaker(self, trip: TripBreaker) -> None:
        """Open the breaker, durably. An open one stays as it is."""
        ...

    def close_breaker(self, close: CloseBreaker) -> None:
        """Close the breaker that opened at ``close.tripped_at``, durably; any other is unchanged.

        ``Breaker.reset_at`` is the present time then.
        """
        ...

    def remember_offender(self, provider_id: str) -> None:
        """Add a machine to ``ClusterView.offenders``, durably."""
        ...
