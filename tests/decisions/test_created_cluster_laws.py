"""Laws of created clusters: whatever fails and whoever dies, what is wanted comes about."""

from dataclasses import replace

from created_world import MINUTE, OVER, World
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.clusters import GroupStage, MachineState, SoftwareUpdate
from holdfast.model.sagemaker import ClusterStatus, InstanceStatus, UpdateStatus

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
