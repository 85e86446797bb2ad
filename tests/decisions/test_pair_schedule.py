"""Tests between nodes under a deep health check: who is tested with whom, and when it ends."""

from dataclasses import replace
from datetime import timedelta
from itertools import combinations

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.decisions.lifecycle import after
from holdfast.decisions.node_labels import deep_check_status
from holdfast.decisions.pair_schedule import ENOUGH, PEER_WAIT, ROUNDS, pools_short_of_peers
from holdfast.decisions.policy import RemediationPolicy
from holdfast.decisions.remediation import decide
from holdfast.kit.quota import Quota
from holdfast.model.actions import Drain, Pair, Plan, Quarantine, Rejoin, Release, StartCheck
from holdfast.model.deep_checks import Outcome
from holdfast.model.health import Remedy, Urgency
from holdfast.model.names import Condition, DeepCheck, DeepCheckStatus, Reason
from holdfast.model.nodes import (
    Breaker,
    CheckResult,
    ClusterView,
    NodeView,
    Pairing,
    PairOutcome,
    Phase,
)
from holdfast.model.requests import Verb
from tests.ports.builders import NOW, a_fault, a_node, a_remediation, a_request

TICK = timedelta(microseconds=1)
MINUTE = timedelta(minutes=1)
POLICY = RemediationPolicy(
    deep_check_pairs=True, pair_timeout=5 * MINUTE, heartbeat_timeout=60 * MINUTE
)
SINCE = NOW - 30 * MINUTE
OWN = CheckResult(
    passed=True, ended_at=SINCE, measured={"cpu_ops_per_s": 7.0}, bounds={"cpu_ops_per_s": 5.0}
)


def under_test(
    name: str, *, view: dict | None = None, borrowed: bool = False, **pairing
) -> NodeView:
    """A node that takes part in tests since half an hour."""
    remediation = a_remediation(
        Remedy.NONE, condition=Condition.REQUESTED, reason=Reason.DEEP_CHECK_PARTNER
    )
    values = {"since": SINCE, "own": None if borrowed else OWN, **pairing}
    record = {"phase_since": SINCE - MINUTE, "pairing": Pairing(**values)}
    if borrowed:
        record["remediation"] = remediation
    return a_node(Phase.CHECKING, name=name, provider_id=f"i-{name}", record=record, **(view or {}))


def idle(name: str, **changes) -> NodeView:
    return a_node(name=name, provider_id=f"i-{name}", is_idle=True, **changes)


def outcome(partner: str, passed: bool | None, **changes) -> PairOutcome:
    return PairOutcome(partner=partner, passed=passed, ended_at=NOW - MINUTE, **changes)


def planned(*nodes: NodeView, policy: RemediationPolicy = POLICY, now=NOW, **view) -> Plan:
    return decide(ClusterView(nodes=nodes, **view), policy, now)


def begun(plan: Plan) -> set[tuple[str, str]]:
    """The tests that begin."""
    return {
        (one.node, one.pairing.partner)
        for one in plan.actions
        if isinstance(one, Pair) and one.pairing.partner
    }


def taken(plan: Plan) -> list[str]:
    """The nodes without jobs that are taken to be tested with."""
    return [
        one.node
        for one in plan.actions
        if isinstance(one, Quarantine) and one.fault.reason == Reason.DEEP_CHECK_PARTNER
    ]


# before the tests


@pytest.mark.parametrize(
    ("kinds", "is_configured", "goes_on"),
    [
        ((), False, False),
        ((), True, True),
        ((DeepCheck.STRESS,), True, False),
        ((DeepCheck.CONNECTIVITY,), False, True),
        ((DeepCheck.STRESS, DeepCheck.CONNECTIVITY), False, True),
    ],
)
def test_a_node_that_passed_alone_is_tested_with_others_if_that_is_wanted(
    kinds, is_configured, goes_on
) -> None:
    node = a_node(Phase.CHECKING, check=OWN, record={"kinds": kinds})
    policy = replace(POLICY, deep_check_pairs=is_configured)

    (action,) = planned(node, policy=policy).actions

    if goes_on:
        assert action == Pair(node="node-1", pairing=Pairing(since=NOW, own=OWN))
    else:
        assert action == Release(node="node-1", checked=True)


