"""Which nodes are checked because a rank on them slows a job down, and which never are."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.job_resume import ResumePolicy, decide_job
from holdfast.decisions.lifecycle import STRAGGLER_PERIOD, after, inherited
from holdfast.decisions.pair_schedule import has_pairs
from holdfast.decisions.policy import JobPolicy, RecoveryMode, RemediationPolicy, StragglerAction
from holdfast.decisions.remediation import decide
from holdfast.decisions.straggler_nodes import JOB_CHECKS, straggler_nodes
from holdfast.decisions.taken_requests import is_request_taken
from holdfast.kit.quota import Quota
from holdfast.model.actions import (
    Drain,
    Quarantine,
    Release,
    StartAttempt,
    StartCheck,
    StopAttempt,
)
from holdfast.model.health import Remedy, Urgency
from holdfast.model.job_views import SlowRank
from holdfast.model.jobs import JobPhase
from holdfast.model.names import Condition, Reason
from holdfast.model.nodes import CheckResult, NodeView, Phase, StragglerCheck
from holdfast.model.requests import Verb
from tests.ports.builders import (
    NOW,
    a_cluster,
    a_fault,
    a_job,
    a_node,
    a_record,
    a_request,
    by_name,
)

TICK = timedelta(microseconds=1)
ALL = RemediationPolicy(max_unavailable=Quota.parse("100%"))
POLICY = ResumePolicy(job=JobPolicy(straggler_action=StragglerAction.PAIR_TEST), nodes=ALL)
LONG_AGO = {"phase_since": NOW - timedelta(days=9)}
NODES = tuple(
    a_node(name=f"node-{number}", provider_id=f"i-{number}", record=LONG_AGO)
    for number in range(1, 7)
)


def slow(node: str = "node-2", job: str = "job-1", phase: JobPhase = JobPhase.RUNNING, **changes):
    straggler = SlowRank(text=f"rank 5 on {node} is slow", node=node)
    return a_job(phase, spec={"name": job}, straggler=straggler, **changes)


def suspects(*jobs, nodes=NODES, policy=POLICY, now=NOW) -> list[str]:
    return [one.node for one in straggler_nodes(jobs, by_name(*nodes), policy, now)]


def with_record(node: NodeView, **changes) -> NodeView:
    return replace(node, record=replace(node.record, **changes))


def but(number: int, **changes) -> tuple[NodeView, ...]:
    return tuple(
        replace(node, **changes) if node.name == f"node-{number}" else node for node in NODES
    )


def test_the_node_gets_a_check_with_tests_between_nodes_once_its_jobs_end() -> None:
    job = slow()
    [one] = straggler_nodes([job], by_name(*NODES), POLICY, NOW)
    assert (one.node, one.request.verb, one.request.urgency) == (
        "node-2",
        Verb.DEEP_CHECK,
        Urgency.DEFERRED,
    )
    assert one.evidence == "job-1 attempt 1 reports: rank 5 on node-2 is slow"
    assert (one.request.reason, one.request.job) == (Reason.STRAGGLER_FOUND, "job-1")

    at_work = but(2, request=one.request, running_jobs=("job-1",))
    [action] = decide(a_cluster(*at_work), ALL, NOW).actions
    assert isinstance(action, Quarantine)
    assert (action.remedy, action.fault.condition) == (Remedy.NONE, Condition.REQUESTED)
    cordoned = replace(at_work[1], record=after(at_work[1], action, NOW))
    nodes = tuple(cordoned if node.name == "node-2" else node for node in at_work)
    assert decide(a_cluster(*nodes), ALL, NOW).actions == ()
    assert not isinstance(decide_job(job, by_name(*nodes), POLICY, NOW), StopAttempt)
    waiting = replace(
        job, record=replace(job.record, phase=JobPhase.WAITING), ranks=(), straggler=None
    )
    start = decide_job(waiting, by_name(*nodes), POLICY, NOW)
    assert isinstance(start, StartAttempt)
    assert "node-2" not in start.placement

    idle = replace(cordoned, running_jobs=(), request=None)
    for expected in (Drain, StartCheck):
        [action] = decide(a_cluster(idle), ALL, NOW).actions
        assert isinstance(action, expected)
        idle = replace(idle, record=after(idle, action, NOW))
    assert has_pairs(idle, ALL), "the check ends with tests between nodes"
    assert idle.record.straggler_checks == (StragglerCheck(job="job-1", at=NOW),)


@pytest.mark.parametrize(
    "policy",
    [
        ResumePolicy(job=JobPolicy(), nodes=ALL),
        replace(POLICY, nodes=replace(ALL, node_recovery=RecoveryMode.NONE)),
        replace(POLICY, nodes=replace(ALL, max_unavailable=Quota(count=0))),
    ],
)
def test_without_the_policy_a_straggler_is_only_reported(policy) -> None:
    assert suspects(slow(), policy=policy) == []


@pytest.mark.parametrize("phase", [one for one in JobPhase if one is not JobPhase.RUNNING])
def test_only_a_running_attempt_has_a_straggler(phase) -> None:
    record = {"placement": ("node-1", "node-2")}
    assert suspects(slow(phase=phase, record=record)) == []


@pytest.mark.parametrize("node", ["", "node-3", "node-9", "node-2 ", "NODE-2"])
def test_a_line_may_name_only_a_node_of_the_attempt(node: str) -> None:
    assert suspects(slow(node)) == []


def test_a_node_that_is_gone_has_a_fault_a_request_or_a_hold_is_left_alone() -> None:
    assert suspects(slow(), nodes=[one for one in NODES if one.name != "node-2"]) == []
    assert suspects(slow(), nodes=but(2, faults=(a_fault(Remedy.REBOOT),))) == []
    assert suspects(slow(), nodes=but(2, request=a_request(Verb.REBOOT))) == []
    assert suspects(slow(), nodes=but(2, pause_reason="maintenance")) == []
    assert suspects(slow(), nodes=but(2, record=a_record(Phase.CHECKING))) == []


@pytest.mark.parametrize(("ago", "expected"), [(STRAGGLER_PERIOD, ["node-2"]),
                                               (STRAGGLER_PERIOD - TICK, [])])  # fmt: skip
@pytest.mark.parametrize("key", ["checks", "cleared_at", "straggler_checks"])
def test_a_check_or_a_release_answers_the_lines_of_a_day(key: str, ago, expected) -> None:
    at = NOW - ago
    value = {
        "checks": (CheckResult(passed=True, ended_at=at),),
        "cleared_at": at,
        "straggler_checks": (StragglerCheck(job="another", at=at),),
    }[key]
    nodes = tuple(
        with_record(node, **{key: value}) if node.name == "node-2" else node for node in NODES
    )

    assert suspects(slow(), nodes=nodes) == expected


@pytest.mark.parametrize(("ago", "expected"), [(STRAGGLER_PERIOD, ["node-2"]),
                                               (STRAGGLER_PERIOD - TICK, [])])  # fmt: skip
def test_a_job_leads_to_two_checks_in_a_day(ago, expected) -> None:
    """One has ended, of the other only the request is there."""
    past = (StragglerCheck(job="job-1", at=NOW - ago),)
    waits = a_request(Verb.DEEP_CHECK, job="job-1")
    nodes = [
        with_record(node, straggler_checks=past) if node.name == "node-5" else node
        for node in but(6, request=waits)
    ]

    assert JOB_CHECKS == 2
    assert suspects(slow(), nodes=nodes) == expected
    assert suspects(slow(job="job-2"), nodes=nodes) == ["node-2"], "others are not affected"


def test_two_jobs_that_name_the_same_node_lead_to_one_request() -> None:
    assert suspects(slow(job="job-2"), slow(job="job-1")) == ["node-2"]


def test_the_budget_of_unavailable_nodes_limits_the_requests() -> None:
    policy = replace(POLICY, nodes=replace(ALL, max_unavailable=Quota(count=2)))
    jobs = [slow(f"node-{number}", f"job-{number}", nodes=6) for number in (4, 2, 3)]

    assert suspects(*jobs, policy=policy) == ["node-2", "node-3"]
    busy = but(6, record=a_record(Phase.REBOOTING))
    assert suspects(*jobs, policy=policy, nodes=busy) == ["node-2"]


def test_the_checks_of_a_machine_count_for_the_one_that_replaces_it() -> None:
    recent = StragglerCheck(job="job-1", at=NOW - timedelta(hours=1))
    old = StragglerCheck(job="job-1", at=NOW - STRAGGLER_PERIOD)
    leaving = a_record(Phase.REPLACING, straggler_checks=(old, recent))

    assert inherited(a_record(Phase.JOINING), leaving, NOW).straggler_checks == (recent,)


# A job that writes any line at any time

PLACES = {
    "job-1": ("node-1", "node-2", "node-3", "node-4", "node-5"),
    "job-2": ("node-4", "node-5", "node-6"),
}
NAMES = [f"node-{number}" for number in range(1, 8)]


@dataclass(frozen=True, slots=True)
class Turn:
    after: timedelta
    named: dict[str, str]
    running: frozenset[str]
    passes: bool


turns = st.lists(
    st.builds(
        Turn,
        after=st.sampled_from(
            [TICK, timedelta(minutes=1), timedelta(hours=5), STRAGGLER_PERIOD - TICK]
        ),
        named=st.dictionaries(st.sampled_from([*PLACES]), st.sampled_from(NAMES), min_size=1),
        running=st.sampled_from([frozenset(PLACES), frozenset({"job-1"}), frozenset()]),
        passes=st.booleans(),
    ),
    min_size=1,
    max_size=30,
)


class World:
    """Nodes under the core, with jobs that end and begin as they like."""

    def __init__(self) -> None:
        self.now, self.nodes = NOW, by_name(*NODES)
        self.checks: list[tuple[str, str, datetime]] = []

    def turn(self, turn: Turn) -> None:
        self.now += turn.after
        jobs = [
            slow(turn.named.get(name, ""), name, record={"placement": place, "phase_since": NOW})
            for name, place in PLACES.items()
            if name in turn.running
        ]
        for name, node in self.nodes.items():
            running = tuple(job.spec.name for job in jobs if name in job.record.placement)
            heartbeat = self.now - timedelta(seconds=1)
            self.nodes[name] = replace(node, running_jobs=running, heartbeat_at=heartbeat)
        for one in straggler_nodes(jobs, self.nodes, POLICY, self.now):
            assert one.node in PLACES[one.request.job], "only a node of the job"
            self.nodes[one.node] = replace(self.nodes[one.node], request=one.request)
        for _ in range(4):
            self._act()
        self._finish_checks(passes=turn.passes)

    def _act(self) -> None:
        for action in decide(a_cluster(*self.nodes.values()), ALL, self.now).actions:
            node = self.nodes[action.node]
            assert isinstance(action, Quarantine | Drain | StartCheck), "a check, never a repair"
            if not isinstance(action, Quarantine):
                assert not node.running_jobs, "no running job is interrupted"
            elif node.request is not None:
                self.checks.append((node.request.job, node.name, self.now))
            self._put(node, after(node, action, self.now))

    def _finish_checks(self, *, passes: bool) -> None:
        for node in [*self.nodes.values()]:
            if node.record.phase is not Phase.CHECKING:
                continue
            self._put(node, after(node, Release(node=node.name, checked=True), self.now))
            if not passes:  # it is replaced
                new = replace(inherited(a_record(), node.record, self.now), remediation=None)
                self._put(node, new)

    def _put(self, node: NodeView, record) -> None:
        node = replace(node, record=record)
        self.nodes[node.name] = replace(node, request=None) if is_request_taken(node) else node


@pytest.mark.attack
@given(turns)
def test_whatever_jobs_write_checks_are_few_and_interrupt_nothing(given) -> None:
    world = World()
    for turn in given:
        world.turn(turn)

    for _, _, at in world.checks:
        day = [one for one in world.checks if at <= one[2] < at + STRAGGLER_PERIOD]
        for job in PLACES:
            assert sum(one[0] == job for one in day) <= JOB_CHECKS
        for name in NAMES:
            assert sum(one[1] == name for one in day) <= 1


@given(turns)
def test_without_the_policy_no_line_does_anything(given) -> None:
    policy = ResumePolicy(job=JobPolicy(), nodes=ALL)
    for turn in given:
        jobs = [slow(turn.named.get(name, ""), name, nodes=6) for name in turn.running]
        assert straggler_nodes(jobs, by_name(*NODES), policy, NOW) == ()
