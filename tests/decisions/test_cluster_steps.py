"""Single steps of created clusters, at the edges of time and number."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.decisions.cluster_members import ClusterEventCollector, ObservedCluster
from holdfast.decisions.cluster_policy import ClusterPolicy
from holdfast.decisions.clusters import decide
from holdfast.decisions.software_update import advanced
from holdfast.model.cluster_actions import Remove, Scale
from holdfast.model.clusters import (
    DesiredCluster,
    DesiredGroup,
    GroupMachine,
    GroupStage,
    MachineGroup,
    MachineState,
    Member,
    SoftwareUpdate,
)
from holdfast.model.sagemaker import ClusterStatus, InstanceStatus, UpdateStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TICK = timedelta(microseconds=1)
POLICY = ClusterPolicy()
MADE_OF = MachineGroup(cluster="lab", name="gpu", revision=1)


def a_machine(number: int, at: datetime = NOW, state=MachineState.RUNNING) -> GroupMachine:
    return GroupMachine(id=f"i-{number:017x}", name=f"n{number}", state=state, launched_at=at)


def a_member(machine: GroupMachine | None, status=InstanceStatus.RUNNING, name: str = "") -> Member:
    return Member(
        logical_id=name or machine.id,
        group="gpu",
        added_at=NOW,
        status_since=NOW,
        machine=machine,
        status=status,
    )


def a_cluster(target: int, status=ClusterStatus.IN_SERVICE, **group) -> DesiredCluster:
    wanted = DesiredGroup(made_of=MADE_OF, target=target, stage=GroupStage.MADE, **group)
    return DesiredCluster(
        name="lab", uid="0123456789ab", created_at=NOW, since=NOW, status=status, groups=(wanted,)
    )


def stepped(cluster, machines, now=NOW, members=()):
    seen = ObservedCluster(machines={"gpu": tuple(machines)}, health={})
    return decide(cluster, members, seen, POLICY, now)


def test_of_equal_machines_the_youngest_goes() -> None:
    machines = [a_machine(1, NOW), a_machine(2, NOW + 2 * TICK), a_machine(3, NOW + TICK)]

    assert stepped(a_cluster(2), machines).actions == (Remove("lab/gpu", (machines[1].id,)),)


def test_a_node_that_no_controller_reports_on_runs_and_says_so() -> None:
    (member,) = stepped(a_cluster(1), [a_machine(1)]).members

    assert member.status is InstanceStatus.RUNNING
    assert member.message == "No controller reports on the health of this node."


@pytest.mark.parametrize("late", [-TICK, timedelta(0)])
def test_nodes_may_be_missing_for_as_long_as_is_allowed(late) -> None:
    step = stepped(a_cluster(1, ClusterStatus.CREATING), [], NOW + POLICY.provision_timeout + late)

    is_over = step.cluster.status is ClusterStatus.ROLLING_BACK
    assert is_over == (late == timedelta(0))
    assert step.actions == (() if is_over else (Scale("lab/gpu", 1),))


def test_a_change_is_over_only_when_what_is_too_much_has_gone() -> None:
    cluster = a_cluster(1, ClusterStatus.UPDATING)
    leaving = a_machine(2, state=MachineState.LEAVING)

    both = stepped(cluster, [a_machine(1), leaving])
    one = stepped(cluster, [a_machine(1)])

    assert both.cluster.status is ClusterStatus.UPDATING
    assert one.cluster.status is ClusterStatus.IN_SERVICE


def test_places_beyond_the_target_are_given_up_and_leaving_machines_take_none() -> None:
    places = [a_member(None, InstanceStatus.PENDING, name) for name in ("p1", "p2", "p3")]
    machines = [a_machine(1), a_machine(2, state=MachineState.LEAVING)]
    known = [a_member(one) for one in machines]

    step = stepped(a_cluster(3), machines, members=[*known, *places])

    assert sum(one.machine is None for one in step.members) == 2


# software


def updating(now=NOW, machines=(), seen=None, **update) -> DesiredGroup:
    values = {
        "status": UpdateStatus.IN_PROGRESS,
        "began_at": NOW,
        "before": MADE_OF,
        "batch": 1,
        "rollback_batch": 2,
    }
    group = DesiredGroup(
        made_of=MADE_OF,
        target=len(machines),
        stage=GroupStage.MADE,
        update=SoftwareUpdate(**{**values, **update}),
    )
    cluster = a_cluster(len(machines), ClusterStatus.SYSTEM_UPDATING)
    failed = InstanceStatus.FAILURE
    running = InstanceStatus.RUNNING
    members = [
        a_member(one, failed if one.state is MachineState.FAILED else running) for one in machines
    ]
    empty = ObservedCluster(machines={}, health={})
    return advanced(group, members, seen or empty, POLICY, now, ClusterEventCollector(cluster, now))


def test_only_machines_from_before_an_update_get_others_in_their_place() -> None:
    old, new = a_machine(1, NOW - TICK), a_machine(2, NOW)

    assert updating(machines=[old, new]).update.going == (old.id,)
    assert updating(machines=[new]).update.status is UpdateStatus.SUCCEEDED


def test_the_way_back_takes_the_machines_from_between_in_batches_of_its_own() -> None:
    turned = NOW + timedelta(hours=1)
    times = (NOW - TICK, NOW, turned - TICK, turned)
    machines = [a_machine(number, at) for number, at in enumerate(times)]

    group = updating(
        turned,
        machines,
        status=UpdateStatus.ROLLBACK_IN_PROGRESS,
        turned_at=turned,
    )

    assert group.update.going == (machines[1].id, machines[2].id)


@pytest.mark.parametrize("late", [-TICK, timedelta(0)])
def test_a_batch_bakes_for_as_long_as_was_asked(late) -> None:
    bake = timedelta(minutes=5)
    group = updating(NOW + bake + late, [a_machine(1)], bake=bake, batch_at=NOW, baking_since=NOW)

    is_over = group.update.status is UpdateStatus.SUCCEEDED
    assert is_over == (late == timedelta(0))


@pytest.mark.parametrize("late", [-TICK, timedelta(0)])
def test_a_batch_that_takes_too_long_turns_the_update(late) -> None:
    group = updating(
        NOW + POLICY.batch_timeout + late,
        [a_machine(1, NOW - TICK)],
        batch_at=NOW,
        going=(a_machine(1).id,),
    )

    is_turned = group.update.status is UpdateStatus.ROLLBACK_IN_PROGRESS
    assert is_turned == (late == timedelta(0))


def test_a_machine_that_failed_before_an_update_does_not_turn_it_but_goes_first() -> None:
    old = a_machine(1, NOW - 2 * TICK)
    failed = a_machine(2, NOW - TICK, MachineState.FAILED)

    group = updating(machines=[old, failed])

    assert group.update.status is UpdateStatus.IN_PROGRESS
    assert group.update.going == (failed.id,)


def test_the_way_back_does_not_wait_for_failed_machines_of_later_batches() -> None:
    turned = NOW + timedelta(hours=1)
    back = a_machine(1, turned)
    failed = a_machine(2, NOW, MachineState.FAILED)

    group = updating(
        turned + TICK,
        [back, failed],
        status=UpdateStatus.ROLLBACK_IN_PROGRESS,
        turned_at=turned,
        batch_at=turned,
    )

    assert group.update.going == (failed.id,)


def test_a_way_back_that_takes_too_long_has_failed() -> None:
    group = updating(
        NOW + POLICY.batch_timeout,
        [a_machine(1)],
        status=UpdateStatus.ROLLBACK_IN_PROGRESS,
        turned_at=NOW + TICK,
        batch_at=NOW,
        going=(a_machine(1).id,),
    )

    assert group.update.status is UpdateStatus.FAILED
    assert not group.update.is_active