def test_a_node_that_failed_alone_is_tested_with_nobody() -> None:
    node = a_node(Phase.CHECKING, check=replace(OWN, passed=False))

    (action,) = planned(node).actions

    assert (action.fault.reason, action.fault.remedy) == (Reason.CHECK_FAILED, Remedy.REPLACE)


def test_the_kinds_that_a_person_asked_for_are_remembered_until_the_check_begins() -> None:
    request = a_request(Verb.DEEP_CHECK, checks=(DeepCheck.CONNECTIVITY,))
    node = a_node(request=request)

    for step in (Quarantine, Drain, StartCheck):
        (action,) = planned(node).actions
        assert isinstance(action, step)
        node = replace(node, record=after(node, action, NOW), request=None)

    assert node.record.kinds == (DeepCheck.CONNECTIVITY,)
    joining = a_node(Phase.JOINING, request=request)
    assert planned(joining).actions == (StartCheck(node="node-1", kinds=(DeepCheck.CONNECTIVITY,)),)


# rounds


@given(st.integers(2, 9), st.randoms())
def test_a_round_has_every_node_in_one_test_whatever_the_order_of_the_nodes(
    count: int, random
) -> None:
    nodes = [under_test(f"n{number}") for number in range(count)]

    plan = planned(*random.sample(nodes, count))

    ends = [end for test in begun(plan) for end in test]
    assert len(ends) == len(set(ends)) == count // 2 * 2
    assert begun(plan) == begun(planned(*nodes))


def test_nodes_of_other_groups_and_types_are_not_tested_with_each_other() -> None:
    kinds = [("a", "p5"), ("b", "p5"), ("a", "p4d"), ("a", "p5")]
    nodes = [
        under_test(f"n{number}", view={"group": group, "instance_type": kind})
        for number, (group, kind) in enumerate(kinds)
    ]

    assert begun(planned(*nodes)) == {("n0", "n3")}


def test_a_round_waits_for_the_one_before() -> None:
    tests = (outcome("n2", passed=True),)
    nodes = [
        under_test("n1", tests=tests),
        under_test("n2"),
        under_test("n3", partner="n4", began_at=NOW - MINUTE),
        under_test("n4"),
    ]

    plan = planned(*nodes)

    assert plan.actions == ()
    assert plan.wake_at == NOW + 4 * MINUTE


def test_the_rest_of_a_round_that_was_cut_begins_while_the_others_run() -> None:
    nodes = [
        under_test("n1", partner="n2", began_at=NOW - MINUTE),
        *(under_test(f"n{number}") for number in range(2, 7)),
    ]

    plan = planned(*nodes)

    ends = {end for test in begun(plan) for end in test}
    assert ends == {"n3", "n4", "n5", "n6"}


@pytest.mark.parametrize("passed", [True, False, None])
def test_what_a_test_reported_is_kept_with_the_node_that_it_was_begun_for(passed) -> None:
    said = outcome("n2", passed, measured={"pair_tcp_us": 5.0})
    one = under_test("n1", partner="n2", began_at=NOW - MINUTE, view={"pair": said})

    (action,) = planned(one, under_test("n2")).actions

    pairing = replace(one.record.pairing, partner="", began_at=None, tests=(said,))
    assert action == Pair(node="n1", pairing=pairing)


def test_a_test_that_does_not_end_has_failed_exactly_at_its_deadline() -> None:
    nodes = [under_test("n1", partner="n2", began_at=NOW - 5 * MINUTE), under_test("n2")]

    assert planned(*nodes, now=NOW - TICK).actions == ()
    (action,) = planned(*nodes).actions

    assert [test.passed for test in action.pairing.tests] == [False]


