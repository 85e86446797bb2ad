"""Which node a line about a straggler in the log of a job names, and that it names no other."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_objects import KIND, a_pod_object
from node_objects import a_node_object, state_of

from holdfast.adapters.kubernetes.jobs.attempt_findings import Findings, with_findings
from holdfast.adapters.kubernetes.jobs.objects import PodState, pod_state
from holdfast.decisions.notice_lines import LoggedNotices
from holdfast.model.job_views import SlowRank
from tests.ports.builders import a_job

LONG = "llama-" + "x" * 56 + "-worker-0"  # its 63rd character is the dash


def a_pod(rank: int, *, node: str, name: str = "", **spec) -> PodState:
    pod = a_pod_object(rank, node=node, **({"name": name} if name else {}))
    pod["spec"] |= spec
    member = KIND.member(pod)
    assert member is not None
    return pod_state(pod, member)


PODS = [
    a_pod(0, node="a"),
    a_pod(1, node="b", hostname="trainer-1"),
    a_pod(2, node="c", hostNetwork=True),
    a_pod(3, node="d", name=LONG),
]
ADDRESSES = {"c": ("10.0.0.3", "ip-10-0-0-3")}
NODES = {
    name: replace(state_of(a_node_object(name=name)), addresses=ADDRESSES.get(name, ("10.0.0.9",)))
    for name in ("a", "b", "c", "d", "e")
}


def named(text: str, pods=PODS) -> SlowRank | None:
    found = Findings(notices=LoggedNotices(straggler=text))
    return with_findings(a_job(), found, pods, NODES.get).straggler


def a_line(host: str) -> str:
    return f"round 1: rank 5 on {host}-4711-0a1b2c is slow: its own part takes 1.31x the median"


@pytest.mark.parametrize(
    ("host", "node"),
    [
        ("llama-master-0", "a"),
        ("trainer-1", "b"),
        ("c", "c"),
        ("ip-10-0-0-3", "c"),
        (LONG[:62], "d"),
        ("llama-worker-0", ""),  # the pod has another host name
        ("a", ""),  # its pod does not use the host name of its node
        ("e", ""),  # no pod of the job is there
        ("10.0.0.9", ""),
    ],
)
def test_the_host_name_of_a_launcher_leads_to_the_node_of_its_pod(host: str, node: str) -> None:
    text = a_line(host)

    assert named(text) == SlowRank(text=text, node=node)


def test_nothing_is_slow_without_a_line_and_no_node_with_one_of_another_form() -> None:
    assert named("") is None
    assert named("round 1: rank 5 on c is slow: x") == SlowRank(
        text="round 1: rank 5 on c is slow: x"
    )


def test_a_host_name_of_pods_on_two_nodes_names_none() -> None:
    pods = [a_pod(0, node="a", hostname="same"), a_pod(1, node="b", hostname="same")]

    assert named(a_line("same"), pods) == SlowRank(text=a_line("same"))
    assert named(a_line("same"), pods[:1]) == SlowRank(text=a_line("same"), node="a")


@pytest.mark.attack
@given(st.text(max_size=80))
def test_whatever_a_job_writes_names_only_nodes_of_its_pods(text: str) -> None:
    found = named(a_line(text))

    assert found is not None
    assert found.node in {"", "a", "b", "c", "d"}


def test_a_pod_that_has_no_node_yet_has_no_part() -> None:
    pods = [a_pod(0, node="", hostNetwork=True)]

    assert named(a_line("c"), pods) == SlowRank(text=a_line("c"))
