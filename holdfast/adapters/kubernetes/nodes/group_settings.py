"""Labels and taints of nodes that instance groups request."""

from collections.abc import Callable, Mapping, Sequence

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import Json, NotFound
from holdfast.adapters.kubernetes.nodes.cache import NODES
from holdfast.adapters.kubernetes.nodes.node import Conventions, trimmed
from holdfast.model.errors import BackendError
from holdfast.model.node_settings import KubernetesConfig, SettingsChange, Taint


class LabeledNodes:
    """The ``KubernetesNodes`` of a cluster.

    Args:
        api: client; it needs ``list`` and ``patch`` of nodes.
        machine_id: id of the machine with a provider ID.

    """

    def __init__(self, api: Api, machine_id: Callable[[str], str]) -> None:
        self._api = api
        self._machine_id = machine_id

    def settings(self) -> Mapping[str, KubernetesConfig]:
        """See ``KubernetesNodes.settings``."""
        return {self._machine(one): _settings(one) for one in self._api.list(NODES)}

    def configure(self, changes: Sequence[SettingsChange]) -> None:
        """See ``KubernetesNodes.configure``."""
        changed = {one.machine: one for one in changes}
        failed: BackendError | None = None
        for node in list(self._api.list(NODES)):
            change = changed.get(self._machine(node))
            if change is None:
                continue
            try:
                self._api.patch(f"{NODES}/{node['metadata']['name']}", _patch(node, change))
            except NotFound:
                continue
            except BackendError as error:
                failed = error
        if failed is not None:
            raise failed

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def _machine(self, node: Json) -> str:
        return self._machine_id(trimmed(node, Conventions()).provider_id)


def _patch(node: Json, change: SettingsChange) -> Json:
    """Return the patch of a node, which fails if its list of taints may have changed meanwhile."""
    metadata: Json = {"resourceVersion": node["metadata"]["resourceVersion"]}
    if change.labels:
        metadata["labels"] = dict(change.labels)
    body: Json = {"metadata": metadata}
    if change.taints or change.removed_taints:
        taints = (node.get("spec") or {}).get("taints") or []
        body["spec"] = {"taints": _changed_taints(taints, change) or None}
    return body


def _changed_taints(taints: Sequence[Json], change: SettingsChange) -> list[Json]:
    """Return the taints of a node after a change; those that it does not name stay as they are."""
    named = {(one.key, one.effect) for one in (*change.taints, *change.removed_taints)}
    others = [one for one in taints if (one.get("key"), one.get("effect")) not in named]
    return [*others, *(_taint(one) for one in change.taints)]


def _taint(taint: Taint) -> Json:
    value = {"value": taint.value} if taint.value else {}
    return {"key": taint.key, "effect": taint.effect, **value}


def _settings(node: Json) -> KubernetesConfig:
    taints = (node.get("spec") or {}).get("taints") or ()
    return KubernetesConfig(
        labels=dict(node["metadata"].get("labels") or {}),
        taints=tuple(
            Taint(key=one["key"], effect=one["effect"], value=one.get("value") or "")
            for one in taints
        ),
    )