def test_the_time_of_a_test_counts_from_its_start_and_not_before() -> None:
    late = {"partner": "b", "began_at": NOW - 6 * MINUTE}
    pending = under_test("a", view={"check_pending": "its pod waits"}, **late)
    running = under_test("a", view={"check_began_at": NOW - 5 * MINUTE + TICK}, **late)

    for one in (pending, running):
        assert not planned(one, under_test("b")).actions
    (action,) = planned(running, under_test("b"), now=NOW + TICK).actions

    assert [test.detail for test in action.pairing.tests] == ["the test timed out"]


@pytest.mark.parametrize(
    "left", [a_node(name="n2"), a_node(Phase.QUARANTINED, name="n2"), under_test("n3")]
)
@pytest.mark.parametrize("said", [None, outcome("n2", passed=False)])
def test_a_test_whose_other_end_left_says_nothing(left: NodeView, said) -> None:
    one = under_test("n1", partner="n2", began_at=NOW - MINUTE, view={"pair": said})

    pairs = [one for one in planned(one, left).actions if isinstance(one, Pair)]

    assert [test.passed for test in pairs[0].pairing.tests] == [None]


def test_a_node_that_turns_faulty_leaves_the_tests() -> None:
    sick = under_test("n1", partner="n2", began_at=NOW, view={"faults": (a_fault(),)})

    action = next(one for one in planned(sick, under_test("n2")).actions if one.node == "n1")
    record = after(sick, action, NOW)

    assert (action.node, action.fault.reason) == ("n1", Reason.XID_REBOOT)
    assert (record.phase, record.pairing.partner) == (Phase.QUARANTINED, "")


# verdicts


def settled(bad: str = "", *, names=("n1", "n2", "n3", "n4"), count: int = 4) -> list[NodeView]:
    """Nodes with so many tests of each pair, of which those with ``bad`` have failed."""
    return [
        under_test(
            one,
            tests=tuple(
                outcome(other, bad not in (one, other), measured={"pair_tcp_us": 5.0},
                        bounds={"pair_tcp_us": 10.0})
                for first, other in combinations(names, 2)
                if first == one
                for _ in range(count)
            ),
        )
        for one in names
    ]  # fmt: skip


def test_nodes_that_nothing_speaks_against_are_given_to_jobs_with_what_was_measured() -> None:
    actions = planned(*settled()).actions

    assert {action.node for action in actions} == {"n1", "n2", "n3", "n4"}
    for action in actions:
        assert (action.checked, action.check.passed, action.check.detail) == (True, True, "")
        assert action.check.measured == {"cpu_ops_per_s": 7.0, "pair_tcp_us": 5.0}
        assert action.check.bounds == {"cpu_ops_per_s": 5.0, "pair_tcp_us": 10.0}
        assert len(action.check.partners) == 3


def test_no_more_tests_are_made_than_it_takes() -> None:
    short, enough = (planned(*settled(count=count)) for count in (2, 3))

    assert begun(short)
    assert [type(action) for action in enough.actions] == [Release] * 4


def test_a_node_that_fails_with_all_others_is_replaced_and_they_are_not() -> None:
    nodes = {node.name: node for node in settled("n2")}
    actions = {action.node: action for action in planned(*nodes.values()).actions}

    accused = actions.pop("n2")

    assert (accused.fault.reason, accused.remedy) == (Reason.PAIR_FAILED, Remedy.REPLACE)
    assert accused.fault.remedy is Remedy.REPLACE
    assert all(isinstance(action, Release) for action in actions.values())
    assert all(action.check.detail == "" for action in actions.values())
    record = after(nodes["n2"], accused, NOW)
    assert deep_check_status(replace(nodes["n2"], record=record)) is DeepCheckStatus.FAILED
    assert [(check.passed, check.detail) for check in record.checks] == [
        (False, accused.fault.message)
    ]


def test_a_verdict_stays_the_same_while_others_are_given_back_already() -> None:
    nodes = settled("n2")
    released = [
        replace(node, record=after(node, action, NOW), is_idle=True)
        for node in nodes
        for action in planned(*nodes).actions
        if action.node == node.name != "n2"
    ]

    plan = planned(*released, nodes[1], now=NOW + MINUTE)

    (accused,) = plan.actions
    assert (accused.node, accused.fault.reason) == ("n2", Reason.PAIR_FAILED)


