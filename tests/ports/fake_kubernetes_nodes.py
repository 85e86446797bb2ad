"""A ``KubernetesNodes`` in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.model.node_settings import KubernetesConfig, SettingsChange
from tests.ports.fakes import Calls


@dataclass(slots=True)
class FakeKubernetesNodes:
    """Labels and taints of nodes in memory."""

    calls: Calls = field(default_factory=Calls)
    nodes: dict[str, KubernetesConfig] = field(default_factory=dict)
    """Labels and taints by machine id."""

    def settings(self) -> Mapping[str, KubernetesConfig]:
        """See ``KubernetesNodes.settings``."""
        self.calls.note("settings", "")
        return dict(self.nodes)

    def configure(self, changes: Sequence[SettingsChange]) -> None:
        """See ``KubernetesNodes.configure``."""
        for change in changes:
            self.calls.note("configure", change.machine)
            self._configure(change)

    def _configure(self, change: SettingsChange) -> None:
        node = self.nodes.get(change.machine)
        if node is None:
            return
        labels = {**node.labels, **change.labels}
        named = {(one.key, one.effect) for one in (*change.taints, *change.removed_taints)}
        others = [one for one in node.taints if (one.key, one.effect) not in named]
        self.nodes[change.machine] = KubernetesConfig(
            labels={key: value for key, value in labels.items() if value is not None},
            taints=(*others, *change.taints),
        )
