"""Which nodes are checked because of log lines that may be forged."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.policy import RecoveryMode, RemediationPolicy
from holdfast.decisions.remediation import decide
from holdfast.decisions.suspect_nodes import CHECK_INTERVAL, uncorroborated_nodes
from holdfast.kit.quota import Quota
from holdfast.model.actions import Quarantine
from holdfast.model.health import Fault, Remedy, Urgency
from holdfast.model.names import Reason
from holdfast.model.nodes import Breaker, CheckResult, NodeView, Phase
from holdfast.model.requests import Verb
from tests.ports.builders import NOW, a_cluster, a_fault, a_node, a_request

POLICY = RemediationPolicy(max_unavailable=Quota.parse("100%"))
SUSPECT = replace(a_fault(since=NOW - timedelta(hours=1)), corroborated_within=timedelta(minutes=5))


def a_suspect(
    *suspects: Fault, name: str = "node-1", phase: Phase = Phase.SCHEDULABLE, **record: object
) -> NodeView:
    return a_node(
        phase,
        name=name,
        provider_id=f"i-{name}",
        suspects=suspects or (SUSPECT,),
        record={"phase_since": NOW - timedelta(days=9), **record},
    )


def checked(*nodes: NodeView, policy: RemediationPolicy = POLICY) -> list[str]:
    return [one.node for one in uncorroborated_nodes(a_cluster(*nodes), policy, NOW)]


def a_check(ago: timedelta) -> CheckResult:
    return CheckResult(passed=True, ended_at=NOW - ago)


def test_a_node_with_a_suspect_is_checked_once_its_jobs_have_ended_and_never_repaired() -> None:
    node = a_suspect()
    [one] = uncorroborated_nodes(a_cluster(node), POLICY, NOW)
    assert (one.request.verb, one.request.urgency) == (Verb.DEEP_CHECK, Urgency.DEFERRED)
    assert one.request.reason == Reason.FAULT_UNCORROBORATED
    assert SUSPECT.message in one.evidence

    [action] = decide(a_cluster(replace(node, request=one.request)), POLICY, NOW).actions

    assert isinstance(action, Quarantine)
    assert (action.fault.reason, action.fault.remedy) == (
        Reason.FAULT_UNCORROBORATED,
        Remedy.NONE,
    )


def test_a_suspect_alone_does_nothing_to_its_node() -> None:
    assert decide(a_cluster(a_suspect()), POLICY, NOW).actions == ()


def test_who_forges_lines_has_a_node_checked_once_a_day_at_most() -> None:
    newest = replace(SUSPECT, seen_at=NOW)

    assert checked(a_suspect(newest, checks=(a_check(CHECK_INTERVAL),))) == ["node-1"]
    assert checked(a_suspect(newest, checks=(a_check(CHECK_INTERVAL / 2),))) == []


def test_a_check_or_a_release_after_the_line_answers_it() -> None:
    old = replace(SUSPECT, since=NOW - timedelta(days=4))

    assert checked(a_suspect(old, checks=(a_check(timedelta(days=5)),))) == ["node-1"]
    assert checked(a_suspect(old, checks=(a_check(timedelta(days=3)),))) == []
    assert checked(a_suspect(cleared_at=NOW)) == []


def test_a_node_that_is_not_at_work_is_not_checked() -> None:
    assert checked(a_suspect(phase=Phase.QUARANTINED)) == []
    assert checked(replace(a_suspect(), request=a_request(Verb.REBOOT))) == []
    assert checked(replace(a_suspect(), pause_reason="maintenance")) == []
    assert checked(replace(a_suspect(), faults=(a_fault(),))) == []


def test_nothing_is_checked_without_recovery_or_with_an_open_breaker() -> None:
    off = RemediationPolicy(node_recovery=RecoveryMode.NONE)
    cluster = replace(a_cluster(a_suspect()), breaker=Breaker(tripped_at=NOW))

    assert checked(a_suspect(), policy=off) == []
    assert uncorroborated_nodes(cluster, POLICY, NOW) == ()


@given(st.integers(0, 6), st.integers(1, 6), st.integers(0, 6))
def test_checks_stay_within_the_budget_of_repairs(forged: int, budget: int, away: int) -> None:
    nodes = [a_suspect(name=f"node-{number}") for number in range(forged)]
    others = [
        a_node(Phase.REBOOTING, name=f"away-{number}", provider_id=f"i-a{number}")
        for number in range(away)
    ]
    policy = RemediationPolicy(max_unavailable=Quota.parse(budget))

    assert len(checked(*nodes, *others, policy=policy)) == max(0, min(forged, budget - away))


def test_the_request_stays_the_same_until_it_is_answered() -> None:
    nodes = (a_suspect(), a_suspect(SUSPECT, replace(SUSPECT, device="other", seen_at=NOW)))
    first, second = (uncorroborated_nodes(a_cluster(node), POLICY, NOW)[0] for node in nodes)

    assert first.request.id == second.request.id