@pytest.mark.parametrize("number", [1, 3])
def test_tests_of_the_machine_before_speak_for_nobody(number: int) -> None:
    """A replacement has the name of the node that was bad, as on Slurm."""
    nodes = settled(f"n{number + 1}")
    nodes[number] = under_test(nodes[number].name, since=NOW - TICK)

    actions = planned(*nodes).actions

    assert not any(isinstance(action, Quarantine) for action in actions)


def test_tests_of_another_day_hold_up_nobody() -> None:
    failed = replace(outcome("b", passed=False), ended_at=SINCE - TICK)
    pairings = {
        "a": Pairing(since=SINCE - MINUTE, own=OWN, tests=(failed,)),
        "b": Pairing(since=SINCE - MINUTE, own=OWN),
    }
    before = [a_node(name=name, record={"pairing": one}) for name, one in pairings.items()]

    actions = planned(*settled(count=3), *before).actions

    assert {(action.node, type(action)) for action in actions} == {
        (f"n{number}", Release) for number in range(1, 5)
    }


def nodes_with(names, outcomes) -> list[NodeView]:
    """Nodes of which each has the tests with those after it that ``outcomes`` gives."""
    return [
        under_test(
            one,
            tests=tuple(
                test for first, other in combinations(names, 2) if first == one
                for test in outcomes(first, other)
            ),
        )
        for one in names
    ]  # fmt: skip


def details(plan: Plan) -> dict[str, str]:
    """What the checks of those that are given to jobs say."""
    return {one.node: one.check.detail for one in plan.actions if isinstance(one, Release)}


def test_nobody_is_accused_if_most_nodes_fail_whatever_is_believed_of_some() -> None:
    bad = {"n1", "n2", "n3"}
    names = ("n1", "n2", "n3", "n4", "n5")
    nodes = nodes_with(names, lambda *pair: [outcome(pair[1], bad.isdisjoint(pair))] * 3)

    reported = details(planned(*nodes))

    assert reported.keys() == set(names)
    assert all("like most nodes: inspect what they share" in reported[node] for node in names)


def test_of_a_bad_link_both_ends_are_reported_and_none_is_accused() -> None:
    def outcomes(*pair: str) -> list[PairOutcome]:
        if pair == ("n1", "n2"):
            silent = outcome("n2", passed=None, detail="no tool")
            return [*[outcome("n2", passed=False, detail="it is slow")] * 3, silent]
        return [outcome(pair[1], passed=True)] * 4

    reported = details(planned(*nodes_with([f"n{number}" for number in range(1, 7)], outcomes)))

    assert reported.pop("n1") == "the link to n2 is bad: it is slow"
    assert reported.pop("n2") == "the link to n1 is bad: it is slow"
    assert set(reported.values()) == {""}


@pytest.mark.parametrize("failures", [1, 2])
def test_what_failed_twice_with_the_same_node_is_reported_also_of_good_ones(failures: int) -> None:
    def outcomes(*pair: str) -> list[PairOutcome]:
        if pair == ("n1", "n2"):
            passed = [outcome("n2", passed=True)] * 9
            return [outcome("n2", passed=False, detail="it is slow")] * failures + passed
        silent = outcome(pair[1], passed=None, detail="no tool")
        return [*[outcome(pair[1], passed=True)] * 4, *[silent] * (pair[1] == "n3")]

    reported = details(planned(*nodes_with([f"n{number}" for number in range(1, 9)], outcomes)))

    said = "; unclear whether the node, a peer or a link is bad: it is slow"
    assert reported["n1"] == (f"it failed 2 of 35 tests (n2){said}" if failures == 2 else "")
    assert reported["n3"] == ""


