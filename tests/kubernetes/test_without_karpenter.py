import pytest
from provisioned import clusters
from real_cluster import Cluster

from holdfast.adapters.providers.settings import ProviderConfig, ProviderName
from holdfast.adapters.providers.table import build_provider
from holdfast.model.errors import ProviderError
from tests.ports.builders import a_node
from tests.ports.fakes import FakeClock


def test_a_cluster_without_karpenter_is_reported(cluster: Cluster) -> None:
    config = ProviderConfig(replace=ProviderName.KARPENTER)

    with clusters(cluster.plane.kubeconfig()) as open_cluster:
        provider = build_provider(config, FakeClock(), open_cluster)
        with pytest.raises(ProviderError, match=r"cannot list nodeclaims\.karpenter\.sh: the clus"):
            provider.replace(a_node(), "t/1")
