"""Laws of the pods of a job that Holdfast operates."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.pod_group import (
    ENDED,
    INVALID,
    OVERDUE,
    CleanPods,
    GroupLimits,
    GroupPlan,
    GroupPod,
    GroupState,
    PodGroup,
    plan_pods,
)
from holdfast.model.jobs import JobPhase
from holdfast.model.names import PodPhase

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
TICK = timedelta.resolution
LIMIT = st.none() | st.sampled_from([TICK, HOUR])
TIME = st.none() | st.sampled_from([NOW, NOW - HOUR, NOW - HOUR + TICK])


@st.composite
def groups(draw: st.DrawFn) -> PodGroup:
    ranks = draw(st.integers(1, 4))
    taken = draw(st.sets(st.integers(0, ranks + 1)))
    pods = tuple(
        GroupPod(
            uid=f"u{rank}",
            rank=rank,
            phase=draw(st.sampled_from(PodPhase)),
            is_terminating=draw(st.booleans()),
        )
        for rank in sorted(taken)
    )
    limits = st.builds(GroupLimits, active=LIMIT, startup=LIMIT, fault=LIMIT, keep=LIMIT)
    return PodGroup(
        ranks=ranks,
        pods=pods,
        limits=draw(limits),
        clean=draw(st.sampled_from(CleanPods)),
        refusal=draw(st.sampled_from(["", "", "it is elastic"])),
        is_suspended=draw(st.booleans()),
        is_restarting=draw(st.booleans()),
        first_started_at=draw(TIME),
        started_at=draw(TIME),
        has_run=draw(st.booleans()),
        suspended_at=draw(TIME),
        ending=draw(st.none() | st.sampled_from(ENDED)),
        ended_at=draw(TIME),
        recorded=draw(st.none() | st.sampled_from([JobPhase.SUCCEEDED, JobPhase.FAILED])),
    )


def carried_out(group: PodGroup, plan: GroupPlan) -> PodGroup:
    """The group once deleted pods are gone, created ones exist, and the end is recorded."""
    kept = [pod for pod in group.pods if pod.uid not in plan.delete and not pod.is_terminating]
    new = [GroupPod(uid=f"n{rank}", rank=rank, phase=PodPhase.PENDING) for rank in plan.create]
    is_new_end = group.ending is None and plan.state in ENDED
    return replace(
        group,
        pods=tuple(sorted((*kept, *new), key=lambda pod: pod.rank)),
        ending=plan.state if is_new_end else group.ending,
        ended_at=NOW if is_new_end else group.ended_at,
    )


@given(groups())
def test_no_rank_has_two_pods_and_no_pod_is_created_unless_the_job_runs(group: PodGroup) -> None:
    plan = plan_pods(group, NOW)

    present = {pod.rank for pod in group.pods}
    assert present.isdisjoint(plan.create)
    assert len(set(plan.create)) == len(plan.create)
    if plan.create:
        assert group.ending is None
        assert not group.is_suspended
        assert not group.refusal
        assert set(plan.create) | present >= set(range(group.ranks))
        assert max(plan.create) < group.ranks


@given(groups())
def test_pods_are_deleted_once_and_only_known_ones(group: PodGroup) -> None:
    plan = plan_pods(group, NOW)

    deletable = {pod.uid for pod in group.pods if not pod.is_terminating}
    assert set(plan.delete) <= deletable
    assert len(set(plan.delete)) == len(plan.delete)


@given(groups())
def test_a_job_that_has_ended_or_is_suspended_keeps_no_running_pod(group: PodGroup) -> None:
    plan = plan_pods(group, NOW)

    after = carried_out(group, plan)
    if plan.state is GroupState.SUSPENDED:
        assert after.pods == ()
    if plan.state in ENDED:
        assert all(pod.has_ended for pod in after.pods)
        if group.clean is CleanPods.ALL:
            assert after.pods == ()


@given(groups())
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(group: PodGroup) -> None:
    group = carried_out(group, plan_pods(group, NOW))  # terminating pods are gone
    after = carried_out(group, plan_pods(group, NOW))

    plan = plan_pods(after, NOW)

    assert (plan.create, plan.delete) == ((), ())


@given(groups())
def test_an_end_never_changes(group: PodGroup) -> None:
    if group.ending is not None:
        plan = plan_pods(group, NOW)
        assert (plan.state, plan.reason, plan.create) == (group.ending, "", ())


@given(groups())
def test_a_job_is_removed_only_after_its_end(group: PodGroup) -> None:
    if plan_pods(group, NOW).removes_job:
        assert group.ending is not None
        assert group.ended_at is not None
        assert group.limits.keep is not None
        assert group.ended_at + group.limits.keep <= NOW


def pods(*phases: PodPhase) -> tuple[GroupPod, ...]:
    return tuple(GroupPod(uid=f"u{i}", rank=i, phase=phase) for i, phase in enumerate(phases))


S, R, P, F = PodPhase.SUCCEEDED, PodPhase.RUNNING, PodPhase.PENDING, PodPhase.FAILED


@pytest.mark.parametrize(
    ("phases", "state"),
    [
        ((S, S), GroupState.SUCCEEDED),
        ((S, R), GroupState.RUNNING),
        ((R, R), GroupState.RUNNING),
        ((R, P), GroupState.STARTING),
        ((R, F), GroupState.STARTING),
        ((R,), GroupState.STARTING),
        ((S,), GroupState.STARTING),
    ],
)
def test_the_state_follows_from_all_ranks(phases: tuple[PodPhase, ...], state: GroupState) -> None:
    assert plan_pods(PodGroup(ranks=2, pods=pods(*phases)), NOW).state is state


def test_a_pod_that_failed_stays_until_the_restart_is_decided() -> None:
    plan = plan_pods(PodGroup(ranks=2, pods=pods(R, F)), NOW)

    assert (plan.create, plan.delete) == ((), ())


def test_a_success_that_is_recorded_counts_although_its_pods_are_gone() -> None:
    group = PodGroup(ranks=2, pods=pods(S), recorded=JobPhase.SUCCEEDED)

    assert plan_pods(group, NOW).state is GroupState.SUCCEEDED


@pytest.mark.parametrize(
    ("clean", "ending", "kept"),
    [
        (CleanPods.ALL, GroupState.SUCCEEDED, []),
        (CleanPods.ALL, GroupState.FAILED, []),
        (CleanPods.ONLY_COMPLETE, GroupState.SUCCEEDED, []),
        (CleanPods.ONLY_COMPLETE, GroupState.FAILED, ["u0", "u1"]),
        (CleanPods.NONE, GroupState.SUCCEEDED, ["u0", "u1"]),
        (CleanPods.NONE, GroupState.FAILED, ["u0", "u1"]),
    ],
)
def test_the_policy_decides_which_ended_pods_stay(
    clean: CleanPods, ending: GroupState, kept: list[str]
) -> None:
    group = PodGroup(ranks=3, pods=pods(S, F, R), clean=clean, ending=ending)

    deleted = plan_pods(group, NOW).delete

    assert [pod.uid for pod in group.pods if pod.uid not in deleted] == kept


@pytest.mark.parametrize(
    ("key", "group"),
    [
        ("activeDeadlineSeconds", {"limits": GroupLimits(active=HOUR), "first_started_at": NOW}),
        ("startupDeadlineSeconds", {"limits": GroupLimits(startup=HOUR), "started_at": NOW}),
        (
            "faultDeadlineSeconds",
            {
                "limits": GroupLimits(fault=HOUR),
                "suspended_at": NOW,
                "is_suspended": True,
                "is_restarting": True,
            },
        ),
    ],
)
def test_a_limit_fails_the_job_when_it_has_passed_and_not_before(
    key: str, group: dict[str, object]
) -> None:
    found = PodGroup(ranks=1, pods=pods(P), **group)  # type: ignore[arg-type]

    assert plan_pods(found, NOW + HOUR - TICK).reason == ""
    plan = plan_pods(found, NOW + HOUR)
    assert (plan.state, plan.reason) == (GroupState.FAILED, OVERDUE)
    assert key in plan.why
    assert plan.delete == ("u0",)


def test_limits_of_a_start_and_of_a_restart_do_not_apply_otherwise() -> None:
    limits = GroupLimits(startup=HOUR, fault=HOUR)
    since = {"started_at": NOW - HOUR, "suspended_at": NOW - HOUR}
    ran = PodGroup(ranks=1, pods=pods(P), limits=limits, has_run=True, **since)
    suspended = replace(ran, is_suspended=True)

    assert plan_pods(ran, NOW).state is GroupState.STARTING
    assert plan_pods(suspended, NOW).state is GroupState.SUSPENDED


def test_a_refused_job_fails_with_its_reason_and_gets_no_pod() -> None:
    plan = plan_pods(PodGroup(ranks=2, refusal="spec.elasticPolicy is set"), NOW)

    assert plan == GroupPlan(
        state=GroupState.FAILED, reason=INVALID, why="spec.elasticPolicy is set"
    )
