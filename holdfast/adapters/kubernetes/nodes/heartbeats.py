"""Last renewals of the leases of kubelets and agents."""

import time
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import Json, NotFound
from holdfast.adapters.kubernetes.client.values import parse_time

KUBELETS: Final = "kube-node-lease"
"""Namespace of the leases that kubelets renew every 10 s."""

_EVERY_S: Final = 5.0
_ONE_BY_ONE: Final = 10
"""More leases than this are read with one list call."""

_LEASE: Final = timedelta(seconds=40)
"""Duration of the leases of kubelets and agents."""


class NodeLease(NamedTuple):
    """Lease of one node, as last observed by this process."""

    renewed_at: datetime
    """Time of the last renewal by the node's clock, which may be wrong."""

    holder: str
    """Boot ID of the agent, or node name for a kubelet."""

    observed_at: datetime
    """Time at which this process observed the last renewal; ``renewed_at`` before the first one."""

    is_live: bool
    """Whether the holder was alive: a renewal was observed, or the lease was valid when first
    read."""


class LeaseReader:
    """Reads the leases of nodes in one namespace.

    A wrong clock on a node does no harm: only the time at which a renewal was observed counts.
    """

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._leases: dict[str, NodeLease | None] = {}
        self._read_at: dict[str, float] = {}

    def of(
        self, nodes: Collection[str], now: datetime, *, at_once: Collection[str] = ()
    ) -> dict[str, NodeLease]:
        """Return the lease of each node that has one, at most 5 s old; for ``at_once`` current.

        Raises:
            BackendError: the leases could not be read.

        """
        clock = time.monotonic()
        stale = {
            name
            for name in nodes
            if name in at_once or clock - self._read_at.get(name, -_EVERY_S) >= _EVERY_S
        }
        found: dict[str, Json | None] = dict.fromkeys(stale)
        for lease in self._read(stale):
            if lease["metadata"]["name"] in stale:
                found[lease["metadata"]["name"]] = lease.get("spec") or {}
        for name, spec in found.items():
            self._leases[name] = self._learned(name, spec, now)
            self._read_at[name] = clock
        return {
            name: node_lease for name in nodes if (node_lease := self._leases[name]) is not None
        }

    def forget_others(self, nodes: Collection[str]) -> None:
        """Remove the leases of all nodes but these from the cache."""
        for removed in self._read_at.keys() - set(nodes):
            del self._read_at[removed], self._leases[removed]

    def _learned(self, name: str, spec: Json | None, now: datetime) -> NodeLease | None:
        renewed_at = None if spec is None else parse_time(spec.get("renewTime"))
        if spec is None or renewed_at is None:
            return None
        holder, before = str(spec.get("holderIdentity") or ""), self._leases.get(name)
        if before is not None and (before.renewed_at, before.holder) == (renewed_at, holder):
            return before
        is_first = name not in self._leases
        return NodeLease(
            renewed_at=renewed_at,
            holder=holder,
            observed_at=min(renewed_at, now) if is_first else now,
            is_live=not is_first or abs(now - renewed_at) <= _LEASE,
        )

    def _read(self, nodes: Collection[str]) -> Iterator[Json]:
        if len(nodes) > _ONE_BY_ONE:
            yield from self._api.list(self._folder)
            return
        for node in sorted(nodes):
            try:
                yield self._api.get(f"{self._folder}/{node}")
            except NotFound:
                continue
