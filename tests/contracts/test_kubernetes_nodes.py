"""The fake of ``KubernetesNodes`` keeps the contract."""

import pytest

from holdfast.model.node_settings import KubernetesConfig
from tests.ports.fake_kubernetes_nodes import FakeKubernetesNodes
from tests.ports.kubernetes_node_contract import FOREIGN, KubernetesNodesContract


class FakeHarness:
    def __init__(self):
        ids = [f"i-{number:017x}" for number in (1, 2)]
        self.nodes = FakeKubernetesNodes(
            nodes=dict(zip(ids, (FOREIGN, KubernetesConfig()), strict=True))
        )


class TestFakeKubernetesNodes(KubernetesNodesContract):
    @pytest.fixture
    def harness(self):
        return FakeHarness()
