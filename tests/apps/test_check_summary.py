"""What a deep health check leaves behind: one line, small enough for a container's status."""

import json

from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.telemetry.check_summary import LIMIT, read_summary, summary_of, summary_text
from holdfast.model.deep_checks import Outcome
from holdfast.model.node_checks import CheckSummary, Level, NodeCheck, PartResult
from tests.ports.builders import NOW

NUMBERS = st.dictionaries(st.sampled_from("abcde"), st.floats(allow_nan=False), max_size=5)
SUMMARIES = st.builds(CheckSummary, summary=st.text(max_size=200), measured=NUMBERS)


@given(SUMMARIES)
def test_what_is_written_is_read_again(said) -> None:
    assert read_summary(summary_text(said)) == said


@given(st.text(min_size=1, max_size=20), st.integers(100, 5000), NUMBERS)
def test_a_long_summary_is_cut_and_no_number_is_lost(word, times, measured) -> None:
    summary = word * times
    text = summary_text(CheckSummary(summary=summary, measured=measured))

    assert len(text.encode()) <= LIMIT
    assert "\n" not in text
    assert json.loads(text)["measured"] == measured
    assert summary.startswith(read_summary(text).summary)


def test_what_other_programs_say_is_reported_by_its_last_line() -> None:
    assert read_summary("one\ntwo\n") == CheckSummary(summary="two")
    assert read_summary("") == CheckSummary()
    assert read_summary('{"summary": 3}') == CheckSummary(summary='{"summary": 3}')
    assert read_summary("[1]") == CheckSummary(summary="[1]")


def test_of_two_parts_that_measure_the_same_the_worse_value_counts() -> None:
    parts = tuple(
        PartResult(name=name, outcome=Outcome.PASSED, measured={"gb_per_s": value})
        for name, value in (("a", 9.0), ("b", 7.0), ("c", 8.0))
    )
    check = NodeCheck(node="n", instance_type="", level=Level.QUICK, started_at=NOW, parts=parts)

    assert summary_of(check, "passed").measured == {"gb_per_s": 7.0}
