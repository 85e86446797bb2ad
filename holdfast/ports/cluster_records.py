"""Where it is written what clusters people ask for, and what became of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from holdfast.model.clusters import ClusterEvent, DesiredCluster, Member


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCluster:
    """A cluster as it was read."""

    cluster: DesiredCluster
    members: tuple[Member, ...]
    version: int
    """Another with every change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """Who asked for a change, and for which."""

    at: datetime
    person: str
    operation: str
    request: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a person's wish makes of a cluster."""

    cluster: DesiredCluster
    members: tuple[Member, ...]
    cluster_events: tuple[ClusterEvent, ...] = ()
    answer: Mapping[str, object]
    """What is said about it; given again to whoever asks with the same nonce."""


Fits = Callable[[Sequence[DesiredCluster], Sequence[DesiredCluster]], None]
"""Told all clusters as they are and as they would be; raises if they must not be so."""


class ClusterRecords(Protocol):
    """Several threads and processes may use it.

    A call that returns has been written for good; one that raises has changed nothing. Every method
    may raise ``BackendError``, and ``StorageFull`` if there is no room.
    """

    def names(self) -> Sequence[str]:
        """Of all clusters, in order."""
        ...

    def all(self) -> Sequence[StoredCluster]:
        """All clusters with their nodes, in the order of their names."""
        ...

    def load(self, name: str) -> StoredCluster | None:
        """A cluster with its nodes; None if there is none of that name."""
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
        """Write a new cluster with its tags; False if there is one of that name.

        Nobody writes another between ``fits`` and that.
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
        """Change a cluster by the wish of a person; nobody else changes it meanwhile.

        Args:
            name: of the cluster.
            make: what becomes of it; nothing is written if it raises.
            requested: noted.
            fits: nothing is written if it raises, and nobody writes anything meanwhile.
            nonce: names the wish; one that came before is answered as it was then.
            nonce_since: those from before are forgotten.

        Returns:
            The answer; None if there is no such cluster.

        """
        ...

    def save(
        self,
        held: StoredCluster,
        cluster: DesiredCluster | None,
        members: Sequence[Member],
        cluster_events: Sequence[ClusterEvent],
    ) -> bool:
        """Write what became of a cluster, None for that it is gone.

        Returns:
            False, and nothing is written, if somebody has changed it since it was read.

        """
        ...

    def use_once(self, word: str, at: datetime, since: datetime) -> bool:
        """Note that a word is used now; whether it was never used before.

        Args:
            word: such as the signature of a request.
            at: the present time.
            since: words that were used before then are forgotten.

        """
        ...

    def give_back(self, word: str) -> None:
        """Let a word be used once more, as nothing came of its use."""
        ...

    def cluster_events(self, name: str) -> Sequence[ClusterEvent]:
        """All that happened to a cluster, oldest first."""
        ...

    def tags(self, name: str) -> Mapping[str, str]:
        """The tags of a cluster, by their keys in order."""
        ...

    def tag(
        self,
        name: str,
        make: Callable[[Mapping[str, str]], Mapping[str, str]],
        requested: RecordedRequest,
    ) -> Mapping[str, str] | None:
        """Change the tags of a cluster; the tags that it has now, None if there is no such one."""
        ...
