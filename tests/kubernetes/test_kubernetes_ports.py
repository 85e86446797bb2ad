"""The adapters keep the contracts of their ports, on the real API server."""

import pytest
from controlled import Controlled, controlled, installed

from holdfast.adapters.kubernetes.client.values import compact_json
from tests.ports.contracts import ClusterContract, DurableClusterContract, IncidentContract

__all__ = ["installed"]


class Harness:
    def __init__(self, one: Controlled) -> None:
        self._one = one
        self._others: list[Controlled] = []
        self.cluster = one.cluster
        self.node = "node-1"
        one.join(self.node, provider_id="aws:///zone/i-0")
        one.seen(self.node)

    def put_request(self, request) -> None:
        self._one.annotate(self.node, request=compact_json(request))
        self._one.seen(self.node, lambda view: view.request == request)

    def reopened(self):
        other = Controlled(self._one.real)
        self._others.append(other)
        other.start()
        return other.cluster

    def close(self) -> None:
        for other in self._others:
            other.stop()


@pytest.fixture
def one(installed, cluster):
    with controlled(cluster) as one:
        yield one


@pytest.fixture
def a_cluster_of_one(one):
    harness = Harness(one)
    yield harness
    harness.close()


class TestKubernetesCluster(ClusterContract):
    @pytest.fixture
    def harness(self, a_cluster_of_one):
        return a_cluster_of_one


class TestKubernetesMemory(DurableClusterContract):
    @pytest.fixture
    def harness(self, a_cluster_of_one):
        return a_cluster_of_one


class TestKubernetesIncidents(IncidentContract):
    @pytest.fixture
    def harness(self, one):
        return one.incidents
