"""Laws of a decision over a whole cluster, for all clusters."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from policy_strategies import DEFAULT, node_policies

from holdfast.decisions.faults import agent_fault, has_joined
from holdfast.decisions.pair_schedule import has_pairs
from holdfast.decisions.policy import RecoveryMode
from holdfast.decisions.remediation import decide, decide_node
from holdfast.decisions.replacement_limit import replacement_rate
from holdfast.kit.quota import Quota
from holdfast.model.actions import Drain, Quarantine, Reassign, Reboot, Release, Replace, Wait
from holdfast.model.health import Remedy, Urgency
from holdfast.model.names import Condition, Reason
from holdfast.model.nodes import Breaker, CheckResult, ClusterView, Phase
from holdfast.model.requests import Verb
from tests.ports.builders import (
    LONG_AGO,
    NOW,
    a_cluster,
    a_fault,
    a_node,
    a_past_fault,
    a_remediation,
    a_request,
    as_machine,
    healthy_nodes,
)
from tests.simulation.truth import bad_faults, is_bad, is_lost, is_out, waiting_successors

# Uniform times almost never fall on a deadline, where the mistakes are.
DEADLINES = [
    timedelta(0),
    timedelta(seconds=5),
    DEFAULT.heartbeat_timeout,
    DEFAULT.join_timeout,
    DEFAULT.reboot_timeout,
    DEFAULT.reboot_window,
    DEFAULT.replace_timeout,
    DEFAULT.drain_timeout,
    DEFAULT.deep_check_timeout,
    DEFAULT.breaker_window,
    DEFAULT.offender_window,
    timedelta(days=30),
]
TICK = timedelta(microseconds=1)
ages = st.builds(
    lambda age, shift: max(timedelta(0), age + shift),
    st.sampled_from(DEADLINES),
    st.sampled_from([-TICK, timedelta(0), TICK]),
)
moments = st.builds(lambda age: NOW - age, ages)
urgencies = st.sampled_from(list(Urgency))
faults = st.builds(a_fault, st.sampled_from(list(Remedy)), since=moments, urgency=urgencies)
pasts = st.builds(
    a_past_fault, st.sampled_from([Remedy.NONE, Remedy.REBOOT]), ago=ages, opened_at=moments
)
requests = st.builds(
    a_request,
    st.sampled_from(list(Verb)),
    id=st.sampled_from(["request-1", "request-2"]),
    requested_at=moments,
    urgency=urgencies,
)
remediations = st.builds(
    a_remediation,
    st.sampled_from([Remedy.NONE, Remedy.REBOOT, Remedy.REPLACE]),
    incident_id=st.sampled_from(["incident-1", "incident-2"]),
    opened_at=moments,
    condition=st.sampled_from(list(Condition)),
    reason=st.sampled_from([Reason.XID_REBOOT, Reason.XID_REPLACE, Reason.NODE_SILENT]),
    urgency=urgencies,
    repairs=st.integers(0, 3),
    ordered_at=st.none() | moments,
    retry_at=st.none() | moments,
    machine=st.sampled_from(["", "i-1#boot-1", "i-1#boot-0", "i-0#boot-1"]),
    request_id=st.sampled_from(["", "request-1"]),
)


replacement_times = st.builds(
    lambda window, shift: NOW - window + shift,
    st.sampled_from([timedelta(0), timedelta(hours=1), timedelta(days=1)]),
    st.sampled_from([-TICK, timedelta(0), TICK]),
)


@st.composite
def nodes(draw):
    phase = draw(st.sampled_from(list(Phase)))
    needs_course = phase in (
        Phase.QUARANTINED,
        Phase.DRAINING,
        Phase.REBOOTING,
        Phase.REPLACING,
    )
    may_have_course = phase in (Phase.JOINING, Phase.CHECKING)
    remediation = (
        remediations if needs_course else st.none() | remediations if may_have_course else st.none()
    )
    return a_node(
        phase,
        provider_id="i-1",
        record={
            "phase_since": draw(moments),
            "remediation": draw(remediation),
            "history": tuple(draw(st.lists(pasts, max_size=3))),
            "cleared_at": draw(st.none() | moments),
            "checked_machine": draw(st.sampled_from(["", "i-1#boot-1"])),
            "agent_silent_since": draw(st.none() | moments),
            "replaced_at": tuple(draw(st.lists(replacement_times, max_size=2))),
        },
        faults=tuple(draw(st.lists(faults, max_size=2))),
        heartbeat_at=draw(st.none() | moments),
        answered_at=draw(st.none() | moments),
        is_ready=draw(st.sampled_from([None, True, False])),
        powered_on=draw(st.sampled_from([None, True, False])),
        join_error=draw(st.sampled_from(["", "it timed out"])),
        request=draw(st.none() | requests),
        running_jobs=draw(st.sampled_from([(), ("a",)])),
        check=draw(st.none() | st.builds(CheckResult, passed=st.booleans(), ended_at=moments)),
        replaces=draw(st.sampled_from(["", "node-0", "node-1"])),
    )


breakers = st.builds(
    Breaker, tripped_at=st.none() | moments, reason=st.just("r"), reset_at=st.none() | moments
)


@st.composite
def clusters(draw):
    drawn = draw(st.lists(nodes(), max_size=5))
    has_twins = draw(st.sampled_from([False, False, True]))
    return ClusterView(
        nodes=tuple(
            replace(node if has_twins else as_machine(node, f"i-{n + 1}"), name=f"node-{n}")
            for n, node in enumerate(drawn)
        ),
        breaker=draw(st.just(Breaker()) | breakers),
        offenders=frozenset(draw(st.sampled_from([(), ("i-1",)]))),
    )


@given(clusters(), node_policies, st.randoms(use_true_random=False))
def test_the_order_of_nodes_does_not_matter(cluster, policy, random) -> None:
    shuffled = random.sample(cluster.nodes, len(cluster.nodes))

    assert decide(replace(cluster, nodes=tuple(shuffled)), policy, NOW) == decide(
        cluster, policy, NOW
    )


@given(clusters(), node_policies)
def test_a_node_gets_one_answer_at_most(cluster, policy) -> None:
    plan = decide(cluster, policy, NOW)

    answers = Counter([item.node for item in (*plan.actions, *plan.deferred)])
    assert all(count == 1 for count in answers.values())
    assert set(answers) <= {node.name for node in cluster.nodes}


@given(clusters(), node_policies)
def test_the_budget_is_never_exceeded(cluster, policy) -> None:
    plan = decide(cluster, policy, NOW)

    waiting = waiting_successors(cluster)
    members = [node for node in cluster.nodes if node.name not in waiting]
    out = sum(is_out(node.record) for node in members)
    drains = sum(isinstance(action, Drain) for action in plan.actions)
    assert drains == 0 or out + drains <= policy.max_unavailable.of(len(members))


@given(clusters(), node_policies)
def test_no_more_machines_are_replaced_than_the_limits_allow_without_a_person(
    cluster, policy
) -> None:
    by_name = {node.name: node for node in cluster.nodes}
    plan = decide(cluster, policy, NOW)

    def begins(action):
        record = by_name[action.node].record
        remediation = record.remediation
        replaces = remediation is not None and remediation.remedy is Remedy.REPLACE
        if remediation is not None and remediation.request_id:
            return False
        if isinstance(action, Drain):
            return replaces
        if replaces and record.phase in (Phase.DRAINING, Phase.REPLACING):
            return False
        if isinstance(action, Reassign):
            is_replacement = action.remedy is Remedy.REPLACE and not action.request_id
            return is_replacement and record.phase is Phase.DRAINING
        return isinstance(action, Replace) and not action.request_id

    rate = replacement_rate(
        cluster.nodes, len(cluster.nodes) - len(waiting_successors(cluster)), policy, NOW
    )
    assert sum(map(begins, plan.actions)) <= rate.room
    refused = [one for one in plan.deferred if "replacement limit" in one.why]
    assert not refused or rate.room <= sum(map(begins, plan.actions))
    for one in refused:
        assert not by_name[one.node].record.remediation.request_id
        assert one.why.endswith(f"holdfast nodes replace {one.node}")


@given(clusters(), node_policies)
def test_nothing_is_done_with_a_machine_that_two_nodes_claim(cluster, policy) -> None:
    waiting = waiting_successors(cluster)
    claims = Counter(one.provider_id for one in cluster.nodes if one.name not in waiting)
    by_name = {node.name: node for node in cluster.nodes}

    for action in decide(cluster, policy, NOW).actions:
        if isinstance(action, Drain | Reboot | Replace):
            assert claims[by_name[action.node].provider_id] == 1


@given(clusters(), node_policies)
def test_an_open_breaker_lets_no_repair_begin(cluster, policy) -> None:
    plan = decide(cluster, policy, NOW)

    if plan.trip is not None or cluster.breaker.tripped_at is not None:
        assert [one for one in plan.actions if isinstance(one, Drain | Reboot | Replace)] == []


@given(clusters(), node_policies)
def test_nothing_is_repaired_without_a_cause(cluster, policy) -> None:
    by_name = {node.name: node for node in cluster.nodes}
    stays = (Condition.REQUESTED, Condition.DEEP_CHECK, Condition.REPEAT_OFFENDER)

    for action in decide(cluster, policy, NOW).actions:
        node = by_name[action.node]
        begins = isinstance(action, Drain) or (
            isinstance(action, Reboot | Replace) and node.record.phase is Phase.DRAINING
        )
        if begins:
            has_fault = bool(bad_faults(node)) or is_lost(node, policy, NOW)
            # No report says that the cause of a started repair is gone.
            is_silent = isinstance(action, Reboot | Replace) and agent_fault(node, policy, NOW)
            assert has_fault or is_silent or node.record.remediation.condition in stays


@given(clusters(), node_policies)
def test_in_mode_none_only_requests_are_carried_out(cluster, policy) -> None:
    assume(policy.node_recovery is RecoveryMode.NONE)
    by_name = {node.name: node for node in cluster.nodes}

    for action in decide(cluster, policy, NOW).actions:
        if isinstance(action, Drain):
            remediation = by_name[action.node].record.remediation
            assert remediation.condition == Condition.REQUESTED


@given(clusters(), node_policies)
def test_no_faulty_node_is_given_to_jobs_unless_a_person_says_so(cluster, policy) -> None:
    by_name = {node.name: node for node in cluster.nodes}

    for action in decide(cluster, policy, NOW).actions:
        if isinstance(action, Release) and not action.forgive:
            assert not is_bad(by_name[action.node], policy, NOW)
            assert by_name[action.node].heartbeat_at is not None


@given(clusters(), node_policies)
def test_every_faulty_node_in_service_is_marked_whatever_else_holds(cluster, policy) -> None:
    actions = {action.node: action for action in decide(cluster, policy, NOW).actions}

    for node in cluster.nodes:
        is_released = node.request is not None and node.request.verb is Verb.RELEASE
        if node.record.phase is Phase.SCHEDULABLE and is_bad(node, policy, NOW) and not is_released:
            assert isinstance(actions[node.name], Quarantine)


@given(clusters(), node_policies, st.floats(0, 1, exclude_min=True, exclude_max=True))
def test_nothing_changes_by_itself_before_the_time_to_look_again(cluster, policy, part) -> None:
    acting = {action.node for action in decide(cluster, policy, NOW).actions}
    quiet = tuple(node for node in cluster.nodes if node.name not in acting)
    cluster = replace(cluster, nodes=quiet)  # most drawn clusters have something to do at once
    plan = decide(cluster, policy, NOW)
    assume(plan.actions == () and plan.trip is None)
    assert plan.wake_at is None or plan.wake_at > NOW

    horizon = plan.wake_at if plan.wake_at is not None else NOW + timedelta(days=365)
    last = max(NOW, horizon - TICK)
    for then in (min(last, NOW + part * (horizon - NOW)), last):
        later = decide(cluster, policy, then)
        assert (later.actions, later.trip) == ((), None)


@pytest.mark.parametrize(
    "phase", [Phase.CHECKING, Phase.DRAINING, Phase.REBOOTING, Phase.REPLACING]
)
@given(policy=node_policies)
def test_a_node_in_a_phase_that_must_end_waits_until_a_deadline(phase, policy) -> None:
    remedy = Remedy.REBOOT if phase is Phase.REBOOTING else Remedy.REPLACE
    ordered = a_remediation(remedy, ordered_at=NOW, machine="i-1#boot-1")
    node = a_node(
        phase,
        provider_id="i-1",
        record={"phase_since": NOW, "remediation": ordered},
        running_jobs=("a",),
        faults=(a_fault(Remedy.REPLACE),) if phase is Phase.DRAINING else (),
    )
    assume(phase is not Phase.DRAINING or policy.drain_timeout > timedelta(0))

    choice = decide_node(node, policy, NOW)

    assert isinstance(choice, Wait)
    assert choice.until is not None


@given(nodes(), node_policies)
def test_a_node_that_waits_has_a_deadline_unless_only_an_event_can_change_it(node, policy) -> None:
    choice = decide_node(node, policy, NOW)

    if isinstance(choice, Wait) and choice.until is None and not choice.why:
        is_absent = node.heartbeat_at is None and node.record.phase is not Phase.CHECKING
        is_checking = node.record.phase is Phase.CHECKING
        awaits_check = is_checking and node.check is None
        awaits_partner = is_checking and has_pairs(node, policy)  # which decide_pairs looks for
        assert node.record.phase is Phase.SCHEDULABLE or (
            (is_absent or awaits_partner or not has_joined(node)) and not awaits_check
        )
        assert node.record.phase not in (Phase.REBOOTING, Phase.REPLACING)


@pytest.mark.parametrize("count", [0, 1, 50])
def test_a_healthy_cluster_needs_nothing_but_a_look_at_its_heartbeats(count) -> None:
    oldest = a_node(name="oldest", heartbeat_at=NOW - timedelta(seconds=39))
    nodes_ = (*healthy_nodes(count), oldest)

    plan = decide(a_cluster(*nodes_), DEFAULT, NOW)

    assert (plan.actions, plan.trip, plan.deferred) == ((), None, ())
    assert plan.wake_at == NOW + timedelta(seconds=1)


def test_an_empty_cluster_needs_nothing() -> None:
    plan = decide(a_cluster(), DEFAULT, NOW)

    assert (plan.actions, plan.trip, plan.wake_at) == ((), None, None)


def test_a_cluster_looks_again_when_the_first_of_its_deadlines_passes() -> None:
    deadline = NOW + timedelta(seconds=7)
    refused = a_remediation(machine="i-1#boot-1", retry_at=deadline)
    node = a_node(Phase.REBOOTING, record={"remediation": refused})

    plan = decide(a_cluster(node, *healthy_nodes(3, first=2)), DEFAULT, NOW)

    assert plan.wake_at == deadline


def test_silence_is_looked_for_while_a_node_is_held_back() -> None:
    node = a_node(
        Phase.QUARANTINED, faults=(a_fault(),), heartbeat_at=NOW, record={"phase_since": LONG_AGO}
    )

    plan = decide(a_cluster(node), replace(DEFAULT, max_unavailable=Quota(count=0)), NOW)

    assert plan.wake_at == NOW + DEFAULT.heartbeat_timeout
