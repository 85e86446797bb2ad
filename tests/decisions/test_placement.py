from datetime import timedelta

import pytest

from holdfast.decisions.placement import place, reserved, usable
from holdfast.decisions.policy import RemediationPolicy
from holdfast.model.health import Remedy, Urgency
from holdfast.model.jobs import JobPhase
from holdfast.model.nodes import Phase
from holdfast.model.requests import Verb
from tests.ports.builders import (
    NOW,
    a_fault,
    a_job,
    a_node,
    a_request,
    by_name,
    healthy_nodes,
)

POLICY = RemediationPolicy()


def names(*nodes, job="job-1"):
    return [node.name for node in usable(nodes, job, POLICY, NOW)]


@pytest.mark.parametrize("phase", list(Phase))
def test_jobs_start_on_schedulable_nodes_only(phase) -> None:
    assert names(a_node(phase)) == (["node-1"] if phase is Phase.SCHEDULABLE else [])


@pytest.mark.parametrize(
    "changes",
    [
        {"faults": (a_fault(),)},
        {"faults": (a_fault(urgency=Urgency.DEFERRED),)},
        {"heartbeat_at": NOW - POLICY.heartbeat_timeout},
        {"heartbeat_at": None, "record": {"phase_since": NOW - timedelta(hours=1)}},
        {"powered_on": False},
        {"request": a_request(Verb.REBOOT)},
        {"leaving": "removed on request"},
        {"running_jobs": ("other",)},
        {"running_jobs": ("job-1", "other")},
    ],
    ids=str,
)
def test_no_job_starts_on_a_node_that_is_about_to_leave_or_taken(changes) -> None:
    assert names(a_node(**changes)) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"running_jobs": ("job-1",)},
        {"faults": (a_fault(Remedy.RESTART_APP),)},
        {"powered_on": True},
    ],
)
def test_what_concerns_neither_the_node_nor_another_job_is_no_obstacle(changes) -> None:
    assert names(a_node(**changes)) == ["node-1"]


def test_nodes_come_in_the_order_of_their_names() -> None:
    assert names(*reversed(healthy_nodes(3))) == ["node-1", "node-2", "node-3"]


def placed(placement, candidates, nodes=3):
    job = a_job(JobPhase.WAITING, nodes=nodes, record={"placement": placement})
    return place(job, by_name(*(a_node(name=name) for name in candidates)))


def test_a_new_job_gets_the_first_nodes() -> None:
    assert placed((), "abcd") == ("a", "b", "c")


@pytest.mark.parametrize(
    ("before", "candidates", "after"),
    [
        ("abc", "abc", "abc"),
        ("abc", "bcd", "dbc"),
        ("cab", "abcd", "cab"),
        ("abc", "cde", "dec"),
        ("abc", "def", "def"),
    ],
)
def test_a_healthy_node_keeps_its_rank(before, candidates, after) -> None:
    assert placed(tuple(before), candidates) == tuple(after)


@pytest.mark.parametrize(("before", "candidates"), [("", "ab"), ("abc", "ab"), ("abc", "")])
def test_too_few_nodes_are_none(before, candidates) -> None:
    assert placed(tuple(before), candidates) is None


def test_a_reserved_node_is_taken_before_anything_runs_on_it() -> None:
    nodes = by_name(*healthy_nodes(3))

    taken = reserved(nodes, "a", ("node-1", "node-2", "gone"))

    assert {name: node.running_jobs for name, node in taken.items()} == {
        "node-1": ("a",),
        "node-2": ("a",),
        "node-3": (),
    }
    assert reserved(taken, "a", ("node-1",))["node-1"].running_jobs == ("a",)
