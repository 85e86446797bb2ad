"""Detection of idle nodes: nodes due for a check without pods that would be evicted."""

from collections.abc import Collection

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.nodes.pods import is_holdfast, leaving_pods
from holdfast.model.errors import BackendError


class IdleNodes:
    """Lists the pods of a limited number of nodes per round, which bounds the API calls."""

    def __init__(self, api: Api, *, limit: int, own: str) -> None:
        """Create it.

        Args:
            api: the client.
            limit: number of nodes that are checked in one round.
            own: namespace of Holdfast, whose own pods are not work: a controller hands over its
                leadership when its node is cordoned.

        """
        self._api = api
        self._limit = limit
        self._own = own
        self._checks = 0
        self._checked_at: dict[str, int] = {}
        self._pods: dict[str, tuple[str, ...]] = {}

    def among(self, due: Collection[str], nodes: Collection[str]) -> frozenset[str]:
        """Return the nodes that are due and known to have only pods of DaemonSets and Holdfast.

        Checks the nodes whose last check is oldest.

        Args:
            due: nodes of which it matters.
            nodes: all nodes. Not all calls have the same ones due, so a check is remembered for as
                long as its node exists.

        """
        self._checked_at = {name: at for name, at in self._checked_at.items() if name in nodes}
        self._pods = {name: pods for name, pods in self._pods.items() if name in due}
        oldest_first = sorted(due, key=lambda name: (self._checked_at.get(name, 0), name))
        return frozenset(name for name in oldest_first[: self._limit] if self._is_idle(name))

    def pods(self, node: str) -> tuple[str, ...]:
        """Return the pods of a node at its last check, as ``namespace/name``."""
        return self._pods.get(node, ())

    def _is_idle(self, name: str) -> bool:
        self._checks += 1
        self._checked_at[name] = self._checks
        try:
            pods = self._api.list("/api/v1/pods", {"fieldSelector": f"spec.nodeName={name}"})
        except BackendError:
            return False
        work = (pod for pod in pods if not is_holdfast(pod, self._own))
        self._pods[name] = tuple(map(str, leaving_pods(work)))
        return not self._pods[name]
