"""Queues of teams from their quotas and the nodes of the cluster."""

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.decisions.team_queues import idle_flavors, team_queue
from holdfast.model.team_queues import (
    CPU,
    MEMORY,
    ComputeQuota,
    InstanceAmount,
    NodeType,
    SchedulerConfig,
)

GPU, EFA, MIG = "nvidia.com/gpu", "vpc.amazonaws.com/efa", "nvidia.com/mig-1g.5gb"
GIB = 1 << 30
P5 = NodeType(
    label="p5.48xlarge",
    nodes=4,
    resources={CPU: 192_000, MEMORY: 2048 * GIB, GPU: 8, EFA: 32},
)
M5 = NodeType(label="m5.2xlarge", nodes=2, resources={CPU: 8_000, MEMORY: 32 * GIB})
A100 = NodeType(label="p4d", nodes=1, resources={CPU: 96_000, MEMORY: 64 * GIB, MIG: 56})
TYPES = {"ml.p5.48xlarge": P5, "ml.m5.2xlarge": M5, "ml.p4d.24xlarge": A100}


def p5(**amount) -> InstanceAmount:
    return InstanceAmount(instance_type="ml.p5.48xlarge", **amount)


def m5(**amount) -> InstanceAmount:
    return InstanceAmount(instance_type="ml.m5.2xlarge", **amount)


def queue(*amounts: InstanceAmount, scheduler: SchedulerConfig | None = None, **more):
    quota = ComputeQuota(team="red", amounts=amounts, **more)
    return team_queue(quota, TYPES, scheduler, "cohort")


def nominal(*amounts: InstanceAmount):
    [flavor] = queue(*amounts).flavors
    return flavor.nominal


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (p5(instances=2), {CPU: 384_000, MEMORY: 4096 * GIB, GPU: 16, EFA: 64}),
        (p5(instances=0), {CPU: 0, MEMORY: 0, GPU: 0, EFA: 0}),
        (p5(accelerators=3), {CPU: 72_000, MEMORY: 768 * GIB, GPU: 3, EFA: 12}),
        (p5(accelerators=3, cpus=1.5), {CPU: 1_500, MEMORY: 768 * GIB, GPU: 3, EFA: 12}),
        (
            p5(accelerators=16, cpus=2, memory_gib=0.5),
            {CPU: 2_000, MEMORY: GIB // 2, GPU: 16, EFA: 64},
        ),
        (p5(cpus=48), {CPU: 48_000, MEMORY: 512 * GIB, GPU: 0, EFA: 0}),
        (p5(memory_gib=1024), {CPU: 96_000, MEMORY: 1024 * GIB, GPU: 0, EFA: 0}),
        (m5(cpus=4), {CPU: 4_000, MEMORY: 16 * GIB}),
        (m5(accelerators=0, cpus=4), {CPU: 4_000, MEMORY: 16 * GIB}),
        (
            InstanceAmount(instance_type="ml.p4d.24xlarge", partition="mig-1g.5gb", partitions=7),
            {CPU: 12_000, MEMORY: 8 * GIB, MIG: 7},
        ),
    ],
)
def test_resources_follow_in_proportion_to_a_node(amount, expected) -> None:
    assert nominal(amount) == expected


@pytest.mark.parametrize(
    ("amount", "why"),
    [
        (InstanceAmount(instance_type="ml.g5.xlarge", instances=1), "has no such nodes; its inst"),
        (m5(accelerators=1), "ml.m5.2xlarge: its nodes have no accelerators"),
        (p5(partition="mig-1g.5gb", partitions=1), "its nodes have no nvidia.com/mig-1g.5gb"),
    ],
)
def test_compute_that_no_node_has_is_an_error(amount, why) -> None:
    with pytest.raises(ValueError, match=why):
        queue(amount)


def test_all_flavors_have_the_same_resources() -> None:
    first, second = queue(p5(instances=1), m5(instances=1)).flavors

    assert first.nominal.keys() == second.nominal.keys()
    assert (second.nominal[GPU], second.nominal[CPU]) == (0, 8_000)


def test_borrowing_is_a_percentage_or_an_absolute_limit_or_none() -> None:
    whole = p5(instances=1)
    [half] = queue(whole, borrow_percent=50).flavors
    [none] = queue(whole).flavors
    [alone] = queue(whole, lends=False, borrow_percent=50).flavors
    both = queue(whole, borrow_percent=50, borrow_limits=(p5(accelerators=2), m5(instances=1)))

    assert (half.borrowing[GPU], half.borrowing[CPU]) == (4, 96_000)
    assert set(none.borrowing.values()) == {0}
    assert alone.borrowing is None
    assert (queue(whole).cohort, queue(whole, lends=False).cohort) == ("cohort", "")
    assert both.flavors[0].borrowing[GPU] == 2
    assert (both.flavors[1].nominal[CPU], both.flavors[1].borrowing[CPU]) == (0, 8_000)


@pytest.mark.parametrize(
    ("scheduler", "weight"),
    [(None, None), (SchedulerConfig(), 7), (SchedulerConfig(fair_share=False), None)],
)
def test_weights_count_with_fair_share(scheduler, weight) -> None:
    assert queue(p5(instances=1), weight=7, scheduler=scheduler).weight == weight


@given(
    counts=st.lists(st.integers(0, 3), max_size=4),
    shared=st.lists(st.booleans(), min_size=4, max_size=4),
)
@settings(max_examples=examples(100))
def test_idle_compute_and_quotas_are_the_cluster_or_more(counts, shared) -> None:
    queues = [
        queue(p5(instances=count), lends=lends)
        for count, lends in zip(counts, shared, strict=False)
    ]
    idle = idle_flavors(TYPES, queues)
    total = sum(counts)

    assert bool(idle) == any(one.cohort for one in queues)
    for one in idle:
        assert one.borrowing is None
        assert one.nominal == {
            name: max(0, (4 - total)) * amount for name, amount in P5.resources.items()
        }


def test_nodes_that_have_left_are_no_idle_compute() -> None:
    assert idle_flavors({}, [queue(p5(instances=1))]) == ()