def test_a_node_is_judged_after_twelve_tests_or_at_the_deadline_of_its_check() -> None:
    failing = tuple(outcome("n2", passed=number % 2 == 0) for number in range(ROUNDS))
    pair = [under_test("n1", tests=failing[1:]), under_test("n2")]
    assert begun(planned(*pair)) == {("n1", "n2")}

    pair[0] = under_test("n1", tests=failing)
    for plan in (
        planned(*pair),
        planned(under_test("n1", tests=failing[:2]), pair[1],
                policy=replace(POLICY, deep_check_timeout=31 * MINUTE)),
    ):  # fmt: skip
        assert [type(action) for action in plan.actions] == [Release, Release]
        assert all("it failed" in action.check.detail for action in plan.actions)


def test_two_tests_that_say_nothing_are_enough() -> None:
    silent = outcome("n2", passed=None, detail="no tool")
    once, twice = ([under_test("n1", tests=(silent,) * n), under_test("n2")] for n in (1, 2))

    spoke = [under_test("n1", tests=(silent, outcome("n2", passed=True))), under_test("n2")]

    assert begun(planned(*once)) == begun(planned(*spoke)) == {("n1", "n2")}
    actions = planned(*twice).actions
    assert [action.check.remarks for action in actions] == [
        "InstanceConnectivity unknown: no test with another node was conclusive: no tool"
    ] * 2
    assert all(action.checked for action in actions), "what they could run alone has passed"


# company


def test_a_node_alone_takes_an_idle_one_of_its_kind_and_no_other() -> None:
    alone = under_test("n1", view={"group": "a"})
    others = [
        idle("busy", group="a"),
        idle("held", group="a", pause_reason="why"),
        idle("asked", group="a", request=a_request(Verb.REBOOT)),
        idle("sick", group="a", faults=(a_fault(),)),
        idle("other", group="b"),
        idle("z", group="a"),
    ]
    others[0] = replace(others[0], is_idle=False)

    assert taken(planned(alone, *others)) == ["z"]
    assert taken(planned(alone, *others[:-1])) == []


def test_one_that_is_due_for_a_check_of_its_own_is_not_taken_as_well() -> None:
    policy = replace(POLICY, deep_check_every=timedelta(days=1))
    due = idle("z", record={"phase_since": NOW - timedelta(days=2)})

    actions = planned(under_test("n1"), due, policy=policy).actions

    assert [action.node for action in actions] == ["z"]


def test_a_job_that_is_placed_on_one_that_is_taken_runs_on() -> None:
    (taking,) = planned(under_test("n1"), idle("z")).actions

    assert taking.fault.urgency is Urgency.DEFERRED


def test_one_that_has_passed_a_check_is_taken_first() -> None:
    good = idle("z")
    good = replace(good, record=replace(good.record, checked_machine=good.machine))

    assert taken(planned(under_test("n1"), idle("a"), good)) == ["z"]


def test_one_is_enough_until_a_test_has_failed_and_then_up_to_four_take_part() -> None:
    idles = [idle(f"z{number}") for number in range(4)]
    pair = [under_test("n1"), under_test("n2", borrowed=True)]
    assert taken(planned(*pair, *idles)) == []

    failed = (outcome("n2", passed=False),)
    pair[0] = under_test("n1", tests=failed)
    plan = planned(*pair, *idles)
    assert taken(plan) == ["z0"]
    assert begun(plan) == {("n1", "n2")}

    more = [under_test(f"m{number}", borrowed=True) for number in range(ENOUGH - 2)]
    assert taken(planned(*pair, *more, *idles)) == []


def test_no_second_one_is_taken_while_the_first_is_on_its_way() -> None:
    remediation = under_test("z", borrowed=True).record.remediation
    on_the_way = a_node(Phase.DRAINING, name="z", record={"remediation": remediation})

    plan = planned(under_test("n1"), on_the_way, idle("y"))

    assert taken(plan) == []
    assert [type(action) for action in plan.actions] == [StartCheck]


