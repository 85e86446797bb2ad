"""Laws of created clusters: whatever fails and whoever dies, what is wanted comes about."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

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
    SoftwareUpdate,
)
from holdfast.model.sagemaker import ClusterStatus, InstanceStatus, UpdateStatus
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

    def seen(self) -> ObservedCluster:
        machines = {one.name: self.owner.machines(one.made_of.key) for one in self.cluster.groups}
        return ObservedCluster(machines=machines, health={})

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
            case Renew(key, machine, _):
                self.owner.remove(key, [machine])

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


targets = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(0, 4), min_size=1)
deaths = st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=12)


def disturbed(world: World, remediation) -> None:
    """Rounds that are cut off, while machines boot or do not."""
    for acts, boots in remediation:
        world.step(acts=acts)
        if boots:
            world.owner.settle()
        world.clock.time += MINUTE


@given(targets=targets, remediation=deaths, is_continuous=st.booleans())
@settings(max_examples=examples(100))
def test_as_many_nodes_run_as_were_wanted_wherever_the_loop_was_killed(
    targets, remediation, is_continuous
) -> None:
    world = World(targets, is_continuous=is_continuous)
    disturbed(world, remediation)
    world.settle()

    assert world.cluster.status is ClusterStatus.IN_SERVICE
    assert world.counts() == {f"lab/{name}": count for name, count in targets.items() if count}
    assert all(one.status is InstanceStatus.RUNNING for one in world.members)
    assert len({one.id for one in world.reported}) == len(world.reported)


@given(targets=targets, remediation=deaths, broken=st.sets(st.sampled_from(["a", "b", "c"])))
@settings(max_examples=examples(80))
def test_a_creation_comes_about_as_a_whole_or_leaves_no_machine(
    targets, remediation, broken
) -> None:
    world = World(targets, is_continuous=False)
    world.owner.broken = {(f"lab/{name}", 0) for name in broken}
    disturbed(world, remediation)
    world.settle()

    fails = any(targets.get(name) for name in broken)
    wanted = ClusterStatus.FAILED if fails else ClusterStatus.IN_SERVICE
    assert world.cluster.status is wanted
    count = {} if fails else {f"lab/{name}": n for name, n in targets.items() if n}
    assert world.counts() == count
    assert bool(world.cluster.failure) == fails


@given(targets=targets, before=deaths, after=deaths)
@settings(max_examples=examples(80))
def test_a_deletion_leaves_nothing_whenever_it_comes(targets, before, after) -> None:
    world = World(targets, is_continuous=False)
    disturbed(world, before)
    world.change(status=ClusterStatus.DELETING)
    disturbed(world, after)
    world.settle()

    assert (world.cluster, world.counts(), world.owner.groups) == (None, {}, {})


@given(first=targets, second=st.integers(0, 5), remediation=deaths, fails=st.booleans())
@settings(max_examples=examples(80))
def test_a_change_comes_about_or_all_is_as_before(first, second, remediation, fails) -> None:
    world = World(first, is_continuous=False)
    world.settle()
    groups = world.cluster.groups
    if fails:
        world.owner.broken = {(one.made_of.key, 0) for one in groups}
    grown = (replace(groups[0], target=second), *groups[1:])
    world.change(status=ClusterStatus.UPDATING, groups=grown)
    disturbed(world, remediation)
    world.settle()

    is_grown = not fails or second <= groups[0].target
    target = second if is_grown else groups[0].target
    assert world.cluster.status is ClusterStatus.IN_SERVICE
    assert world.counts().get(groups[0].made_of.key, 0) == target
    assert all(one.status is InstanceStatus.RUNNING for one in world.members)


@given(
    count=st.integers(0, 5),
    batch=st.integers(1, 5),
    fails=st.booleans(),
    bake=st.integers(0, 3),
    remediation=deaths,
)
@settings(max_examples=examples(100))
def test_new_software_reaches_all_or_none_and_a_batch_is_never_exceeded(
    count, batch, fails, bake, remediation
) -> None:
    world = World({"a": count}, is_continuous=False)
    world.settle()
    [group] = world.cluster.groups
    update = SoftwareUpdate(
        status=UpdateStatus.PENDING,
        began_at=world.clock.now(),
        before=group.made_of,
        batch=batch,
        rollback_batch=batch,
        bake=bake * MINUTE,
    )
    old = {one.id for one in world.owner.members["lab/a"]}
    made_of = replace(group.made_of, image="new", revision=1)
    if fails:
        world.owner.broken = {("lab/a", 1)}
    new = replace(group, made_of=made_of, stage=GroupStage.NEW, update=update)
    world.change(status=ClusterStatus.SYSTEM_UPDATING, groups=(new,))
    for acts, boots in [*remediation, *[(99, True)] * 80]:
        if world.cluster.status in OVER:
            break
        world.step(acts=acts)
        leaving = [one for one in world.owner.members["lab/a"] if one.state is MachineState.LEAVING]
        assert len(leaving) <= batch
        if boots:
            world.owner.settle()
        world.clock.time += MINUTE

    [group] = world.cluster.groups
    there = {one.id for one in world.owner.members["lab/a"]}
    assert (world.cluster.status, len(there)) == (ClusterStatus.IN_SERVICE, count)
    if fails and count:
        assert group.update.status is UpdateStatus.ROLLBACK_COMPLETE
        assert group.made_of.image == ""
        assert len(there & old) >= count - batch
    else:
        assert group.update.status is UpdateStatus.SUCCEEDED
        assert (group.made_of.image, there & old) == ("new", set())
