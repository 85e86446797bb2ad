"""The fakes, the simulated and the local adapters keep the same contracts."""

import time
from datetime import timedelta

import pytest

from holdfast.adapters.local.checks import LocalChecks
from holdfast.adapters.local.cluster import LocalCluster
from holdfast.adapters.local.job_launch import Launch
from holdfast.adapters.local.jobs import LocalJobs
from holdfast.adapters.local.layout import RunDir
from holdfast.adapters.local.machines import Delays, LocalMachines
from holdfast.adapters.local.store import LocalStore, Submission
from holdfast.adapters.sim.scenario import Scenario, Training
from holdfast.adapters.sim.simulation import Simulation, platform
from holdfast.apps.clock import SystemClock
from holdfast.model.jobs import JobPhase, JobRecord, JobSpec
from holdfast.testing import ProviderContract
from tests.ports.builders import a_node
from tests.ports.contracts import (
    ClusterContract,
    DurableClusterContract,
    IncidentContract,
    JobContract,
)
from tests.ports.fakes import Calls, FakeClock, FakeCluster, FakeEvents, FakeIncidents


class FakeHarness:
    def __init__(self):
        node = a_node()
        self.node = node.name
        self.cluster = FakeCluster([node], Calls(), FakeClock())

    def put_request(self, request):
        self.cluster.change(self.node, request=request)


class SimHarness:
    def __init__(self):
        self._simulation = Simulation(Scenario(nodes=1))
        self._world = self._simulation.world
        ports = platform(self._world, self._simulation.gate)
        self.cluster, self.provider, self.incidents = ports.cluster, ports.provider, ports.incidents
        (self.node,) = self._world.nodes
        self.settle()

    def put_request(self, request):
        self._world.nodes[self.node].request = request

    def nodes(self):
        return self.cluster.snapshot().nodes

    def settle(self):
        self._world.advance(self._world.now + timedelta(hours=1))

    def reopened(self):
        return platform(self._world, self._simulation.gate).cluster


class SimJobHarness:
    def __init__(self):
        training = Training(
            spec=JobSpec(name="job", nodes=2), steps=10**6, step_time=timedelta(seconds=1)
        )
        simulation = Simulation(Scenario(nodes=2, trainings=(training,)))
        self._world = simulation.world
        self._world.advance(self._world.now + timedelta(minutes=1))
        self.jobs = platform(self._world, simulation.gate).jobs
        self.job, self.nodes = "job", tuple(self._world.nodes)

    def settle(self, is_done):
        self._world.advance(self._world.now + timedelta(minutes=1))
        assert is_done()


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
        self.cluster = LocalCluster(self.provider, self.store, checks, SystemClock(), FakeEvents())
        self.node = self.provider.add().name
        self.settle()
        self._run = run
        self._stores = [self.store]

    def reopened(self):
        checks = LocalChecks(self.provider, SystemClock())
        self._stores.append(LocalStore(self._run.state))
        return LocalCluster(self.provider, self._stores[-1], checks, SystemClock(), FakeEvents())

    def put_request(self, request):
        self.store.put_request(self.node, request)

    def nodes(self):
        return self.cluster.snapshot().nodes

    def settle(self):
        self.provider.boot_due()

    def close(self):
        self.provider.shut_down()
        for store in self._stores:
            store.close()


class LocalJobHarness:
    def __init__(self, path):
        run = RunDir(path)
        run.create()
        self._store = LocalStore(run.state, create=True)
        delays = Delays(boot=timedelta(0), replace=timedelta(0))
        clock = SystemClock()
        self._machines = LocalMachines(run, self._store, clock, delays, lambda *_: ["sleep", "600"])
        self.job, self.nodes = "job", tuple(sorted(self._machines.add().name for _ in range(2)))
        self._machines.boot_due()
        launch = Launch(argv=["sleep", "600"], nproc_per_node=1, checkpoint_dir=path)
        self.jobs = LocalJobs(run, self._machines, self._store, lambda _: launch, clock)
        now = clock.now()
        self._store.add_job(
            JobSpec(name="job", nodes=2),
            JobRecord(phase=JobPhase.WAITING, phase_since=now),
            Submission(id="job", name="job", command=(), pid=1, started_at=now, checkpoint_dir=""),
        )

    def settle(self, is_done):
        end = time.monotonic() + 30
        while not is_done():
            assert time.monotonic() < end
            time.sleep(0.01)
            for machine in self._machines.all():
                machine.exchange(SystemClock().now())

    def close(self):
        self._machines.shut_down()
        self._store.close()


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


class TestSimMemory(DurableClusterContract):
    @pytest.fixture
    def harness(self):
        return SimHarness()


class TestSimJobs(JobContract):
    @pytest.fixture
    def harness(self):
        return SimJobHarness()


class TestLocalMemory(DurableClusterContract):
    @pytest.fixture
    def harness(self, local):
        return local


class TestLocalJobs(JobContract):
    @pytest.fixture
    def harness(self, tmp_path):
        one = LocalJobHarness(tmp_path)
        yield one
        one.close()


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
