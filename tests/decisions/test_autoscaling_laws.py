"""Laws of groups that scale themselves, with pods and machines that come and go."""

from datetime import timedelta

from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scaled_world import GPUS, POLICY, ScaledWorld

LONG = 3 * POLICY.scale_down_after
bounds = st.tuples(st.integers(0, 3), st.integers(0, 4)).map(lambda it: (it[0], sum(it)))
pods = st.lists(st.integers(1, GPUS), max_size=10)
steps = st.lists(
    st.tuples(
        st.sampled_from(["start", "end", "break", "repair", "wait"]),
        st.integers(0, GPUS),
        st.sampled_from([0.25, 1, 9.75, 10, 16]),
        st.booleans(),
    ),
    max_size=14,
)


def disturb(world: ScaledWorld, plan) -> None:
    for number, (what, size, minutes, boots) in enumerate(plan):
        there = sorted(world.nodes())
        if what == "start":
            world.pods[f"pod-{number}"] = size
        elif what == "end" and world.pods:
            world.end(sorted(world.pods)[size % len(world.pods)])
        elif what == "break" and there:
            world.broken.add(there[size % len(there)])
        elif what == "repair":
            world.broken.clear()
        world.pass_time(timedelta(minutes=minutes), boots=boots)


@given(plan=steps, first=bounds, second=bounds)
@settings(max_examples=examples(60))
def test_sizes_stay_in_their_bounds_and_no_busy_node_goes(plan, first, second) -> None:
    disturb(ScaledWorld({"gpu": first, "more": second}), plan)


@given(plan=steps, wanted=pods, within=bounds)
@settings(max_examples=examples(60))
def test_a_pod_runs_if_the_bounds_allow(plan, wanted, within) -> None:
    world = ScaledWorld({"gpu": within})
    disturb(world, plan)
    world.broken.clear()
    for name in sorted(world.pods):
        world.end(name)
    world.pass_time(LONG)
    world.pods = {f"pod-{number}": gpus for number, gpus in enumerate(wanted)}
    world.pass_time(LONG)

    waiting = set(world.pods) - set(world.placed)
    assert not waiting or world.running() == within[1]
    assert len(world.placed) >= min(len(wanted), within[1])


@given(wanted=pods, within=bounds)
@settings(max_examples=examples(50))
def test_a_group_keeps_the_size_that_its_pods_need(wanted, within) -> None:
    world = ScaledWorld({"gpu": within})
    world.pods = {f"pod-{number}": gpus for number, gpus in enumerate(wanted)}
    world.pass_time(LONG)
    size, events = world.cluster.groups[0].target, len(world.events)
    world.pass_time(2 * LONG)

    assert {one["gpu"] for one in world.sizes[-len(world.sizes) // 2 :]} == {size}
    assert len(world.events) == events
    for name in list(world.pods):
        world.end(name)
    world.pass_time(LONG)
    assert world.running() == world.cluster.groups[0].target == within[0]
    assert not any(world.taints[one] for one in world.nodes() if one in world.taints)


@given(plan=steps, first=bounds, second=bounds)
@settings(max_examples=examples(50))
def test_idle_groups_return_to_their_minimum(plan, first, second) -> None:
    world = ScaledWorld({"gpu": first, "more": second})
    disturb(world, plan)
    world.broken.clear()
    for name in sorted(world.pods):
        world.end(name)
    world.pass_time(2 * LONG)

    assert (world.running(), world.running("more")) == (first[0], second[0])
