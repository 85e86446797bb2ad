"""When nodes were last heard that the node controller has given up."""

import time
from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Final

from holdfast.adapters.kubernetes.api import Api
from holdfast.adapters.kubernetes.api_errors import Json, NotFound
from holdfast.adapters.kubernetes.nodes import time_of

KUBELETS: Final = "kube-node-lease"
"""Namespace of the leases that kubelets renew every 10 s."""

_EVERY_S: Final = 5.0
_ONE_BY_ONE: Final = 20
"""More leases than this are listed at once, which costs the same whatever their number."""


class Heartbeats:
    """Reads the leases of nodes, those of their kubelets and those of their agents."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespaces = (KUBELETS, namespace)
        self._renewed_at: dict[str, datetime | None] = {}
        self._read_at: dict[str, float] = {}

    def of(self, nodes: Collection[str]) -> dict[str, datetime | None]:
        """When each node last renewed a lease, as of at most 5 s ago; None if it has none.

        Raises:
            BackendError: the leases could not be read.

        """
        now = time.monotonic()
        for gone in self._read_at.keys() - set(nodes):
            del self._read_at[gone], self._renewed_at[gone]
        stale = [name for name in nodes if now - self._read_at.get(name, -_EVERY_S) >= _EVERY_S]
        found: dict[str, datetime | None] = dict.fromkeys(stale)
        for lease in self._leases(stale):
            name = lease["metadata"]["name"]
            renewed_at = time_of((lease.get("spec") or {}).get("renewTime"))
            before = found.get(name)
            if name in found and renewed_at is not None:
                found[name] = renewed_at if before is None else max(before, renewed_at)
        self._renewed_at |= found
        self._read_at |= dict.fromkeys(stale, now)
        return {name: self._renewed_at[name] for name in nodes}

    def _leases(self, nodes: Collection[str]) -> Iterator[Json]:
        for namespace in self._namespaces if nodes else ():
            folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
            if len(nodes) > _ONE_BY_ONE:
                yield from self._api.list(folder)
                continue
            for node in nodes:
                try:
                    yield self._api.get(f"{folder}/{node}")
                except NotFound:
                    continue
