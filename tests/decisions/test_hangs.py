"""When silence is a hang, for progress files, heartbeat files and logs alike."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.decisions.hangs import AttemptProgress, HangLimits, hangs_at, is_unarmed, silence

START = datetime(2026, 1, 1, tzinfo=UTC)
TICK = timedelta(microseconds=1)
SPANS = st.timedeltas(TICK, timedelta(days=30))
LIMITS = st.builds(HangLimits, startup=st.none() | SPANS, pause=st.none() | SPANS)
MOMENTS = SPANS.map(lambda span: START + span)


def hang(limits: HangLimits, known_until: datetime | None, last_at: datetime | None = None):
    heard = AttemptProgress(
        started_at=START, last_at=last_at, known_until=known_until, last="step 7"
    )
    return silence(limits, heard, reason="JobHung", missing="no new step was reported")


@given(SPANS, MOMENTS)
def test_an_attempt_that_has_shown_no_progress_yet_does_not_hang_by_the_limit_between_two(
    pause, now
):
    assert hang(HangLimits(pause=pause), now) is None


@given(LIMITS)
def test_a_startup_may_take_as_long_as_it_is_given_and_no_longer(limits):
    assume(limits.startup is not None)
    end = START + limits.startup

    assert hang(limits, end - TICK) is None
    assert hang(limits, end).since == START


@given(LIMITS, MOMENTS)
def test_from_the_first_progress_on_only_the_time_since_the_last_one_counts(limits, last_at):
    assume(limits.pause is not None)
    end = last_at + limits.pause

    assert hang(limits, end - TICK, last_at) is None
    assert hang(limits, end, last_at).since == last_at


@given(LIMITS, st.none() | MOMENTS)
def test_without_a_limit_and_without_knowledge_nothing_is_a_hang(limits, last_at):
    assert hang(limits, None, last_at) is None
    if hangs_at(limits, START, last_at) is None:
        assert hang(limits, START + timedelta(days=999), last_at) is None


@given(LIMITS, MOMENTS, st.none() | MOMENTS)
def test_a_job_is_never_both_unwatched_and_hung(limits, now, last_at):
    heard = AttemptProgress(started_at=START, last_at=last_at, known_until=now)

    assert not (is_unarmed(limits, heard) and hang(limits, now, last_at))


@given(SPANS)
def test_a_job_without_progress_is_reported_to_be_unwatched_when_a_hang_would_have_been_found(
    pause,
):
    def heard(until: datetime | None, last_at: datetime | None = None) -> AttemptProgress:
        return AttemptProgress(started_at=START, last_at=last_at, known_until=until)

    end = START + pause
    assert is_unarmed(HangLimits(pause=pause), heard(end))
    assert not is_unarmed(HangLimits(pause=pause), heard(end - TICK))
    assert not is_unarmed(HangLimits(pause=pause), heard(None))
    assert not is_unarmed(HangLimits(pause=pause), heard(end, START))
    assert not is_unarmed(HangLimits(pause=pause, startup=pause), heard(end))


@pytest.mark.parametrize(
    ("last_at", "evidence"),
    [
        (None, "no new step was reported within 10m of the start of the attempt"),
        (
            START,
            "no new step was reported for 30s, last step 7, 1d ago",
        ),
    ],
)
def test_the_evidence_names_the_limit_and_the_last_progress(last_at, evidence):
    limits = HangLimits(startup=timedelta(minutes=10), pause=timedelta(seconds=30))

    assert hang(limits, START + timedelta(days=1), last_at).evidence == evidence
