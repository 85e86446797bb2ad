"""Verdict on a node once its tests with peers have ended."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from holdfast.decisions.node_labels import is_borrowed
from holdfast.decisions.pairing import GOOD_UP_TO, Localization
from holdfast.model.actions import Quarantine, Release
from holdfast.model.deep_checks import KindResult, Outcome, combined
from holdfast.model.health import Fault, Remedy, Severity
from holdfast.model.names import Condition, DeepCheck, Reason
from holdfast.model.nodes import CheckResult, NodeView, PairOutcome

NodeTest = tuple[str, PairOutcome]
"""Test of a node: the peer, and the result."""

_NAMED: Final = 8
"""Maximum number of nodes that a message names."""


def verdict(
    node: NodeView, made: Sequence[NodeTest], found: Localization, now: datetime
) -> Quarantine | Release:
    """Return the quarantine of a node that is found bad, or the release of any other.

    Args:
        node: node under check.
        made: its tests.
        found: beliefs about all nodes and links, from all tests.
        now: current time.

    """
    if node.name in found.bad_nodes:
        return _found_bad(node, made, found.nodes[node.name], now)
    if is_borrowed(node.record):
        return Release(node=node.name)
    note = _note(node.name, made, found)
    check = _result(node, made, note, now, passed=True)
    return Release(node=node.name, checked=check.outcome is Outcome.PASSED, check=check)


def _found_bad(
    node: NodeView, made: Sequence[NodeTest], probability: float, now: datetime
) -> Quarantine:
    detail = f"{_failures(made)}; probability of a bad node {probability:.1%}{_last_detail(made)}"
    fault = Fault(
        family="node",
        condition=Condition.DEEP_CHECK,
        reason=Reason.PAIR_FAILED,
        severity=Severity.FATAL,
        remedy=Remedy.REPLACE,  # as HyperPod does after a failed NCCL test
        message=detail,
        since=now,
    )
    check = _result(node, made, detail, now, passed=False)
    return Quarantine(node=node.name, fault=fault, remedy=Remedy.REPLACE, check=check)


def _note(node: str, made: Sequence[NodeTest], found: Localization) -> str:
    """Return a remark on a node that is not found bad; empty if it is good, or was not tested."""
    if all(test.passed is None for _, test in made):
        return ""
    ends = [other for link in found.bad_links if node in link for other in link if other != node]
    if ends:
        return f"the link to {', '.join(ends)} is bad{_last_detail(made)}"
    made = [(other, test) for other, test in made if other not in found.bad_nodes]
    if not any(test.passed is False for _, test in made):
        return ""
    if found.has_common_cause:
        return f"{_failures(made)}, like most nodes: inspect what they share{_last_detail(made)}"
    if found.nodes[node] <= GOOD_UP_TO and not _failed_again(made):
        return ""
    return (
        f"{_failures(made)}; unclear whether the node, a peer or a link is bad{_last_detail(made)}"
    )


def _failed_again(made: Sequence[NodeTest]) -> bool:
    """Return whether more than one test with the same node failed, which rules out chance."""
    return max(Counter(other for other, test in made if test.passed is False).values()) > 1


def _result(
    node: NodeView, made: Sequence[NodeTest], detail: str, now: datetime, *, passed: bool
) -> CheckResult:
    pairing = node.record.pairing
    own = pairing.own if pairing is not None else None
    before = own or CheckResult(passed=True, ended_at=now)
    tests = [test for _, test in made]
    others = [one for one in before.kinds if one.kind is not DeepCheck.CONNECTIVITY]
    alone = [one for one in before.kinds if one.kind is DeepCheck.CONNECTIVITY]
    requested = node.record.kinds or tuple(DeepCheck)
    if own is not None and not own.kinds and DeepCheck.STRESS in requested:  # it reports no kinds
        others = [KindResult(kind=DeepCheck.STRESS, outcome=own.outcome)]
    return CheckResult(
        passed=passed,
        ended_at=now,
        detail=detail,
        measured={**before.measured, **_medians(test.measured for test in tests)},
        bounds={**before.bounds, **_medians(test.bounds for test in tests)},
        partners=tuple(sorted({other for other, _ in made})),
        kinds=(*others, _connectivity(alone, made, passed=passed)),
    )


def _connectivity(
    own: Sequence[KindResult], made: Sequence[NodeTest], *, passed: bool
) -> KindResult:
    """Return the connectivity result of a node from its own tests and those with peers."""
    if not passed:
        return KindResult(kind=DeepCheck.CONNECTIVITY, outcome=Outcome.FAILED)
    if any(test.passed is not None for _, test in made):
        return KindResult(kind=DeepCheck.CONNECTIVITY, outcome=Outcome.PASSED)
    tests = KindResult(
        kind=DeepCheck.CONNECTIVITY,
        outcome=Outcome.UNKNOWN if made else Outcome.SKIPPED,
        detail=f"no test with another node was conclusive: {made[-1][1].detail}"
        if made
        else "no other node of its group and type was available to test it with",
    )
    outcome = combined(one.outcome for one in (*own, tests))
    return replace(tests, outcome=outcome)


def _medians(measured: Iterable[Mapping[str, float]]) -> dict[str, float]:
    values: defaultdict[str, list[float]] = defaultdict(list)
    for one in measured:
        for name, value in one.items():
            values[name].append(value)
    return {name: statistics.median(found) for name, found in values.items()}


def _failures(made: Sequence[NodeTest]) -> str:
    conclusive = [test for _, test in made if test.passed is not None]
    failed = sorted({other for other, test in made if test.passed is False})
    names = ", ".join(failed[:_NAMED])
    count = sum(not test.passed for test in conclusive)
    return f"it failed {count} of {len(conclusive)} tests ({names})"


def _last_detail(made: Sequence[NodeTest]) -> str:
    details = [test.detail for _, test in made if test.passed is False and test.detail]
    return f": {details[-1]}" if details else ""
