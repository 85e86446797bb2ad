"""Port of a cluster: its nodes, and Holdfast's records of them."""

from collections.abc import Collection
from typing import Protocol

from holdfast.model.actions import CloseBreaker, TripBreaker
from holdfast.model.names import DeepCheck
from holdfast.model.nodes import ClusterView, NodeRecord, Pool
from holdfast.model.requests import Request


class ClusterBackend(Protocol):
    """Reads a cluster and stores the state of each repair with its node.

    Every method may raise ``BackendError``: the caller skips that node for the rest of the round
    and retries in the next one. Every method returns quickly; none waits for what it started.
    Calling a method twice with the same arguments has the same effect as calling it once.
    """

    def snapshot(self, peer_pools: Collection[Pool] = ()) -> ClusterView:
        """Return the current state of all nodes.

        Args:
            peer_pools: ``Plan.peer_pools`` of the previous round. A backend that has to query
                whether a node is idle does so for the nodes of these pools, too, so that
                ``NodeView.is_idle`` is true for idle ones.

        """
        ...

    def put(self, node: str, record: NodeRecord) -> None:
        """Store the record of a node, durably, and make the node's scheduling state match it.

        Jobs can be placed on the node exactly while ``record.phase`` is schedulable.
        """
        ...

    def clear_request(self, node: str, request_id: str) -> None:
        """Delete a request of a person that is being carried out. Unknown requests are ignored."""
        ...

    def request_check(self, node: str, request: Request) -> bool:
        """Record a request for a deep health check of a node, as a person would.

        An existing request is kept instead.

        Returns:
            False where there are no deep health checks; then nothing is recorded.

        """
        ...

    def drain(self, node: str) -> None:
        """Request that the jobs leave the node. Called in every round while it drains."""
        ...

    def start_check(self, node: str, check_id: str, kinds: tuple[DeepCheck, ...]) -> None:
        """Start the deep health check ``check_id`` of ``kinds``, unless it was started already.

        Called in every round until ``NodeView.check`` holds its result. No ``kinds`` means all that
        are configured.
        """
        ...

    def start_pair(self, node: str, partner: str, test_id: str) -> None:
        """Start the test ``test_id`` between two nodes, unless it was started already.

        Called in every round until ``NodeView.pair`` of ``node`` holds its result. No job runs on
        either node. A test ends when it is in no record any more, with or without a result.
        """
        ...

    def retire(self, node: str) -> None:
        """Delete a node whose replacement has taken over."""
        ...

    def trip_breaker(self, trip: TripBreaker) -> None:
        """Open the breaker, durably. An open one is unchanged."""
        ...

    def close_breaker(self, close: CloseBreaker) -> None:
        """Close the breaker that opened at ``close.tripped_at``, durably; any other is unchanged.

        Sets ``Breaker.reset_at`` to the current time.
        """
        ...

    def remember_offender(self, provider_id: str) -> None:
        """Add a machine to ``ClusterView.offenders``, durably."""
        ...
