"""Thresholds from a fleet's own results."""

import json
import tomllib

import pytest
from checked_node import CheckedNode, stress_text
from hypothesis import given
from hypothesis import strategies as st

from holdfast.apps.checks.baseline import at_percentile
from holdfast.apps.main import run


def document(*rates: float, kind: str = "p5.48xlarge", outcome: str = "passed") -> str:
    parts = [{"outcome": outcome, "measured": {"cpu_ops_per_s": rate}} for rate in rates]
    return json.dumps({"instance_type": kind, "parts": parts})


@pytest.fixture
def baseline(tmp_path, capfd):
    def ask(*texts: str, options: tuple[str, ...] = ()) -> tuple[int, str, str]:
        files = [tmp_path / f"{number}.json" for number in range(len(texts))]
        for file, text in zip(files, texts, strict=True):
            file.write_text(text)
        code = run(["check", "baseline", *map(str, files), *options])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return ask


def test_the_floor_is_the_percentile_of_each_type(baseline) -> None:
    code, out, err = baseline(
        document(*range(1, 101)),
        document(7, kind=""),
        options=("--percentile", "5", "-o", "toml"),
    )

    assert code == 0
    assert tomllib.loads(out)["thresholds"] == {
        "p5.48xlarge": {"cpu_ops_per_s": 5.0},
        "default": {"cpu_ops_per_s": 7.0},
    }
    assert "default: cpu_ops_per_s has 1 value;" in err
    assert "p5" not in err


def test_what_did_not_pass_is_no_measure_of_a_good_node(baseline) -> None:
    _, out, _ = baseline(document(5), document(1, outcome="failed"), options=("-o", "json"))

    assert [(one["count"], one["least"]) for one in json.loads(out)] == [(1, 5.0)]


def test_a_file_may_hold_many_documents(baseline) -> None:
    _, out, _ = baseline(f"{document(5)}\n\n{document(6)}\n", options=("-o", "json"))

    assert json.loads(out)[0]["count"] == 2


def test_what_tests_of_pairs_and_the_controller_measured_is_taken_as_well(baseline) -> None:
    parts = [{"outcome": "passed", "measured": {"pair_nccl_gb_per_s": 437.0}}]
    pairs = {
        "rounds": 7,
        "checks": [
            {"instance_type": "p5.48xlarge", "parts": parts},
            {"instance_type": "p5.48xlarge", "parts": [{**parts[0], "outcome": "unknown"}]},
        ],
    }
    result = {"passed": True, "measured": {"pair_nccl_gb_per_s": 400.0}}
    show = [
        {"node": "a", "instance_type": "p5.48xlarge", "result": result},
        {"node": "b", "instance_type": "p5.48xlarge", "result": {**result, "passed": False}},
        {"node": "c", "instance_type": "p5.48xlarge", "result": None},
    ]

    code, out, _ = baseline(json.dumps(pairs), json.dumps(show), options=("-o", "json"))

    (found,) = json.loads(out)
    assert code == 0
    assert (found["instance_type"], found["measure"]) == ("p5.48xlarge", "pair_nccl_gb_per_s")
    assert (found["count"], found["least"], found["greatest"]) == (2, 400.0, 437.0)


def test_what_was_printed_can_be_read_and_what_comes_out_be_given_back(
    tmp_path, capfd, baseline
) -> None:
    node = CheckedNode(tmp_path, capfd.readouterr)
    node.prints("stress-ng", stress_text())
    assert run([*node.argv(), "-o", "json"]) == 0

    _, toml, _ = baseline(capfd.readouterr().out, options=("-o", "toml"))
    node.more = toml
    assert node.part("cpu")[:2] == (0, "passed")

    node.prints("stress-ng", stress_text(ops="2783.56"))
    assert node.part("cpu")[:2] == (1, "failed")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not json", "not JSON"),
        ("[]", "expected output of"),
        ('{"parts": 3}', "expected output of"),
        ('{"parts": [{"outcome": "passed", "measured": {"x": 1}}]}', "unknown 'x'"),
        ('{"parts": [{"outcome": "passed", "measured": [1]}]}', "expected an object"),
        (
            '{"parts": [{"outcome": "passed", "measured": {"cpu_ops_per_s": "1 GB"}}]}',
            "expected a number",
        ),
        (
            '{"parts": [{"outcome": "passed", "measured": {"cpu_ops_per_s": NaN}}]}',
            "expected a number",
        ),
    ],
)
def test_a_file_that_holds_something_else_is_named(baseline, text, said) -> None:
    code, out, err = baseline(document(5), text)

    assert code == 2
    assert out == ""
    assert "1.json" in err
    assert said in err


def test_a_file_that_is_not_there_is_named(capfd) -> None:
    assert run(["check", "baseline", "/nowhere.json"]) == 2
    assert "/nowhere.json" in capfd.readouterr().err


@given(
    st.lists(st.floats(0, 1e9), min_size=1).map(sorted),
    st.one_of(st.sampled_from([0.0, 1.0, 50.0]), st.floats(0, 50)),
)
def test_no_more_than_the_percentile_is_below_the_floor(values, percentile) -> None:
    floor = at_percentile(values, percentile)

    assert floor in values
    below = sum(value < floor for value in values)
    assert below <= len(values) * percentile / 100


def test_a_time_is_bounded_from_above_and_a_rate_from_below(baseline) -> None:
    pairs = [
        {"outcome": "passed", "measured": {"pair_tcp_us": value, "pair_tcp_mb_per_s": value}}
        for value in range(1, 101)
    ]

    code, out, _ = baseline(
        json.dumps({"instance_type": "p5.48xlarge", "parts": pairs}),
        options=("--percentile", "2", "-o", "toml"),
    )

    assert code == 0
    assert out.splitlines()[1:] == ["pair_tcp_mb_per_s = 2.0", "pair_tcp_us = 98.0"]