@pytest.mark.parametrize("limit", [1, 2])
def test_nobody_is_taken_who_could_not_be_under_a_check(limit: int) -> None:
    policy = replace(POLICY, max_checking=Quota(count=limit))

    plan = planned(under_test("n1", since=NOW), idle("z"), policy=policy)

    assert taken(plan) == ["z"] * (limit - 1)
    if limit == 1:
        (action,) = plan.actions
        assert "no other node of its group" in action.check.remarks


def test_nobody_is_taken_for_a_doubt_who_could_not_be_under_a_check() -> None:
    policy = replace(POLICY, max_checking=Quota(count=2))
    pair = [under_test("n1", tests=(outcome("n2", passed=False),)), under_test("n2")]

    plan = planned(*pair, idle("z"), policy=policy)

    assert (taken(plan), begun(plan)) == ([], {("n1", "n2")})


def test_the_limit_holds_for_all_groups_together() -> None:
    policy = replace(POLICY, max_checking=Quota(count=3))
    groups = ("a", "b")
    alone = [under_test(f"n{group}", view={"group": group}) for group in groups]
    others = [idle(f"z{group}", group=group) for group in groups]

    assert len(taken(planned(*alone, *others, policy=policy))) == 1


def test_the_limit_holds_for_those_on_their_way_to_another_group() -> None:
    policy = replace(POLICY, max_checking=Quota(count=3))
    alone = [under_test(f"n{group}", view={"group": group}) for group in ("a", "b")]

    plan = planned(*alone, borrowed(Phase.DRAINING, group="a"), idle("y", group="b"), policy=policy)

    assert taken(plan) == []


def test_nobody_is_taken_while_the_breaker_is_open() -> None:
    plan = planned(
        under_test("n1", since=NOW), idle("z"), breaker=Breaker(tripped_at=NOW, reason="storm")
    )

    assert taken(plan) == []


def test_a_node_alone_passes_with_a_note_after_two_minutes_of_looking_for_another() -> None:
    nodes = (under_test("n1", since=NOW - PEER_WAIT), a_node(name="busy"))

    early = planned(*nodes, now=NOW - TICK)
    assert (early.actions, early.wake_at) == ((), NOW)
    (action,) = planned(*nodes).actions

    assert isinstance(action, Release)
    assert action.checked
    stress, connectivity = action.check.kinds
    assert (stress.outcome, connectivity.outcome) == (Outcome.PASSED, Outcome.SKIPPED)
    assert connectivity.detail == (
        "no other node of its group and type was available to test it with"
    )


def test_a_connectivity_check_without_another_node_is_skipped_and_no_pass() -> None:
    own = replace(OWN, kinds=())
    alone = under_test("n1", since=NOW - PEER_WAIT, own=own)
    requested = replace(alone, record=replace(alone.record, kinds=(DeepCheck.CONNECTIVITY,)))

    (action,) = planned(requested).actions

    assert isinstance(action, Release)
    assert not action.checked
    assert action.check.outcome is Outcome.SKIPPED
    assert deep_check_status(replace(requested, record=after(requested, action, NOW))) == "Skipped"


def test_a_node_alone_waits_for_those_that_are_still_checked_alone() -> None:
    coming = a_node(Phase.CHECKING, name="n2")
    alone = under_test("n1", since=NOW - PEER_WAIT)

    plan = planned(alone, coming, policy=replace(POLICY, deep_check_timeout=40 * MINUTE))

    assert plan.actions == ()
    assert plan.wake_at == alone.record.phase_since + 40 * MINUTE


# the other end


def borrowed(phase: Phase, **changes) -> NodeView:
    return a_node(
        phase,
        name="z",
        record={"remediation": under_test("z", borrowed=True).record.remediation},
        **changes,
    )


@pytest.mark.parametrize("phase", [Phase.QUARANTINED, Phase.DRAINING])
def test_one_that_got_a_job_or_is_not_needed_any_more_is_given_back(phase: Phase) -> None:
    needing_check = under_test("n1")
    free = borrowed(phase)

    wanted = planned(needing_check, free).actions
    assert [type(one) for one in wanted] == [Drain if phase is Phase.QUARANTINED else StartCheck]

    with_job = borrowed(phase, running_jobs=("train",))
    assert planned(needing_check, with_job).actions == (Release(node="z"),)
    assert Release(node="z") in planned(free).actions


