"""The fake of ``MachineGroups`` keeps the contract, and so do the machines on this one."""

import contextlib
import time

import pytest

from holdfast.adapters.local.cluster_store import ClusterStore
from holdfast.adapters.local.layout import cluster_dir
from holdfast.adapters.local.lock import guarded
from holdfast.apps.api.local_clusters import ClusterSupervisors, local_groups
from holdfast.model.clusters import MachineState
from tests.ports.fake_machine_groups import FakeMachineGroups
from tests.ports.fakes import FakeClock
from tests.ports.machine_group_contract import CPU, GPU, MachineGroupsContract


class FakeHarness:
    def __init__(self):
        self.groups = FakeMachineGroups(FakeClock())
        self._fake = self.groups

    def settle(self):
        self._fake.settle()

    def reopened(self):
        return self._fake


class TestFakeMachineGroups(MachineGroupsContract):
    @pytest.fixture
    def harness(self):
        return FakeHarness()


class LocalHarness:
    def __init__(self, home):
        self._home = home
        self._keepers = ClusterSupervisors("")
        self.groups = local_groups(home, self._keepers)

    def settle(self):
        deadline = time.monotonic() + 60
        while any(not self._is_settled(one) for one in (GPU, CPU)):
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def _is_settled(self, group):
        machines = self.groups.machines(group.key)
        run = cluster_dir(self._home, group.cluster)
        count = 0
        with guarded(run):  # the supervisor moves the directory once the last group is gone
            if run.state.is_file():
                with contextlib.closing(ClusterStore(run.state)) as store:
                    wanted = store.groups().get(group.name)
                count = wanted.count if wanted is not None else 0
        return [one.state for one in machines] == [MachineState.RUNNING] * count

    def reopened(self):
        self.close()
        self._keepers = ClusterSupervisors("")
        return local_groups(self._home, self._keepers)

    def close(self):
        self._keepers.close()


class TestLocalMachineGroups(MachineGroupsContract):
    @pytest.fixture
    def harness(self, tmp_path):
        harness = LocalHarness(tmp_path)
        yield harness
        harness.close()
