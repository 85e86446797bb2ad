"""Contract of ``KubernetesNodes``: a test class to inherit from, as in ``contracts``."""

import time
from dataclasses import replace
from typing import Final, Protocol

from holdfast.model.errors import BackendError
from holdfast.model.node_settings import KubernetesConfig, SettingsChange, Taint
from holdfast.ports.kubernetes_nodes import KubernetesNodes

FOREIGN: Final = KubernetesConfig(
    labels={"example.com/zone": "a"},
    taints=(
        Taint(key="example.com/dedicated", effect="NoSchedule", value="team"),
        Taint(key="example.com/dedicated", effect="PreferNoSchedule"),
    ),
)
"""Labels and taints of the first node."""

SET: Final = SettingsChange(
    machine="i-00000000000000001",
    labels={"example.com/tier": "gold"},
    taints=(Taint(key="example.com/tier", effect="NoSchedule", value="gold"),),
)


class KubernetesNodesHarness(Protocol):
    """A cluster with two nodes."""

    nodes: KubernetesNodes


class KubernetesNodesContract:
    """Labels and taints are set and removed, and others stay."""

    def test_all_labels_and_taints_are_returned(self, harness: KubernetesNodesHarness) -> None:
        found = harness.nodes.settings()

        assert set(found) == {"i-00000000000000001", "i-00000000000000002"}
        assert _own(harness) == FOREIGN

    def test_labels_and_taints_are_set_and_others_stay(
        self, harness: KubernetesNodesHarness
    ) -> None:
        for _ in range(2):
            _configure(harness, SET)

        found = _own(harness)
        assert found.labels == {**FOREIGN.labels, **SET.labels}
        assert set(found.taints) == {*FOREIGN.taints, *SET.taints}
        assert len(found.taints) == 3

    def test_a_value_is_replaced(self, harness: KubernetesNodesHarness) -> None:
        _configure(harness, SET)
        taint = replace(SET.taints[0], value="")
        _configure(harness, replace(SET, labels={"example.com/tier": "silver"}, taints=(taint,)))

        found = _own(harness)
        assert found.labels["example.com/tier"] == "silver"
        assert set(found.taints) == {*FOREIGN.taints, taint}

    def test_what_is_removed_is_gone_and_others_stay(self, harness: KubernetesNodesHarness) -> None:
        _configure(harness, SET)
        removed = replace(
            SET, labels={"example.com/tier": None}, taints=(), removed_taints=SET.taints
        )
        for _ in range(2):
            _configure(harness, removed)

        assert _own(harness) == FOREIGN

    def test_a_machine_without_a_node_is_skipped(self, harness: KubernetesNodesHarness) -> None:
        _configure(
            harness,
            replace(SET, machine="i-00000000000000009"),
            replace(SET, machine="i-00000000000000002"),
        )

        assert _own(harness) == FOREIGN
        changed = harness.nodes.settings()["i-00000000000000002"]
        assert changed.labels["example.com/tier"] == "gold"


def _configure(harness: KubernetesNodesHarness, *changes: SettingsChange) -> None:
    """As the engine does it: again if it fails, as when others change a node at the same time."""
    for _ in range(9):
        try:
            return harness.nodes.configure(changes)
        except BackendError:
            time.sleep(0.05)
    return harness.nodes.configure(changes)


def _own(harness: KubernetesNodesHarness) -> KubernetesConfig:
    """Labels and taints of the first node, without those that Kubernetes sets itself."""
    found = harness.nodes.settings()["i-00000000000000001"]
    return KubernetesConfig(
        labels={key: value for key, value in found.labels.items() if "example.com" in key},
        taints=tuple(one for one in found.taints if "example.com" in one.key),
    )