@pytest.mark.parametrize("changes", [{"heartbeat_at": None}, {"faults": (a_fault(),)}])
def test_one_of_which_nothing_good_is_heard_is_not_given_back(changes) -> None:
    silent = borrowed(Phase.DRAINING, running_jobs=("train",), **changes)

    actions = planned(under_test("n1"), silent).actions

    assert Release(node="z") not in actions


def test_one_begins_with_tests_at_once_and_costs_no_budget() -> None:
    policy = replace(POLICY, max_unavailable=Quota(count=0))

    (drain,) = planned(under_test("n1"), borrowed(Phase.QUARANTINED), policy=policy).actions
    (begin,) = planned(under_test("n1"), borrowed(Phase.DRAINING), policy=policy).actions

    assert isinstance(drain, Drain)
    assert begin == StartCheck(node="z", pairing=Pairing(since=NOW))


def test_one_takes_no_place_of_a_repair() -> None:
    policy = replace(POLICY, max_unavailable=Quota(count=1))
    faulty = a_node(Phase.QUARANTINED, name="n2", provider_id="i-n2", faults=(a_fault(),))

    actions = planned(under_test("n1"), borrowed(Phase.DRAINING), faulty, policy=policy).actions

    assert Drain(node="n2") in actions


def test_a_machine_that_was_repaired_has_had_no_tests() -> None:
    remediation = a_remediation(ordered_at=NOW, machine="i-n1#boot-0")
    node = under_test("n1", tests=(outcome("n2", passed=False),))
    record = replace(
        node.record, phase=Phase.REBOOTING, remediation=remediation, kinds=(DeepCheck.STRESS,)
    )

    again = after(replace(node, record=record), Rejoin(node="n1"), NOW)

    assert (again.pairing, again.kinds) == (None, ())


def test_the_last_one_is_given_back_when_nobody_else_is_left() -> None:
    assert planned(under_test("z", borrowed=True)).actions == (Release(node="z"),)


def test_what_it_passed_before_is_not_replaced_by_what_others_were_tested_for() -> None:
    nodes = settled()
    nodes[3] = replace(
        nodes[3],
        record=replace(
            nodes[3].record, remediation=under_test("z", borrowed=True).record.remediation
        ),
    )

    action = next(one for one in planned(*nodes).actions if one.node == "n4")

    assert action == Release(node="n4")


def test_pools_short_of_peers_are_those_with_few_nodes_under_test() -> None:
    one, other = (
        replace(under_test("n"), group="a"),
        replace(under_test("n", borrowed=True), group="a"),
    )
    few = [one] * (ENOUGH - 1)

    assert pools_short_of_peers(few) == {("a", one.instance_type)}
    assert pools_short_of_peers([*few, one]) == frozenset()
    assert pools_short_of_peers([other]) == frozenset()
    assert pools_short_of_peers([a_node()]) == frozenset()


def test_a_plan_names_the_pools_that_are_short_of_peers() -> None:
    one = replace(under_test("n"), group="a")

    assert planned(one).peer_pools == {("a", one.instance_type)}


@settings(max_examples=examples(100))
@given(
    st.lists(st.sampled_from(["under", "lent", "idle", "coming", "busy"]), max_size=9),
    st.booleans(),
)
def test_nothing_is_decided_twice_for_one_node(kinds: list[str], may_all: bool) -> None:
    make = {
        "under": under_test,
        "lent": lambda name: under_test(name, borrowed=True),
        "idle": idle,
        "coming": lambda name: a_node(Phase.CHECKING, name=name, check=OWN),
        "busy": lambda name: a_node(name=name),
    }
    nodes = [make[kind](f"n{number}") for number, kind in enumerate(kinds)]
    policy = POLICY if may_all else replace(POLICY, max_checking=Quota(count=2))

    actions = planned(*nodes, policy=policy).actions

    assert len({action.node for action in actions}) == len(actions)
