import json
from dataclasses import replace
from datetime import timedelta
from types import ModuleType

import pytest

from bench.__main__ import Unloadable, load, main
from bench.figure import Figure

LATENCY = Figure(name="rank exit to decision, p99", value=25.0, unit="ms", goal=50.0)
LEAKS = Figure(name="leaked processes", value=0, unit="", goal=0)


@pytest.mark.parametrize(
    ("value", "goal", "is_met", "ratio"),
    [(25.0, 50.0, True, 0.5), (50.0, 50.0, True, 1.0), (50.1, 50.0, False, 1.002)],
)
def test_a_goal_is_the_largest_good_value(
    value: float, goal: float, is_met: bool, ratio: float
) -> None:
    figure = Figure(name="x", value=value, unit="ms", goal=goal)

    assert (figure.is_met, figure.ratio) == (is_met, pytest.approx(ratio))


def test_what_must_not_happen_has_no_ratio() -> None:
    assert (LEAKS.is_met, LEAKS.ratio) == (True, None)
    assert not Figure(name="leaked processes", value=1, unit="", goal=0).is_met


def benchmark(figure: Figure, *, by_name_only: str = "", lacks: str = "") -> ModuleType:
    module = ModuleType("benchmark")
    module.run = lambda: [figure]
    module.BY_NAME_ONLY = by_name_only
    module.lacks = lambda: lacks
    return module


BENCHMARKS = {
    "latency": benchmark(LATENCY),
    "soak": benchmark(replace(LEAKS, value=1), by_name_only="it takes minutes"),
}


def test_a_long_benchmark_runs_only_when_it_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([], BENCHMARKS) == 0
    out = capsys.readouterr().out
    assert "leaked" not in out
    assert out.splitlines()[-1] == "skipped soak: it runs only when named: it takes minutes"


def test_the_number_of_samples_reaches_a_benchmark_and_a_measurement_needs_no_goal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = ModuleType("benchmark")
    module.run = lambda *, samples=0: [replace(LATENCY, value=samples, goal=None)]

    assert main(["--samples", "20"], {"peer": module}) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.split() == ["rank", "exit", "to", "decision,", "p99", "20", "ms"]


def test_seed_and_duration_reach_a_benchmark_that_takes_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = ModuleType("benchmark")
    module.run = lambda *, seed=0, duration=timedelta(): [
        replace(LATENCY, value=seed + duration.total_seconds(), goal=None)
    ]

    assert main(["--seed", "7", "--duration", "1h"], {"noise": module, **BENCHMARKS}) == 0
    assert " 3607 " in capsys.readouterr().out


def test_a_benchmark_that_can_be_quick_is_reported_and_others_run_as_ever(
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = ModuleType("benchmark")
    module.run = lambda *, quick=False: [replace(LATENCY, value=1.0 if quick else 2.0)]
    both = {"quick": module, "other": BENCHMARKS["latency"]}

    assert main(["--quick", "--output", "json"], both) == 0
    assert main(["--output", "json"], both) == 0

    values = [json.loads(line)["value"] for line in capsys.readouterr().out.splitlines()]
    assert values == [1.0, 25.0, 2.0, 25.0]


@pytest.mark.parametrize("names", [[], ["console", "other", "latency"]])
def test_what_cannot_run_here_is_skipped_with_the_reason_and_is_no_failure(
    capsys: pytest.CaptureFixture[str], names: list[str]
) -> None:
    missed = replace(LATENCY, value=99.0)
    benchmarks = {
        "console": benchmark(missed, lacks="Chromium is not installed: apt-get install chromium"),
        "other": Unloadable("the Python package playwright is not installed"),
        "latency": BENCHMARKS["latency"],
    }

    assert main(names, benchmarks) == 0
    table = capsys.readouterr().out.splitlines()
    assert main([*names, "--output", "json"], benchmarks) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert len(table) == 4
    assert table[2] == "skipped console: Chromium is not installed: apt-get install chromium"
    assert table[3].startswith("skipped other: the Python package playwright")
    assert [line["name"] for line in lines if "skipped" in line] == ["console", "other"]


def test_a_missed_goal_is_marked_and_fails(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["soak", "latency"], BENCHMARKS) == 1

    missed, met = capsys.readouterr().out.splitlines()[1:]
    assert met.split()[-5:] == ["p99", "25", "ms", "50", "0.50"]
    assert missed.endswith("MISSED")


def test_json_is_one_object_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["latency", "--output", "json"], BENCHMARKS)

    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == {
        "name": "rank exit to decision, p99",
        "value": 25.0,
        "unit": "ms",
        "goal": 50.0,
        "ratio": 0.5,
        "met": True,
    }


def test_an_unknown_name_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["no-such-benchmark"], BENCHMARKS)

    assert ended.value.code == 2
    assert "no benchmark no-such-benchmark" in capsys.readouterr().err


def test_the_benchmarks_are_the_files_with_a_run() -> None:
    names = set(load())

    assert "soak" in names
    assert names.isdisjoint({"figure", "disturbed_run", "needs"})
