"""Detection of idle nodes: nodes due for a check without pods that would be evicted."""

from collections.abc import Collection

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.nodes.pods import leaving_pods
from holdfast.model.errors import BackendError


class IdleNodes:
    """Lists the pods of a limited number of nodes per round, which bounds the API calls."""

    def __init__(self, api: Api, *, limit: int) -> None:
        """Create it; ``limit`` is the number of nodes that are checked in one round."""
        self._api = api
        self._limit = limit
        self._turns = 0
        self._checked_at: dict[str, int] = {}
        self._pods: dict[str, tuple[str, ...]] = {}

    def among(self, due: Collection[str]) -> frozenset[str]:
        """Return the nodes that are due and are known to have only DaemonSet pods.

        Checks the nodes whose last check is oldest.
        """
        self._checked_at = {name: self._checked_at.get(name, 0) for name in due}
        self._pods = {name: pods for name, pods in self._pods.items() if name in due}
        turn = sorted(self._checked_at, key=lambda name: (self._checked_at[name], name))
        return frozenset(name for name in turn[: self._limit] if self._is_idle(name))

    def pods(self, node: str) -> tuple[str, ...]:
        """Return the pods of a node at its last check, as ``namespace/name``."""
        return self._pods.get(node, ())

    def _is_idle(self, name: str) -> bool:
        self._turns += 1
        self._checked_at[name] = self._turns
        try:
            pods = self._api.list("/api/v1/pods", {"fieldSelector": f"spec.nodeName={name}"})
        except BackendError:
            return False
        self._pods[name] = tuple(map(str, leaving_pods(pods)))
        return not self._pods[name]
