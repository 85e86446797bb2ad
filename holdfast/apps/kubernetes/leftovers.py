"""Objects and fields that Holdfast left in a Kubernetes cluster, for ``holdfast uninstall``."""

from collections.abc import Iterator
from pathlib import Path

from holdfast import __version__
from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.kubeconfig import find_server
from holdfast.adapters.kubernetes.nodes.node import Conventions
from holdfast.adapters.kubernetes.uninstall import Leftover, Scope, active, leftovers
from holdfast.apps.clock import SystemClock
from holdfast.model.names import Labels


def connect(
    *,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
    agent_namespace: str | None,
    label_prefix: str,
    keep_cordoned: bool,
    keep_incidents: bool,
) -> "Leftovers":
    """Connect to the cluster that kubectl would use.

    Raises:
        ConfigError: no cluster is configured, or it cannot be used.

    """
    server = find_server(kubeconfig, context or "")
    name = "holdfast"
    api = Api(server, user_agent=f"{name}/{__version__}", field_manager=name)
    scope = Scope(
        namespaces=tuple(dict.fromkeys((namespace, agent_namespace or namespace))),
        conventions=Conventions(labels=Labels(label_prefix)),
        now=SystemClock().now(),
        keeps_cordons=keep_cordoned,
        keeps_incidents=keep_incidents,
    )
    return Leftovers(api, scope)


class Leftovers:
    """Finds leftovers; each ``Leftover`` removes itself."""

    def __init__(self, api: Api, scope: Scope) -> None:
        self._api = api
        self._scope = scope

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def active(self) -> list[str]:
        """Return the names of active controllers and agents."""
        return active(self._api, self._scope)

    def leftovers(self) -> Iterator[Leftover]:
        """Yield all leftovers, in the order of their removal."""
        return leftovers(self._api, self._scope)
