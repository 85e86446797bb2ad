"""The fakes, the simulated and the local adapters keep the same contracts."""

from datetime import timedelta

import pytest

from holdfast.adapters.local.checks import LocalChecks
from holdfast.adapters.local.cluster import LocalCluster
from holdfast.adapters.local.layout import RunDir
from holdfast.adapters.local.machines import Delays, LocalMachines
from holdfast.adapters.local.store import LocalStore
from holdfast.adapters.sim.scenario import Scenario
from holdfast.adapters.sim.simulation import Simulation, platform
from holdfast.apps.clock import SystemClock
from holdfast.testing.builders import a_node
from holdfast.testing.contracts import (
    ClusterContract,
    IncidentContract,
    ProviderContract,
)
from holdfast.testing.fakes import Calls, FakeClock, FakeCluster, FakeIncidents


class FakeHarness:
    def __init__(self):
        node = a_node()
        self.node = node.name
        self.cluster = FakeCluster([node], Calls(), FakeClock())

    def ask(self, request):
        self.cluster.change(self.node, request=request)


class SimHarness:
    def __init__(self):
        simulation = Simulation(Scenario(nodes=1))
        ports = platform(simulation.world, simulation.line)
        self.cluster, self.provider, self.incidents = ports.cluster, ports.provider, ports.incidents
        self._world = simulation.world
        (self.node,) = self._world.nodes
        self.settle()

    def ask(self, request):
        self._world.nodes[self.node].request = request

    def settle(self):
        self._world.advance(self._world.now + timedelta(hours=1))


class LocalHarness:
    def __init__(self, path):
        run = RunDir(path)
        run.create()
        self.store = LocalStore(run.state, create=True)
        delays = Delays(boot=timedelta(0), replace=timedelta(0))
        self.provider = LocalMachines(
            run, self.store, SystemClock(), delays, lambda *_: ["sleep", "600"]
        )
        checks = LocalChecks(self.provider, SystemClock())
        self.cluster = LocalCluster(self.provider, self.store, checks, SystemClock())
        self.node = self.provider.add().name
        self.settle()

    def ask(self, request):
        self.store.ask(self.node, request)

    def settle(self):
        self.provider.boot_due()

    def close(self):
        self.provider.shut_down()
        self.store.close()


@pytest.fixture
def local(tmp_path):
    one = LocalHarness(tmp_path)
    yield one
    one.close()


class TestFakeCluster(ClusterContract):
    @pytest.fixture
    def harness(self):
        return FakeHarness()


class TestFakeIncidents(IncidentContract):
    @pytest.fixture
    def harness(self):
        return FakeIncidents(Calls())


class TestSimCluster(ClusterContract):
    @pytest.fixture
    def harness(self):
        return SimHarness()


class TestSimProvider(ProviderContract):
    @pytest.fixture
    def harness(self):
        return SimHarness()


class TestSimIncidents(IncidentContract):
    @pytest.fixture
    def harness(self):
        return SimHarness().incidents


class TestLocalCluster(ClusterContract):
    @pytest.fixture
    def harness(self, local):
        return local


class TestLocalProvider(ProviderContract):
    @pytest.fixture
    def harness(self, local):
        return local


class TestLocalIncidents(IncidentContract):
    @pytest.fixture
    def harness(self, local):
        return local.store
