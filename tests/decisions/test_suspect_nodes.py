"""Who is sent to a deep check because jobs keep dying there, and who never is."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.faults import request_fault
from holdfast.decisions.job_resume import ResumePolicy
from holdfast.decisions.policy import JobPolicy, RecoveryMode, RemediationPolicy
from holdfast.decisions.remediation import decide
from holdfast.decisions.suspect_nodes import suspect_nodes
from holdfast.kit.quota import Quota
from holdfast.model.actions import Quarantine
from holdfast.model.health import Urgency
from holdfast.model.jobs import AttemptRecord, Failure, FailureKind
from holdfast.model.names import Cause, Condition, Reason
from holdfast.model.nodes import Phase
from holdfast.model.requests import Verb
from tests.ports.builders import NOW, a_cluster, a_fault, a_node, a_request, by_name

WINDOW = timedelta(hours=24)
POLICY = ResumePolicy(job=JobPolicy(), nodes=RemediationPolicy())
LONG_AGO = {"phase_since": NOW - timedelta(days=9)}
NODES = tuple(
    a_node(name=f"node-{number}", provider_id=f"i-{number}", record=LONG_AGO)
    for number in range(1, 6)
)


def died(
    node: str = "node-1",
    number: int = 1,
    job: str = "job-1",
    *,
    ago: timedelta = timedelta(hours=1),
    kind: FailureKind = FailureKind.APPLICATION,
    reason: Reason = Reason.RANK_EXITED,
    placement: tuple[str, ...] = ("node-5", "node-1", "node-2", "node-3"),
    is_alone: bool | None = True,
    cause: str = "",
) -> tuple[str, AttemptRecord]:
    at = NOW - ago
    failure = Failure(kind=kind, reason=reason, at=at, node=node, is_alone=is_alone, cause=cause)
    over = AttemptRecord(
        attempt=number, placement=placement, started_at=at, stopped_at=at, failure=failure
    )
    return job, over


def three(**changes) -> list[tuple[str, AttemptRecord]]:
    return [died(number=number, **changes) for number in (1, 2, 3)]


def accused(attempts, nodes=NODES, policy=POLICY) -> list[str]:
    return [one.node for one in suspect_nodes(attempts, by_name(*nodes), policy, NOW)]


def test_a_node_on_which_a_job_dies_again_and_again_is_checked_when_no_job_is_on_it() -> None:
    attempts = [died(number=number, ago=timedelta(hours=9 - number)) for number in range(1, 8)]

    (one,) = suspect_nodes(attempts, by_name(*NODES), POLICY, NOW)

    assert (one.node, one.failures) == ("node-1", 7)
    assert one.evidence == (
        "7 job failures within 1d began on this node and on no other: job-1 attempt 7, job-1 "
        "attempt 6, job-1 attempt 5, job-1 attempt 4, job-1 attempt 3 and 2 earlier"
    )
    assert (one.request.verb, one.request.urgency) == (Verb.DEEP_CHECK, Urgency.DEFERRED)


def test_the_evidence_is_that_of_the_incident() -> None:
    (one,) = suspect_nodes(three(), by_name(*NODES), POLICY, NOW)
    requested = replace(NODES[0], request=one.request)

    plan = decide(a_cluster(requested, *NODES[1:]), POLICY.nodes, NOW)

    (action,) = plan.actions
    assert isinstance(action, Quarantine)
    assert (action.fault.reason, action.fault.condition) == (
        Reason.JOBS_KEEP_FAILING,
        Condition.REQUESTED,
    )
    assert one.evidence in action.fault.message
    assert request_fault(a_request(Verb.DEEP_CHECK)).reason == Reason.REQUESTED_DEEP_CHECK


@pytest.mark.parametrize(
    ("attempts", "why"),
    [
        (three()[:2], "too few"),
        ([*three()[:2], died(number=3, ago=WINDOW)], "one is too old"),
        ([*three(), died("node-2", 4)], "the job dies elsewhere, too"),
        (three(kind=FailureKind.HARDWARE), "a repair has answered them"),
        (three(kind=FailureKind.REQUESTED), "nothing failed"),
        (three(reason=Reason.JOB_HUNG), "nobody knows which rank hangs"),
        (three(node=""), "no node is named"),
        (three(node="node-9"), "the node is gone"),
        (three(cause=Cause.DISK_FULL), "jobs share the disk"),
        ([*three(cause=Cause.FILE_MISSING)[:2], died(number=3, cause=Cause.DISK_FULL)], "too few"),
        (three(placement=("node-1", "node-2")), "rank 0 fails first where all fail"),
        (
            [
                *three(placement=("node-1", "node-2")),
                died(job="job-2", placement=("node-1", "node-3")),
            ],
            "in both jobs",
        ),
        (three(placement=("node-1",)), "the job never had another node"),
        ([*three()[:2], died(number=3, placement=("node-1",))], "nor had it the last time"),
        (three(is_alone=False), "all ranks failed at once, and which one ends first is chance"),
        (three(is_alone=None), "nobody saw whether other ranks failed, too"),
        (
            [
                died(number=1, ago=timedelta(hours=3)),
                died(number=2, ago=timedelta(hours=2), is_alone=None),
                died(number=3, is_alone=None),
            ],
            "nobody saw it after the first failure",
        ),
        ([*three()[:2], died(number=3, is_alone=False)], "they did the last time"),
        ([*three(), died(number=4, is_alone=False)], "they did once"),
        (
            [died(job=f"job-{number}", is_alone=False) for number in (1, 2, 3)],
            "each job failed on other nodes, too",
        ),
    ],
)
def test_what_accuses_nobody(attempts, why) -> None:
    assert accused(attempts) == [], why


@pytest.mark.parametrize(
    "attempts",
    [
        [*three()[:2], died(number=3, ago=WINDOW - timedelta(microseconds=1))],
        [died(job=f"job-{number}", placement=("node-1",)) for number in (1, 2, 3)],
        [*three()[:1], *three(placement=("node-1", "node-2"))[1:]],
        [*three(), died("node-2", 1, "job-2"), died("node-3", 2, "job-2")],
        [*three(), died("node-2", 4, ago=WINDOW)],
        [*three(), died("node-2", 4, kind=FailureKind.HARDWARE)],
        [*three(), died("", 4, reason=Reason.JOB_HUNG)],
        [*three(), died(number=4, is_alone=None)],
        [died(ago=timedelta(hours=2), is_alone=None), *three()[1:]],
        [died(job=f"job-{number}", is_alone=None) for number in (1, 2, 3)],
    ],
)
def test_what_accuses_a_node(attempts) -> None:
    assert accused(attempts) == ["node-1"]


@pytest.mark.parametrize(
    "node",
    [
        a_node(record={"phase_since": NOW - timedelta(hours=1)}),
        a_node(Phase.QUARANTINED, record=LONG_AGO),
        a_node(Phase.CHECKING, record=LONG_AGO),
        a_node(Phase.JOINING, record=LONG_AGO),
        a_node(record=LONG_AGO, request=a_request(Verb.REBOOT)),
        a_node(record=LONG_AGO, pause_reason="mine"),
        a_node(record=LONG_AGO, faults=(a_fault(),)),
        a_node(record=LONG_AGO, powered_on=False),
    ],
)
def test_a_node_that_had_its_answer_or_gets_one_is_left_alone(node) -> None:
    assert accused(three(), [node, *NODES[1:]]) == []


def test_failures_since_a_node_was_given_to_jobs_again_accuse_it_anew() -> None:
    released = a_node(record={"phase_since": NOW - timedelta(hours=2)})
    before = [died(number=number, ago=timedelta(hours=3)) for number in (1, 2, 3)]

    assert accused(before, [released, *NODES[1:]]) == []
    assert accused([*before, *three()], [released, *NODES[1:]]) == ["node-1"]


def test_recovery_mode_none_sends_nobody_to_a_check() -> None:
    nodes = RemediationPolicy(node_recovery=RecoveryMode.NONE)

    assert accused(three(), policy=replace(POLICY, nodes=nodes)) == []


def test_0_failures_switch_it_off_and_1_is_no_number() -> None:
    assert accused(three(), policy=replace(POLICY, job=JobPolicy(suspect_failures=0))) == []
    for failures in (1, -1):
        with pytest.raises(ValueError, match="suspect_failures"):
            JobPolicy(suspect_failures=failures)
    with pytest.raises(ValueError, match="suspect_window"):
        JobPolicy(suspect_window=timedelta(0))


@pytest.mark.parametrize(
    ("allowed", "others", "expected"),
    [
        (2, NODES[2:], ["node-2", "node-1"]),
        (1, NODES[2:], ["node-2"]),
        (0, NODES[2:], []),
        (2, (a_node(Phase.REPLACING, name="node-3"), *NODES[3:]), ["node-2"]),
        (2, (a_node(name="node-3", request=a_request(Verb.REBOOT)), *NODES[3:]), ["node-2"]),
    ],
)
def test_no_more_nodes_are_taken_than_may_be_away_and_the_worst_first(
    allowed, others, expected
) -> None:
    nodes = RemediationPolicy(max_unavailable=Quota(count=allowed))
    attempts = [*three(), *(died("node-2", number, "job-2") for number in range(1, 5))]

    found = accused(attempts, (*NODES[:2], *others), replace(POLICY, nodes=nodes))

    assert found == expected


def test_the_same_failures_make_the_same_request_and_another_one_makes_another() -> None:
    (one,) = suspect_nodes(three(), by_name(*NODES), POLICY, NOW)
    later = NOW + timedelta(minutes=1)
    nodes = by_name(*(replace(node, heartbeat_at=later) for node in NODES))

    (again,) = suspect_nodes(reversed(three()), nodes, POLICY, later)
    (more,) = suspect_nodes([*three(), died(number=4, ago=timedelta(0))], nodes, POLICY, later)

    assert again.request.id == one.request.id
    assert more.request.id != one.request.id


deaths = st.lists(
    st.builds(
        died,
        st.sampled_from(["node-1", "node-2", "node-3", ""]),
        st.integers(1, 9),
        st.sampled_from(["job-1", "job-2"]),
        ago=st.sampled_from([timedelta(0), timedelta(hours=1), WINDOW, WINDOW * 2]),
        kind=st.sampled_from(list(FailureKind)),
        reason=st.sampled_from([Reason.RANK_EXITED, Reason.JOB_HUNG]),
        is_alone=st.sampled_from([True, False, None]),
    ),
    max_size=12,
)


@given(deaths)
def test_an_accusation_rests_on_enough_failures_of_jobs_that_died_nowhere_else(attempts) -> None:
    for one in suspect_nodes(attempts, by_name(*NODES), POLICY, NOW):
        counted = [
            (job, over.failure)
            for job, over in attempts
            if over.failure.kind is FailureKind.APPLICATION
            and over.failure.reason == Reason.RANK_EXITED
            and over.failure.node
            and over.failure.at > NOW - WINDOW
        ]
        elsewhere = {
            job for job, failure in counted if failure.node != one.node or failure.is_alone is False
        }
        here = [
            (job, failure)
            for job, failure in counted
            if failure.node == one.node and job not in elsewhere
        ]
        alone = [failure for _, failure in here if failure.is_alone]
        are_different = len({job for job, _ in here}) > 1
        assert one.failures >= 3
        if are_different:
            assert one.failures == len(here)
        else:
            assert alone
            assert one.failures <= len(alone) + 1


@given(deaths)
def test_one_job_accuses_no_node_on_which_it_did_not_fail_alone(attempts) -> None:
    unseen = [
        ("job-1", replace(over, failure=replace(over.failure, is_alone=None)))
        for _, over in attempts
    ]

    assert accused(unseen) == []


@given(deaths)
def test_failures_of_several_ranks_at_once_accuse_nobody_however_many_jobs_fail(attempts) -> None:
    shared = [
        (job, replace(over, failure=replace(over.failure, is_alone=False)))
        for job, over in attempts
    ]

    assert accused(shared) == []


@given(deaths)
def test_deaths_that_all_began_on_the_node_of_rank_0_accuse_nobody(attempts) -> None:
    by_rank_0 = [
        (job, replace(over, placement=(over.failure.node, "node-4"))) for job, over in attempts
    ]

    assert accused(by_rank_0) == []


@given(deaths)
def test_full_disks_accuse_nobody_however_many_jobs_fail(attempts) -> None:
    full = [
        (job, replace(over, failure=replace(over.failure, cause=Cause.DISK_FULL)))
        for job, over in attempts
    ]

    assert accused(full) == []


@given(deaths, st.permutations(range(12)))
def test_the_order_in_which_jobs_are_read_does_not_matter(attempts, order) -> None:
    shuffled = [attempts[index] for index in order if index < len(attempts)]

    assert {one.request.id for one in suspect_nodes(attempts, by_name(*NODES), POLICY, NOW)} == {
        one.request.id for one in suspect_nodes(shuffled, by_name(*NODES), POLICY, NOW)
    }


@given(deaths)
def test_a_node_that_was_asked_for_is_not_asked_for_again(attempts) -> None:
    found = suspect_nodes(attempts, by_name(*NODES), POLICY, NOW)
    requested = {one.node: one.request for one in found}
    nodes = [replace(node, request=requested.get(node.name)) for node in NODES]

    again = suspect_nodes(attempts, by_name(*nodes), POLICY, NOW)

    assert not {one.node for one in again} & set(requested)
