"""The last deep health checks of nodes, and how one is asked for."""

from dataclasses import replace
from datetime import timedelta

from written_runs import NOW, node

from holdfast.apps.exit_codes import ExitCode
from holdfast.model.names import DeepCheck
from holdfast.model.nodes import CheckResult, Pairing, PairOutcome, Phase

FAILED = CheckResult(passed=False, ended_at=NOW - timedelta(days=2), detail="disk: it is slow")
PASSED = CheckResult(passed=True, ended_at=NOW, measured={"nccl_gb_per_s": 481.25})


PAIRED = CheckResult(
    passed=True,
    ended_at=NOW,
    measured={"pair_tcp_mb_per_s": 1180.0, "pair_tcp_us": 48.25},
    bounds={"pair_tcp_mb_per_s": 10, "pair_tcp_us": 10000},
    partners=tuple(f"gpu-{number}" for number in range(1, 7)),
)


def put(store, number: int, **fields) -> None:
    _, _, record = store.nodes()[node(number)]
    store.put_node(node(number), replace(record, **fields))


def a_run(runs):
    store = runs.add("train", nodes=(1, 2, 3), ranks=(2, 1))
    put(store, 1, checks=(FAILED, PASSED))
    put(store, 2, phase=Phase.CHECKING, checks=(PASSED,))
    return store


def test_show_reports_the_last_check_of_each_node_that_had_one(runs) -> None:
    a_run(runs)

    shown = runs.call("check", "show")

    lines = [line.split() for line in shown.out.splitlines()[1:]]
    assert [line[:2] for line in lines] == [[node(1), "passed"], [node(2), "in"]]
    assert "nccl_gb_per_s 481.2" in shown.out


def test_show_reports_all_that_is_known_of_one_node(runs) -> None:
    a_run(runs)

    output = runs.call("check", "show", node(1)).out
    shown = runs.call("check", "show", node(1), "-o", "json").json

    assert "disk: it is slow" in output
    assert [one["result"]["passed"] for one in shown] == [False, True]
    assert shown[1]["result"]["measured"] == {"nccl_gb_per_s": 481.25}
    assert {one["node"] for one in shown} == {node(1)}


def test_show_reports_partners_and_thresholds_of_tests_between_nodes(runs) -> None:
    put(runs.add("train", nodes=(1,)), 1, checks=(PAIRED,))

    output = runs.call("check", "show", "-o", "wide").out

    assert "pair_tcp_mb_per_s 1180 (≥ 10), pair_tcp_us 48.25 (≤ 10000)" in output
    assert "gpu-1, gpu-2, gpu-3, gpu-4 and 2 more" in output


def test_the_partner_of_a_test_under_way_is_shown_at_both_ends(runs) -> None:
    store = runs.add("train", nodes=(1, 2, 3, 4))
    before = NOW - timedelta(hours=1)
    failed = PairOutcome(partner=node(1), passed=False, ended_at=NOW)
    passed = PairOutcome(partner=node(3), passed=True, ended_at=NOW)
    old = replace(failed, ended_at=before - timedelta(days=1))
    asks = Pairing(since=before, partner=node(2), began_at=NOW, tests=(passed,))
    for number, pairing in (
        (1, asks),
        (2, Pairing(since=before)),
        (3, Pairing(since=before, tests=(old, failed))),
        (4, None),
    ):
        put(store, number, phase=Phase.CHECKING, pairing=pairing)

    output = runs.call("check", "show").out.splitlines()[1:]
    shown = {one["node"]: one["tests"] for one in runs.call("check", "show", "-o", "json").json}

    rows = {line.split()[0]: line for line in output}
    assert f"{node(2)} (now)" in rows[node(1)]
    assert f"{node(1)} (now)" in rows[node(2)]
    assert "(now)" not in rows[node(3)] + rows[node(4)]
    assert rows[node(1)].endswith("network tests in progress: 2 done, 1 failed")
    assert rows[node(2)].endswith("network tests in progress: 0 done, 0 failed")
    assert rows[node(4)].endswith("single-node checks in progress")
    assert shown[node(1)] == {
        "partner": node(2), "made": 2, "failed": 1, "partners": [node(3)]
    }  # fmt: skip
    assert shown[node(4)] is None


def test_without_any_check_it_is_reported_how_to_ask_for_one(runs) -> None:
    runs.add("train", nodes=(1,))

    shown = runs.call("check", "show")

    assert (shown.code, shown.out) == (ExitCode.OK, "")
    assert "holdfast check deep" in shown.err


def test_an_unknown_node_is_answered_with_those_there_are(runs) -> None:
    runs.add("train", nodes=(1,))

    assert runs.call("check", "show", "nobody").code == ExitCode.FAILED


def test_a_check_is_asked_for_of_nodes_given_as_words_or_as_one(runs) -> None:
    store = runs.add("train", nodes=(1, 2, 3))
    named = f"{node(2)}, {node(3)},"

    requested = runs.call("check", "deep", node(1), "--nodes", named, "--yes")

    assert requested.code == ExitCode.OK
    assert set(store.requests()) == {node(1), node(2), node(3)}


def test_a_check_of_no_node_is_refused_and_nothing_is_asked_for(runs) -> None:
    store = runs.add("train", nodes=(1,))

    requested = runs.call("check", "deep", "--nodes", " , ", "--yes")

    assert requested.code == ExitCode.BAD_INPUT
    assert "name at least one node" in requested.err
    assert store.requests() == {}


def test_the_kind_of_a_check_is_asked_for_by_sagemakers_name(runs) -> None:
    store = runs.add("train", nodes=(1, 2))
    only = ("--check", "InstanceConnectivity", "--yes")

    runs.call("check", "deep", node(1), *only)
    runs.call("check", "deep", node(2), "--yes")
    refused = runs.call("check", "deep", node(2), "--check", "Instance", "--yes")

    requested = store.requests()
    assert requested[node(1)].checks == (DeepCheck.CONNECTIVITY,)
    assert requested[node(2)].checks == ()
    assert refused.code == ExitCode.BAD_INPUT
