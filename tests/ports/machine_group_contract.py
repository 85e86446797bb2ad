"""Contract of ``MachineGroups``: a test class to inherit from, as in ``contracts``."""

from typing import Final, Protocol

from holdfast.model.clusters import GroupMachine, MachineGroup, MachineState
from holdfast.ports.machine_groups import MachineGroups

GPU: Final = MachineGroup(cluster="lab", name="gpu", instance_type="ml.g5.xlarge")
CPU: Final = MachineGroup(cluster="lab", name="cpu", instance_type="ml.c5.xlarge")


class MachineGroupsHarness(Protocol):
    """A provider without machines."""

    groups: MachineGroups

    def settle(self) -> None:
        """Complete all pending changes."""
        ...

    def reopened(self) -> MachineGroups:
        """Return the same provider, as the next process uses it."""
        ...


class MachineGroupsContract:
    """Groups have their desired sizes."""

    def test_a_new_group_has_no_machines(self, harness: MachineGroupsHarness) -> None:
        harness.groups.ensure(GPU)

        assert _staying(harness, GPU) == []
        assert list(harness.groups.machines("lab/unknown")) == []

    def test_as_many_machines_come_as_requested_however_often(
        self, harness: MachineGroupsHarness
    ) -> None:
        harness.groups.ensure(GPU)
        for _ in range(2):
            harness.groups.scale(GPU.key, 2)
        harness.groups.ensure(GPU)
        harness.settle()

        machines = _staying(harness, GPU)
        assert [one.state for one in machines] == [MachineState.RUNNING] * 2
        assert len({one.id for one in machines}) == len({one.name for one in machines}) == 2

    def test_machines_stay_what_they_are_when_more_come(
        self, harness: MachineGroupsHarness
    ) -> None:
        first = _grown(harness, 1)
        harness.groups.scale(GPU.key, 2)
        harness.settle()

        assert set(first) < set(_staying(harness, GPU))

    def test_a_smaller_group_keeps_some_of_its_machines(
        self, harness: MachineGroupsHarness
    ) -> None:
        before = _grown(harness, 2)
        harness.groups.scale(GPU.key, 1)
        harness.settle()

        after = _staying(harness, GPU)
        assert len(after) == 1
        assert set(after) < set(before)

    def test_the_machines_that_are_named_go_and_the_count_falls_with_them(
        self, harness: MachineGroupsHarness
    ) -> None:
        [goes, stays] = _grown(harness, 2)
        for _ in range(2):
            harness.groups.remove(GPU.key, [goes.id, "i-00000000000000000"])
        harness.settle()

        assert _staying(harness, GPU) == [stays]

    def test_a_deleted_group_has_no_machines_and_others_keep_them(
        self, harness: MachineGroupsHarness
    ) -> None:
        harness.groups.ensure(CPU)
        harness.groups.scale(CPU.key, 1)
        _grown(harness, 1)
        for _ in range(2):
            harness.groups.delete(GPU.key)
            harness.settle()

        assert list(harness.groups.machines(GPU.key)) == []
        assert len(_staying(harness, CPU)) == 1

    def test_a_group_may_come_again(self, harness: MachineGroupsHarness) -> None:
        [before] = _grown(harness, 1)
        harness.groups.delete(GPU.key)
        harness.settle()
        [after] = _grown(harness, 1)

        assert after.id != before.id

    def test_the_next_process_finds_the_same_machines(self, harness: MachineGroupsHarness) -> None:
        before = _grown(harness, 1)
        harness.groups = harness.reopened()
        harness.groups.scale(GPU.key, 1)
        harness.settle()

        assert [one.id for one in _staying(harness, GPU)] == [one.id for one in before]


def _grown(harness: MachineGroupsHarness, count: int) -> list[GroupMachine]:
    harness.groups.ensure(GPU)
    harness.groups.scale(GPU.key, count)
    harness.settle()
    machines = _staying(harness, GPU)
    assert len(machines) == count
    return machines


def _staying(harness: MachineGroupsHarness, group: MachineGroup) -> list[GroupMachine]:
    found = harness.groups.machines(group.key)
    return [one for one in found if one.state is not MachineState.LEAVING]
