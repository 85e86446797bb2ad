"""Which of the nodes that are due for a check have nothing that would have to leave them."""

from collections.abc import Collection

from holdfast.adapters.kubernetes.api import Api
from holdfast.adapters.kubernetes.pods import leaving_pods
from holdfast.model.errors import BackendError


class IdleNodes:
    """Looks at one node at a time, so that a fleet that is due costs one call a round."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._turns = 0
        self._looked_at: dict[str, int] = {}

    def one_of(self, due: Collection[str]) -> str:
        """A node that is due and has no pod but those of DaemonSets; empty if that is not known.

        The node that was looked at longest ago has its turn.
        """
        self._looked_at = {name: self._looked_at.get(name, 0) for name in due}
        if not due:
            return ""
        name = min(self._looked_at, key=lambda name: (self._looked_at[name], name))
        self._turns += 1
        self._looked_at[name] = self._turns
        try:
            pods = self._api.list("/api/v1/pods", {"fieldSelector": f"spec.nodeName={name}"})
            return "" if leaving_pods(pods) else name
        except BackendError:
            return ""
