"""Port of the store of requested clusters and their state."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from holdfast.model.clusters import ClusterEvent, DesiredCluster, Member


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCluster:
    """A stored cluster."""

    cluster: DesiredCluster
    members: tuple[Member, ...]
    version: int
    """Changes with every write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """Audit record of a requested change."""

    at: datetime
    person: str
    operation: str
    request: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """New state of a cluster after a person's request."""

    cluster: DesiredCluster
    members: tuple[Member, ...]
    cluster_events: tuple[ClusterEvent, ...] = ()
    answer: Mapping[str, object]
    """Response to the request; repeated for every request with the same nonce."""


Fits = Callable[[Sequence[DesiredCluster], Sequence[DesiredCluster]], None]
"""Receives all clusters before and after a change; raises if the change is not allowed."""


class ClusterRecords(Protocol):
    """Store of clusters. Several threads and processes may use it.

    When a call returns, its change is durable; when it raises, nothing was changed. Every method
    may raise ``BackendError``, and ``StorageFull`` if no space is left.
    """

    def names(self) -> Sequence[str]:
        """Return the names of all clusters, in order."""
        ...

    def all(self) -> Sequence[StoredCluster]:
        """Return all clusters with their nodes, in the order of their names."""
        ...

    def load(self, name: str) -> StoredCluster | None:
        """Return a cluster with its nodes; None if there is none of that name."""
        ...

    def create(
        self,
        cluster: DesiredCluster,
        cluster_events: Sequence[ClusterEvent],
        tags: Mapping[str, str],
        requested: RecordedRequest,
        *,
        fits: Fits | None = None,
    ) -> bool:
        """Store a new cluster with its tags; return False if there is one of that name.

        No other change is written between ``fits`` and that.
        """
        ...

    def change(
        self,
        name: str,
        make: Callable[[StoredCluster], Change],
        requested: RecordedRequest,
        *,
        fits: Fits | None = None,
        nonce: str = "",
        nonce_since: datetime | None = None,
    ) -> Mapping[str, object] | None:
        """Change a cluster as a person requested; no other change happens meanwhile.

        Args:
            name: name of the cluster.
            make: returns the new state; nothing is written if it raises.
            requested: audit record to store.
            fits: nothing is written if it raises, and no other change meanwhile.
            nonce: identifies the request; a repeated one gets the response of the first.
            nonce_since: earlier nonces are deleted.

        Returns:
            The response; None if there is no such cluster.

        """
        ...

    def save(
        self,
        stored: StoredCluster,
        cluster: DesiredCluster | None,
        members: Sequence[Member],
        cluster_events: Sequence[ClusterEvent],
    ) -> bool:
        """Store the new state of a cluster; None deletes it.

        Returns:
            False, and nothing is written, if the cluster has changed since it was read.

        """
        ...

    def use_nonce(self, nonce: str, at: datetime, since: datetime) -> bool:
        """Record the use of a nonce; return whether it was never used before.

        Args:
            nonce: for example the signature of a request.
            at: current time.
            since: nonces that were used before then are deleted.

        """
        ...

    def release_nonce(self, nonce: str) -> None:
        """Allow another use of a nonce, as its use had no effect."""
        ...

    def cluster_events(self, name: str) -> Sequence[ClusterEvent]:
        """Return all events of a cluster, oldest first."""
        ...

    def tags(self, name: str) -> Mapping[str, str]:
        """Return the tags of a cluster, sorted by key."""
        ...

    def tag(
        self,
        name: str,
        make: Callable[[Mapping[str, str]], Mapping[str, str]],
        requested: RecordedRequest,
    ) -> Mapping[str, str] | None:
        """Change the tags of a cluster; return the new tags, None if there is no such cluster."""
        ...
