"""A check that was not run is no pass: neither of a node nor of one kind of check."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.lifecycle import after
from holdfast.decisions.node_labels import deep_check_status
from holdfast.decisions.policy import RemediationPolicy
from holdfast.decisions.remediation import decide_node
from holdfast.model.actions import Release
from holdfast.model.deep_checks import KindResult, Outcome
from holdfast.model.names import DeepCheck
from holdfast.model.node_checks import Level, NodeCheck, PartResult
from holdfast.model.nodes import CheckResult, Phase
from tests.ports.builders import NOW, a_node

POLICY = RemediationPolicy(deep_check_on_start=True)
KINDS = st.lists(
    st.builds(
        KindResult,
        kind=st.sampled_from(DeepCheck),
        outcome=st.sampled_from([Outcome.PASSED, Outcome.SKIPPED, Outcome.UNKNOWN]),
        detail=st.sampled_from(["", "no tool"]),
    ),
    max_size=3,
).map(tuple)


def of_kinds(*outcomes: Outcome) -> CheckResult:
    kinds = tuple(
        KindResult(kind=kind, outcome=outcome, detail="no tool")
        for kind, outcome in zip(DeepCheck, outcomes, strict=False)
    )
    return CheckResult(passed=True, ended_at=NOW, kinds=kinds)


@given(kinds=KINDS)
def test_a_check_that_reports_its_kinds_has_passed_only_if_one_of_them_has(kinds) -> None:
    check = CheckResult(passed=True, ended_at=NOW, kinds=kinds)

    has_passed = any(one.outcome is Outcome.PASSED for one in kinds)
    assert (check.outcome is Outcome.PASSED) == (has_passed or not kinds)
    assert all(str(one.kind) in check.remarks for one in kinds if one.detail)


@given(kinds=KINDS)
def test_a_check_that_failed_has_failed_whatever_of_it_passed(kinds) -> None:
    assert CheckResult(passed=False, ended_at=NOW, kinds=kinds).outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("check", "is_checked", "status"),
    [
        (of_kinds(Outcome.PASSED, Outcome.PASSED), True, "Passed"),
        (of_kinds(Outcome.PASSED, Outcome.SKIPPED), True, "Passed"),
        (of_kinds(Outcome.SKIPPED, Outcome.SKIPPED), False, "Skipped"),
        (of_kinds(Outcome.UNKNOWN), False, "Skipped"),
        (of_kinds(), True, "Passed"),
    ],
)
def test_a_node_of_which_nothing_was_checked_is_released_and_not_marked_as_passed(
    check, is_checked, status
) -> None:
    node = a_node(Phase.CHECKING, check=check)

    action = decide_node(node, POLICY, NOW)
    record = after(node, action, NOW)

    assert action == Release(node="node-1", checked=is_checked)
    assert record.phase is Phase.SCHEDULABLE
    assert deep_check_status(replace(node, record=record)) == status


def test_a_kind_is_skipped_with_the_reasons_of_its_parts() -> None:
    parts = (
        PartResult(name="cpu", outcome=Outcome.PASSED, kind=DeepCheck.STRESS),
        PartResult(name="gpu", outcome=Outcome.SKIPPED, kind=DeepCheck.STRESS, detail="no GPU"),
        PartResult(
            name="nccl", outcome=Outcome.SKIPPED, kind=DeepCheck.CONNECTIVITY, detail="not found"
        ),
    )
    check = NodeCheck(node="n", instance_type="", level=Level.QUICK, started_at=NOW, parts=parts)

    assert [str(one) for one in check.kinds] == [
        "InstanceStress passed",
        "InstanceConnectivity skipped: nccl: not found",
    ]
