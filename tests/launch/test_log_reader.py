"""The thread of a launcher that reads the logs of its ranks and evaluates log rules."""

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from launch.launched import wait_for

from holdfast.adapters.host.job_log_rules import JobLogRules
from holdfast.adapters.host.pattern_matcher import Hits, PatternMatcher
from holdfast.apps.launch.log_rule_watch import LogReader
from holdfast.decisions.log_rules import JobLogRule

TICKS = JobLogRule(name="Ticks", pattern="tick", frequency=timedelta(seconds=10))


class SlowMatcher(PatternMatcher):
    """Does something while the lines of one log are matched."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], object] = lambda: None

    def match(self, rules: Sequence[JobLogRule], lines: Sequence[str]) -> list[Hits | str]:
        if "much" in lines:
            self.meanwhile()
        return super().match(rules, lines)


@pytest.fixture
def matcher() -> Iterator[SlowMatcher]:
    made = SlowMatcher()
    yield made
    made.close()


def test_a_line_is_not_dated_before_it_was_written(tmp_path: Path, matcher: SlowMatcher) -> None:
    """Dated by the start of a long pass, a line of its end would look old: a false hang."""
    logs = {rank: (tmp_path / f"log-{rank}",) for rank in range(2)}
    rules, written = JobLogRules(matcher, [TICKS]), []

    def tick() -> None:
        time.sleep(0.01)
        written.append(reader.clock.now())
        logs[1][0].write_text("tick\n", encoding="utf-8")

    matcher.meanwhile = tick
    reader = LogReader(rules, logs)
    logs[0][0].write_text("much\n", encoding="utf-8")
    reader.finish()
    wait_for(lambda: reader.shown.is_complete, "the end of the logs")
    reader.join(10)

    matched_at = reader.shown.states[TICKS].matched_at
    assert matched_at is not None
    assert matched_at >= written[0]


def test_a_last_line_without_its_end_counts_once_the_ranks_have_ended(
    tmp_path: Path, matcher: SlowMatcher
) -> None:
    log = tmp_path / "log"
    reader = LogReader(JobLogRules(matcher, [TICKS]), {0: (log,)})
    log.write_text("tick", encoding="utf-8")
    wait_for(lambda: reader.shown.known_until, "the first read")
    assert reader.shown.states[TICKS].matched_at is None

    reader.finish()
    wait_for(lambda: reader.shown.is_complete, "the end of the log")

    assert reader.shown.states[TICKS].matched_at is not None


def test_a_log_is_complete_only_once_it_was_read_to_its_end(
    tmp_path: Path, matcher: SlowMatcher
) -> None:
    """The first part takes all the time of one pass."""
    log = tmp_path / "log"
    matcher.meanwhile = lambda: time.sleep(0.3)
    log.touch()
    reader = LogReader(JobLogRules(matcher, [TICKS]), {0: (log,)})
    log.write_text("much\n" + ("x" * 99 + "\n") * 4000 + "tick\n", encoding="utf-8")
    reader.finish()
    wait_for(lambda: reader.shown.is_complete, "the end of the log")

    assert reader.shown.states[TICKS].matched_at is not None


def test_a_reader_that_waits_for_a_match_ends_with_the_matcher(
    tmp_path: Path, matcher: SlowMatcher
) -> None:
    log = tmp_path / "log"
    stops = JobLogRule(name="Stops", pattern="tick", frequency=timedelta(seconds=10))
    matcher.meanwhile = matcher.close
    reader = LogReader(JobLogRules(matcher, [stops]), {0: (log,)})
    log.write_text("much\n", encoding="utf-8")
    wait_for(lambda: reader.shown.problems, "the failure to match")
    reader.stop()
    reader.join(10)

    assert not reader.is_alive()
    assert "they are not evaluated in this attempt" in reader.shown.problems[0]
