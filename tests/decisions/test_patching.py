"""Patches begin at their time, and replace nodes only while no pod is on them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.decisions.cluster_members import ObservedCluster
from holdfast.decisions.cluster_policy import ClusterPolicy
from holdfast.decisions.clusters import decide
from holdfast.model.cluster_actions import Configure, Ensure, Remove, Renew, Scale
from holdfast.model.clusters import (
    DesiredCluster,
    DesiredGroup,
    GroupStage,
    MachineGroup,
    MachineState,
)
from holdfast.model.deployments import BatchSize, Deployment, Patching, PatchingStrategy
from holdfast.model.names import PENDING_PATCH
from holdfast.model.node_settings import KubernetesConfig
from holdfast.model.pod_demand import NodeLoad, NodeShape, PodDemand
from holdfast.model.sagemaker import ClusterStatus, UpdateStatus
from tests.ports.fake_machine_groups import FakeMachineGroups
from tests.ports.fakes import FakeClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = ClusterPolicy()
TICK = timedelta(microseconds=1)
HOUR = timedelta(hours=1)
OLD, NEW = "ami-1", "ami-2"


class World:
    """A group with a newer image, machines that boot at once, and pods."""

    def __init__(self, strategy: PatchingStrategy, count: int = 3, batch: int = 9) -> None:
        self.clock = FakeClock(NOW)
        self.owner = FakeMachineGroups(self.clock)
        self.busy: set[str] = set()
        self.taints = {}
        self.can_taint = True
        self.members = ()
        self.batch = batch
        patching = Patching(strategy=strategy, deployment=Deployment(batch=BatchSize(value=batch)))
        made_of = MachineGroup(cluster="lab", name="gpu", image=OLD)
        group = DesiredGroup(made_of=made_of, target=count, patching=patching)
        self.cluster = DesiredCluster(
            name="lab",
            uid="0123456789ab",
            created_at=NOW,
            since=NOW,
            status=ClusterStatus.CREATING,
            groups=(group,),
        )
        for _ in range(4):
            self.step(OLD)

    @property
    def group(self) -> DesiredGroup:
        return self.cluster.groups[0]

    def machines(self) -> list[str]:
        return [one.id for one in self.owner.members["lab/gpu"]]

    def step(self, newest: str = NEW) -> None:
        there = self.owner.machines("lab/gpu")
        nodes = [one.id for one in there if one.state is MachineState.RUNNING]
        seen = ObservedCluster(
            machines={"gpu": there},
            health={},
            settings={one: self.taints.get(one, KubernetesConfig()) for one in nodes},
            demand=PodDemand(
                nodes={
                    one: NodeLoad(
                        shape=NodeShape(), is_open=True, pods=("a/b",) if one in self.busy else ()
                    )
                    for one in nodes
                }
            ),
            images={"gpu": newest},
        )
        step = decide(self.cluster, self.members, seen, POLICY, self.clock.now())
        self.cluster, self.members = step.cluster, step.members
        for action in step.actions:
            self._act(action)
        self.owner.settle()

    def _act(self, action) -> None:
        match action:
            case Ensure(group):
                self.owner.ensure(group)
                made = replace(self.group, stage=GroupStage.MADE)
                self.cluster = replace(self.cluster, groups=(made,))
            case Scale(key, count):
                self.owner.scale(key, count)
            case Remove(key, ids):
                assert not self.busy & set(ids)
                self.owner.remove(key, ids)
            case Renew(key, ids):
                assert not self.busy & set(ids), "a node with a pod is replaced"
                assert all(self.is_cordoned(one) for one in ids)
                self.owner.remove(key, ids)
                leaving = [
                    one for one in self.owner.members[key] if one.state is MachineState.LEAVING
                ]
                assert len(leaving) <= self.batch
            case Configure(_, changes) if self.can_taint:
                for one in changes:
                    self.taints[one.machine] = KubernetesConfig(taints=one.taints)

    def is_cordoned(self, machine: str) -> bool:
        config = self.taints.get(machine, KubernetesConfig())
        return any(one.key == PENDING_PATCH for one in config.taints)

    def pass_time(self, span: timedelta, rounds: int = 8) -> None:
        for _ in range(rounds):
            self.clock.time += span / rounds
            self.step()


@pytest.mark.parametrize("strategy", PatchingStrategy)
def test_a_patch_begins_at_its_time(strategy) -> None:
    world = World(strategy)
    world.step()
    due = NOW + POLICY.patch_notice
    assert (world.group.patching.image, world.group.patching.next_at) == (NEW, due)
    world.clock.time = due - TICK
    world.step()
    assert world.group.update is None
    world.clock.time = due
    world.step()

    assert world.group.update.status is UpdateStatus.PENDING
    assert world.group.made_of.image == NEW
    assert world.cluster.status is ClusterStatus.SYSTEM_UPDATING


def test_an_image_that_is_withdrawn_is_not_installed() -> None:
    world = World(PatchingStrategy.WHEN_IDLE)
    world.step()
    world.step(OLD)
    assert (world.group.patching.image, world.group.patching.next_at) == ("", None)
    world.clock.time += 9 * POLICY.patch_notice
    world.step(OLD)
    assert world.group.update is None


@pytest.mark.parametrize(("late", "is_over"), [(-TICK, False), (timedelta(0), True)])
def test_a_patch_waits_for_its_window_only(late, is_over) -> None:
    world = World(PatchingStrategy.WHEN_IDLE)
    world.busy = set(world.machines())
    world.step()
    world.clock.time = NOW + POLICY.patch_notice
    for _ in range(3):
        world.step()
    world.clock.time += world.group.patching.idle_window + late
    world.step()

    assert (world.cluster.status is ClusterStatus.IN_SERVICE) is is_over
    assert set(world.machines()) == world.busy
    assert all(world.is_cordoned(one) is not is_over for one in world.busy)


@pytest.mark.parametrize("strategy", PatchingStrategy)
def test_no_node_is_replaced_before_it_is_closed_to_pods(strategy) -> None:
    world = World(strategy)
    world.can_taint = False
    before = world.machines()
    world.step()
    world.clock.time = NOW + POLICY.patch_notice
    world.pass_time(HOUR)
    assert world.group.update.is_active
    assert world.machines() == before
    world.can_taint = True
    world.pass_time(HOUR)

    assert not set(world.machines()) & set(before)


def test_machines_of_an_older_image_are_patched_also_if_their_group_names_none() -> None:
    world = World(PatchingStrategy.WHEN_IDLE)
    made_of = replace(world.group.made_of, image="", previous_image=OLD)
    world.cluster = replace(world.cluster, groups=(replace(world.group, made_of=made_of),))
    world.step()

    assert (world.group.made_of.image, world.group.made_of.previous_image) == (OLD, "")
    world.step()
    assert world.group.patching.image == NEW


@given(
    strategy=st.sampled_from(PatchingStrategy),
    count=st.integers(0, 4),
    batch=st.integers(1, 4),
    plan=st.lists(st.tuples(st.sets(st.integers(0, 3)), st.integers(1, 9)), max_size=10),
)
@settings(max_examples=examples(100))
def test_no_busy_node_is_replaced_and_every_idle_one_is(strategy, count, batch, plan) -> None:
    world = World(strategy, count, batch)
    old = set(world.machines())
    world.step()
    world.clock.time = NOW + POLICY.patch_notice
    for positions, hours in plan:
        there = world.machines()
        open_or_busy = {one for one in there if one in world.busy or not world.is_cordoned(one)}
        world.busy = {there[at] for at in positions if at < len(there)} & open_or_busy
        world.pass_time(hours * HOUR / 10)
    world.busy = set()
    world.pass_time(2 * HOUR, rounds=40)

    assert world.cluster.status is ClusterStatus.IN_SERVICE
    assert world.group.made_of.image == NEW
    assert not old & set(world.machines())
    assert len(world.machines()) == count
    assert not any(world.is_cordoned(one) for one in world.machines())
