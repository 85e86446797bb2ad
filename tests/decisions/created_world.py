"""A cluster that the API created, and the owner of its machines, in memory."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from holdfast.decisions.cluster_members import ObservedCluster
from holdfast.decisions.cluster_policy import ClusterPolicy
from holdfast.decisions.clusters import decide
from holdfast.model.cluster_actions import Delete, Ensure, Remove, Renew, Scale
from holdfast.model.clusters import (
    DesiredCluster,
    DesiredGroup,
    GroupStage,
    MachineGroup,
    MachineState,
)
from holdfast.model.sagemaker import ClusterStatus
from tests.ports.fake_machine_groups import FakeMachineGroups
from tests.ports.fakes import FakeClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = ClusterPolicy()
MINUTE = timedelta(minutes=1)
OVER = (ClusterStatus.IN_SERVICE, ClusterStatus.FAILED)


class World:
    """A cluster, the owner of its machines, and a loop that may die between any two calls."""

    def __init__(self, targets: dict[str, int], *, is_continuous: bool) -> None:
        self.clock = FakeClock(NOW)
        self.owner = FakeMachineGroups(self.clock)
        groups = tuple(
            DesiredGroup(made_of=MachineGroup(cluster="lab", name=name), target=count)
            for name, count in targets.items()
        )
        self.cluster: DesiredCluster | None = DesiredCluster(
            name="lab",
            uid="0123456789ab",
            created_at=NOW,
            status=ClusterStatus.CREATING,
            since=NOW,
            groups=groups,
            is_continuous=is_continuous,
        )
        self.members = ()
        self.reported = []
        self.alarms = frozenset()

    def seen(self) -> ObservedCluster:
        machines = {one.name: self.owner.machines(one.made_of.key) for one in self.cluster.groups}
        return ObservedCluster(machines=machines, health={}, alarms=self.alarms)

    def step(self, *, acts: int = 99) -> None:
        """One round of the loop, killed after so many calls."""
        if self.cluster is None:
            return
        seen = self.seen()
        step = decide(self.cluster, self.members, seen, POLICY, self.clock.now())
        assert step == decide(self.cluster, self.members, seen, POLICY, self.clock.now())
        self._keeps_what_works(step, seen)
        self.cluster, self.members = step.cluster, step.members
        self.reported += step.cluster_events
        for action in step.actions[:acts]:
            self._act(action)

    def _keeps_what_works(self, step, seen) -> None:
        """No machine that runs is taken away beyond what is wanted."""
        groups = {one.made_of.key: one for one in step.cluster.groups} if step.cluster else {}
        for action in step.actions:
            if isinstance(action, Remove):
                group = groups[action.group]
                staying = [
                    one
                    for one in seen.machines[group.name]
                    if one.state is not MachineState.LEAVING and one.id not in group.leaving
                ]
                left = [one for one in staying if one.id not in action.ids]
                running = [one for one in left if one.state is MachineState.RUNNING]
                gone = [one for one in staying if one.id in action.ids]
                if any(one.state is MachineState.RUNNING for one in gone):
                    assert len(running) >= group.target

    def _act(self, action) -> None:
        match action:
            case Ensure(group):
                self.owner.ensure(group)
                self._note(group.key, GroupStage.MADE)
            case Scale(key, count):
                self.owner.scale(key, count)
            case Remove(key, ids):
                self.owner.remove(key, ids)
            case Delete(key):
                self.owner.delete(key)
                self._note(key, GroupStage.DELETED)
            case Renew(key, ids):
                self.owner.remove(key, ids)

    def _note(self, key, stage) -> None:
        self.cluster = replace(
            self.cluster,
            groups=tuple(
                replace(one, stage=stage) if one.made_of.key == key else one
                for one in self.cluster.groups
            ),
        )

    def change(self, **changes) -> None:
        self.cluster = replace(self.cluster, since=self.clock.now(), **changes)

    def settle(self) -> None:
        for _ in range(80):
            before = (self.cluster, self.members)
            self.step()
            self.owner.settle()
            self.clock.time += MINUTE
            is_over = self.cluster is None or self.cluster.status in OVER
            if is_over and (self.cluster, self.members) == before and self._is_all_seen():
                return

    def _is_all_seen(self) -> bool:
        known = {(one.machine.id, one.machine.state) for one in self.members if one.machine}
        there = [one for members in self.owner.members.values() for one in members]
        return known == {(one.id, one.state) for one in there}

    def counts(self) -> dict[str, int]:
        return {key: len(members) for key, members in self.owner.members.items() if members}
