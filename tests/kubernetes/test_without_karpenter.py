import pytest
from real_cluster import Cluster

from holdfast.adapters.providers.settings import KubernetesAccess, ProviderConfig, ProviderName
from holdfast.adapters.providers.table import build_provider
from holdfast.model.errors import ProviderError
from holdfast.testing.builders import a_node
from holdfast.testing.fakes import FakeClock


def test_a_cluster_without_karpenter_is_told(cluster: Cluster) -> None:
    access = KubernetesAccess(kubeconfig=cluster.plane.kubeconfig())
    config = ProviderConfig(replace=ProviderName.KARPENTER)

    with pytest.raises(ProviderError, match=r"cannot list nodeclaims\.karpenter\.sh: the cluster"):
        build_provider(config, FakeClock(), access).replace(a_node(), "t/1")
