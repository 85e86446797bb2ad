"""The output of ranks, as `holdfast run` follows it."""

import os

import pytest

from holdfast.adapters.local.layout import RunDir
from holdfast.apps.run.logs import Follow, RankLogs


@pytest.fixture
def job(tmp_path):
    return RunDir(tmp_path)


@pytest.fixture
def logs(job):
    return RankLogs(lambda: job, 2, Follow.ALL)


def printed(job, attempt, rank, text):
    log = job.log(attempt, rank)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(text)


def test_attempts_that_began_and_ended_between_two_calls_are_shown_in_order(job, logs):
    for attempt in (1, 2, 3):
        for rank in (0, 1):
            printed(job, attempt, rank, f"attempt {attempt} of {rank}\n")
    assert [*logs.lines(0)] == []

    shown = [*logs.lines(3), *logs.rest(3)]

    assert shown == [(rank, f"attempt {n} of {rank}") for n in (1, 2, 3) for rank in (0, 1)]


def test_attempts_that_began_after_the_last_call_are_shown_at_the_end(job, logs):
    """Nothing is read while the output is behind, also not the number of the attempt."""
    printed(job, 1, 0, "first\nwhy")
    assert [*logs.lines(1)] == [(0, "first")]
    printed(job, 2, 0, "second\n")
    printed(job, 3, 1, "third\n")

    assert [*logs.rest(3)] == [(0, "why"), (0, "second"), (1, "third")]


def test_logs_that_an_attempt_continues_are_shown_once(job, logs):
    printed(job, 1, 0, "first\n")
    assert [*logs.lines(1)] == [(0, "first")]
    continued, earlier = job.log(2, 0).parent, job.log(1, 0).parent
    os.symlink(earlier.name, continued)
    printed(job, 2, 0, "first\nsecond\n")

    assert [*logs.lines(2), *logs.rest(2)] == [(0, "second")]


def test_a_state_of_an_earlier_attempt_shows_its_output_again(job, logs):
    printed(job, 1, 0, "first\n")
    printed(job, 2, 0, "second\n")
    assert [*logs.lines(2), *logs.lines(2)] == [(0, "first"), (0, "second")]

    assert [*logs.lines(1), *logs.lines(1)] == [(0, "first")]
    assert [*logs.lines(2), *logs.lines(2)] == [(0, "second")]
