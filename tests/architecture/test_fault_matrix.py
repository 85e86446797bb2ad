"""The fault matrix is whole, and its results come from tests that exist."""

import ast
import html
import json
from functools import cache
from pathlib import Path

import pytest

from tests.engines.matrix import Matrix
from tools.fault_matrix import (
    COLUMNS,
    FAULTS,
    PLATFORMS,
    REASONS,
    details,
    recorded,
    why_empty,
)
from tools.matrix_results import differences, results

ROOT = Path(__file__).parents[2]
RECORDED = recorded()
CELLS = [(fault, column) for fault, cells in RECORDED.items() for column in cells]


@cache
def functions_of(file: str) -> dict[str, set[str]]:
    """Tests, also those that quick runs leave out, to the names of their fixtures."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return {one.name: {argument.arg for argument in one.args.args} for one in functions}


@pytest.mark.parametrize(("fault", "column"), CELLS, ids=map("-".join, CELLS))
def test_every_result_is_in_the_table_and_comes_from_a_test_that_records(
    fault: str, column: str
) -> None:
    file, _, name = RECORDED[fault][column]["test"].partition("::")

    assert fault in FAULTS
    assert column in COLUMNS
    assert functions_of(file)[name] & {"matrix", "phases", "recorded", "final"}


EMPTY = [(fault, column) for fault in FAULTS for column in COLUMNS if (fault, column) not in CELLS]


def test_every_fault_and_every_column_has_a_result() -> None:
    assert [*RECORDED] == [*FAULTS]
    assert {*COLUMNS} == {column for _, column in CELLS}


def test_every_empty_cell_has_a_reason_on_both_pages() -> None:
    pages = [
        (ROOT / "docs/reference" / name).read_text(encoding="utf-8")
        for name in ("fault-matrix.md", "fault-matrix.html")
    ]
    for reason in {why_empty(fault, column) for fault, column in EMPTY}:
        assert reason.removeprefix("not tested").strip()
        assert reason in pages[0]
        assert html.escape(reason.replace("`", "")) in pages[1]


def test_every_reason_is_that_of_an_empty_cell_and_names_a_test_that_exists() -> None:
    reasons = {(fault, column): why_empty(fault, column) for fault, column in EMPTY}
    for reason in REASONS:
        used = {fault for (fault, _), why in reasons.items() if why == str(reason)}
        assert used
        assert {*reason.faults} <= used
        assert {column.partition("/")[0] for column in reason.columns} <= {*PLATFORMS}
        if reason.test:
            file, _, name = reason.test.partition("::")
            assert name in functions_of(file)


def test_no_cell_with_a_result_is_said_not_to_exist() -> None:
    for reason in REASONS:
        if reason.text.startswith("exists on"):
            assert not [cell for cell in CELLS if reason.has(*cell)]


def test_no_job_is_lost_unless_it_failed_itself_or_may_not_be_restarted() -> None:
    ended = {"killed-process", "faults-spent", "failures-spent", "fewer-retries",
             "controller-killed-spent", "full-disk"}  # fmt: skip
    for fault, column in CELLS:
        job = str(RECORDED[fault][column]["outcome"]["job"]).lower()
        assert job not in ("failed", "cancelled") or fault in ended


def test_details_have_a_row_for_every_result() -> None:
    text = "\n".join(" ".join(row) for row in details())

    assert all(FAULTS[fault].title in text for fault, _ in CELLS)


def test_results_that_differ_or_are_half_as_slow_again_are_reported(tmp_path: Path) -> None:
    fault, column = next(
        (fault, column)
        for fault, column in CELLS
        if RECORDED[fault][column].get("seconds", {}).get("released", 0) > 2
    )
    known = RECORDED[fault][column]
    usual = known["seconds"]["released"]
    matrix = Matrix("tests/a.py::test_a", tmp_path)

    matrix.record(fault, column, known["outcome"], {"released": usual * 1.4})
    assert list(differences(results(tmp_path))) == []
    matrix.record(fault, column, known["outcome"], {"released": usual * 1.6})
    matrix.record(fault, column, {**known["outcome"], "job": "failed"})

    slower, other = differences(results(tmp_path))
    assert "released after" in slower
    assert "outcome" in other


def test_a_result_that_differs_fails_its_test_unless_results_are_written() -> None:
    fault, column = CELLS[0]
    found = json.loads(json.dumps(RECORDED[fault][column]["outcome"]))

    Matrix("a", None).record(fault, column, found)
    with pytest.raises(AssertionError, match="make matrix"):
        Matrix("a", None).record(fault, column, {**found, "attempt": 7})
