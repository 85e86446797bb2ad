"""What needs a person, and in which order."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.attention import Attention, Topic, needs_attention
from holdfast.decisions.watched_fleets import WatchedFleet, WatchedJob, WatchedNode
from holdfast.model.checkpoint_manifests import SaveSummary
from holdfast.model.health import Remedy, Urgency
from holdfast.model.incidents import Incident
from holdfast.model.names import Reason
from holdfast.model.nodes import Breaker, Phase, Remediation
from holdfast.model.requests import Request, Verb
from holdfast.model.sagemaker import EventLevel

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def repair(**more: object) -> Remediation:
    fields: dict = {
        "incident_id": "i1",
        "opened_at": ago(90),
        "condition": "NodeFault",
        "reason": "Xid",
        "remedy": Remedy.REBOOT,
        "urgency": Urgency.IMMEDIATE,
        **more,
    }
    return Remediation(**fields)


def node(name: str, phase: Phase = Phase.SCHEDULABLE, **more: object) -> WatchedNode:
    fields: dict = {"name": name, "phase": phase, "phase_since": ago(60), **more}
    return WatchedNode(**fields)


def job(phase: str = "waiting", **more: object) -> WatchedJob:
    fields: dict = {
        "ref": "gpt2", "phase": phase, "phase_since": ago(17), "reason": "", "nodes": 6, **more,
    }  # fmt: skip
    return WatchedJob(**fields)


def fleet(*nodes: WatchedNode, **more: object) -> WatchedFleet:
    fields: dict = {"name": "prod", "is_active": True, "nodes": nodes, **more}
    return WatchedFleet(**fields)


def incident(name: str, drained_s: float, released_s: float | None = None) -> Incident:
    return Incident(
        id=name,
        node=name,
        provider_id=name,
        reason="Xid",
        remedy="reboot",
        detected_at=ago(drained_s),
        quarantined_at=ago(drained_s),
        drained_at=ago(drained_s),
        released_at=None if released_s is None else ago(released_s),
    )


def items(one: WatchedFleet) -> list[Attention]:
    return needs_attention([one], NOW)


FREE = [node(f"n{number}") for number in range(5)]
REBOOTING = node("i-3aa", Phase.REBOOTING, remediation=repair())


def test_a_stalled_job_is_reported_with_its_numbers_and_what_it_waits_for() -> None:
    past = [incident("a", 500, 440), incident("b", 900, 840), incident("c", 2000, 1000)]
    now = incident("i1", 30)

    [item] = items(fleet(*FREE, REBOOTING, jobs=[job()], incidents=[*past, now]))

    assert item.topic is Topic.STALLED_JOB
    assert item.what == (
        "gpt2 has waited 17s: needs 6 nodes, has 5; i-3aa is rebooting, about 30s left"
    )
    assert item.next == "wait for the nodes above, or free other nodes"
    assert (item.job, item.node, item.since) == ("gpt2", "", ago(17))


def test_without_earlier_repairs_nothing_is_estimated() -> None:
    [item] = items(fleet(*FREE, REBOOTING, jobs=[job()], incidents=[incident("i1", 30)]))

    assert item.what.endswith("i-3aa is rebooting for 1m")


def test_a_repair_that_takes_longer_than_usual_is_reported() -> None:
    known = [incident("a", 500, 490), incident("i1", 30)]
    [item] = items(fleet(*FREE, REBOOTING, jobs=[job()], incidents=known))

    assert item.what.endswith("i-3aa is rebooting, 20s longer than usual")


def test_the_message_says_if_no_repair_brings_enough_nodes_back() -> None:
    [item] = items(fleet(*FREE, jobs=[job()]))

    assert item.next.startswith("add nodes")


def test_at_most_three_nodes_are_named() -> None:
    away = [node(f"x{number}", Phase.REPLACING) for number in range(5)]
    [item] = items(fleet(*away, jobs=[job()]))

    assert item.what.count(" is replacing") == 3
    assert item.what.endswith("2 more are out of service")


@pytest.mark.parametrize(
    "unusable",
    [
        {"phase": Phase.CHECKING},
        {"closed": "drained by root"},
        {"is_faulty": True},
        {"jobs": frozenset(["other"])},
        {"request": Request(id="1", verb=Verb.REBOOT, requested_at=NOW)},
        {"pool": ("b", "")},
    ],
    ids=lambda one: next(iter(one)),
)
def test_a_node_that_a_job_cannot_start_on_does_not_count(unusable) -> None:
    waiting = job(last_pools=frozenset([("a", "")]))
    six = [node(f"n{number}", pool=("a", "")) for number in range(6)]
    assert items(fleet(*six, jobs=[waiting])) == []

    six[0] = replace(six[0], **unusable)
    assert [one.topic for one in items(fleet(*six, jobs=[waiting]))] == [Topic.STALLED_JOB]


def test_a_requested_check_and_the_own_ranks_do_not_block_a_node() -> None:
    check = Request(id="1", verb=Verb.DEEP_CHECK, requested_at=NOW)
    nodes = [node(f"n{number}", request=check, jobs=frozenset(["gpt2"])) for number in range(6)]

    assert items(fleet(*nodes, jobs=[job()])) == []


def test_an_open_breaker_is_reported_first_and_explains_the_waiting_repairs() -> None:
    breaker = Breaker(tripped_at=ago(10), reason="5 of 6 nodes turned faulty")
    waiting = node("n1", Phase.QUARANTINED, remediation=repair())

    found = items(fleet(waiting, breaker=breaker, jobs=[job()]))

    assert [one.topic for one in found] == [Topic.BREAKER, Topic.STALLED_JOB]
    assert "open for 10s, all repairs paused: 5 of 6" in found[0].what


@pytest.mark.parametrize(
    ("phase", "more", "topic", "words"),
    [
        (
            Phase.REPLACING,
            {"remediation": repair(replacements=2)},
            Topic.FAILED_REPAIR,
            "1 of 2 replacement orders",
        ),
        (
            Phase.REBOOTING,
            {"remediation": repair(retry_at=NOW + timedelta(seconds=20))},
            Topic.PROVIDER_REFUSES,
            "has refused the order to reboot it for 1m; retrying in 20s",
        ),
        (
            Phase.REBOOTING,
            {"remediation": repair(retry_at=ago(1), is_outcome_unknown=True)},
            Topic.PROVIDER_REFUSES,
            "did not respond to the order to reboot it for 1m; retrying in 0s",
        ),
        (
            Phase.QUARANTINED,
            {"remediation": repair()},
            Topic.REPAIR_WAITS,
            "reboot for Xid has not started for 1m",
        ),
        (
            Phase.QUARANTINED,
            {"remediation": repair(), "replaced_at": (ago(60), ago(7200))},
            Topic.REPAIR_WAITS,
            "1 in the last hour, 2 in 24h",
        ),
        (
            Phase.QUARANTINED,
            {"remediation": repair(), "pause_reason": "new cable"},
            Topic.REPAIR_PAUSED,
            "paused for 1m: new cable",
        ),
        (
            Phase.QUARANTINED,
            {"remediation": repair(reason=Reason.REQUESTED_REBOOT)},
            Topic.PLANNED_WAITS,
            f"reboot for {Reason.REQUESTED_REBOOT} has not started for 1m",
        ),
        (
            Phase.QUARANTINED,
            {"remediation": repair(reason=Reason.REQUESTED_REPLACE), "pause_reason": "later"},
            Topic.PLANNED_WAITS,
            "paused for 1m: later",
        ),
        (
            Phase.SCHEDULABLE,
            {"silent_since": ago(120)},
            Topic.SILENT_AGENT,
            "silent for 2m",
        ),
        (
            Phase.QUARANTINED,
            {"silent_since": ago(120), "remediation": repair(remedy=Remedy.NONE)},
            Topic.SILENT_AGENT,
            "silent for 2m",
        ),
    ],
)
def test_a_node_in_trouble_is_reported(phase, more, topic, words) -> None:
    [item] = items(fleet(node("n1", phase, **more)))

    assert (item.topic, item.node, item.fleet) == (topic, "n1", "prod")
    assert words in item.what
    assert item.next
    is_fault = topic is not Topic.PLANNED_WAITS
    assert item.level is (EventLevel.ERROR if is_fault else EventLevel.INFO)


@pytest.mark.parametrize(
    ("phase", "more"),
    [
        (Phase.SCHEDULABLE, {"pause_reason": "why not"}),
        (Phase.REBOOTING, {"remediation": repair(ordered_at=ago(5))}),
        (Phase.REBOOTING, {"remediation": repair(ordered_at=ago(5), retry_at=NOW)}),
        (Phase.REPLACING, {"remediation": repair(replacements=1)}),
        (Phase.DRAINING, {"remediation": repair()}),
        (Phase.CHECKING, {"remediation": repair(remedy=Remedy.NONE)}),
        (
            Phase.QUARANTINED,
            {"remediation": repair(urgency=Urgency.DEFERRED), "jobs": frozenset(["gpt2"])},
        ),
    ],
)
def test_a_repair_that_proceeds_needs_nobody(phase, more) -> None:
    assert items(fleet(node("n1", phase, **more))) == []


def test_a_failed_job_is_reported_for_a_day() -> None:
    day = 86400
    failed = job("failed", phase_since=ago(day - 1), reason="retries exhausted")
    interrupted = job("interrupted", is_interrupted=True)

    assert [one.topic for one in items(fleet(jobs=[failed, interrupted]))] == [
        Topic.FAILED_JOB,
        Topic.FAILED_JOB,
    ]
    assert "failed 23h59m ago: retries exhausted" in items(fleet(jobs=[failed]))[0].what
    assert items(fleet(jobs=[replace(failed, phase_since=ago(day))])) == []
    assert items(fleet(jobs=[job("succeeded"), job("cancelled"), job("running")])) == []


def test_of_a_fleet_that_is_not_active_only_jobs_count() -> None:
    one = fleet(
        node("n1", Phase.QUARANTINED, remediation=repair()),
        is_active=False,
        breaker=Breaker(tripped_at=NOW),
        jobs=[job(), job("failed")],
    )

    assert [item.topic for item in items(one)] == [Topic.FAILED_JOB]


phases = st.sampled_from(Phase)
nodes = st.builds(
    node,
    st.text("abc", min_size=1, max_size=2),
    phases,
    remediation=st.none()
    | st.builds(
        repair,
        remedy=st.sampled_from(Remedy),
        urgency=st.sampled_from(Urgency),
        replacements=st.integers(0, 3),
        retry_at=st.none() | st.just(NOW),
        ordered_at=st.none() | st.just(ago(1)),
    ),
    pause_reason=st.sampled_from(["", "why"]),
    silent_since=st.none() | st.just(ago(50)),
)


@given(st.lists(nodes, max_size=5), st.booleans(), st.lists(st.builds(job), max_size=2))
def test_items_are_ordered_by_urgency_and_a_node_has_one_at_most(found, is_open, jobs) -> None:
    breaker = Breaker(tripped_at=NOW if is_open else None)
    result = items(fleet(*found, breaker=breaker, jobs=jobs))

    order = list(Topic)
    ranks = [order.index(one.topic) for one in result]
    assert ranks == sorted(ranks)
    assert len([one for one in result if one.node]) <= len(found)
    assert (Topic.BREAKER in [one.topic for one in result]) is is_open


SAVES = SaveSummary(
    at=ago(60), name="iter_200", step=200, saved_at=ago(1801), interval_s=600, good=2
)


@pytest.mark.parametrize(
    ("changed", "job_changed", "is_overdue"),
    [
        ({}, {}, True),
        ({"saved_at": ago(1800)}, {}, True),
        ({"saved_at": ago(1799)}, {}, False),
        ({"saved_at": None}, {}, True),
        ({"interval_s": None}, {}, False),
        ({}, {"phase_since": ago(900)}, False),
        ({}, {"phase": "waiting", "nodes": 0}, False),
        ({}, {"saves": None}, False),
    ],
)
def test_a_running_job_without_a_good_checkpoint_for_three_intervals_needs_a_person(
    changed: dict, job_changed: dict, is_overdue: bool
) -> None:
    fields = {"phase": "running", "phase_since": ago(9000), "saves": replace(SAVES, **changed)}
    running = job(**{**fields, "step": 540, "checkpoint_dir": "/fsx/my ckpt", **job_changed})

    found = items(fleet(*FREE, jobs=[running]))

    assert [one.topic for one in found] == [Topic.OVERDUE_CHECKPOINT] * is_overdue
    if found and not changed:
        assert found[0].what == (
            "gpt2 usually saves a checkpoint every 10m, but the newest good one, iter_200, is "
            "30m1s old; a failure now would repeat 340 steps"
        )
        assert found[0].since == ago(1)
        assert found[0].next.endswith("holdfast checkpoint list '/fsx/my ckpt'")


class CountedNodes(list):
    """Nodes that count how often all of them are read."""

    times = 0

    def __iter__(self):
        self.times += 1
        return super().__iter__()


def test_all_nodes_are_not_read_again_for_each_node() -> None:
    """With 5,000 nodes, of which half are faulty, that would take seconds; so for waiting jobs."""
    nodes = CountedNodes(
        node(f"n{number}", Phase.QUARANTINED, remediation=repair()) for number in range(50)
    )

    jobs = [job(ref=f"j{number}", last_pools=frozenset({("", "")})) for number in range(50)]

    found = items(WatchedFleet(name="prod", is_active=True, nodes=nodes, jobs=jobs))
    assert len(found) == 100
    assert nodes.times < 5
