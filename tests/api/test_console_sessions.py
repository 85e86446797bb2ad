"""Who is let in to the console, for how long, and what proves that a request is meant."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.api.console_sessions import (
    LIFETIME,
    TRIES,
    TRIES_WINDOW,
    Sessions,
    TooManyTries,
    WrongToken,
)
from holdfast.api.identity import AccessKey, Role
from holdfast.testing.fakes import FakeClock

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ADA = AccessKey(
    access_key_id="AKIAAAAAAAAAAAAAAAAA",
    secret_access_key="a" * 40,
    role=Role.OPERATE,
    name="ada",
    token="token-of-ada-" * 2,
)
BOB = AccessKey(
    access_key_id="AKIABBBBBBBBBBBBBBBB", secret_access_key="b" * 40, token="token-of-bob-" * 2
)
EVE = AccessKey(access_key_id="AKIAEEEEEEEEEEEEEEEE", secret_access_key="e" * 40)


def sessions(*keys: AccessKey, at: datetime = NOW) -> tuple[Sessions, FakeClock]:
    clock = FakeClock(at)
    return Sessions(keys or (ADA, BOB, EVE), clock), clock


@pytest.mark.parametrize("key", [ADA, BOB])
def test_a_token_opens_a_session_of_its_owner(key: AccessKey) -> None:
    open_sessions, _ = sessions()

    session = open_sessions.find(open_sessions.begin(key.token, "here"))

    assert session is not None
    assert session.key == key
    assert open_sessions.proves(session, session.proof)


@pytest.mark.parametrize("token", ["", "token", ADA.token[:-1], ADA.token + "x", "a" * 40, "ö"])
def test_any_other_text_opens_none(token: str) -> None:
    open_sessions, _ = sessions()

    with pytest.raises(WrongToken):
        open_sessions.begin(token, "here")


def test_nobody_logs_in_without_a_token_of_their_own() -> None:
    assert not sessions(EVE)[0].are_possible
    assert sessions(ADA)[0].are_possible


def test_a_session_ends_with_its_time_and_not_before() -> None:
    open_sessions, clock = sessions()
    cookie = open_sessions.begin(ADA.token, "here")

    clock.time = NOW + LIFETIME - timedelta(microseconds=1)
    before = open_sessions.find(cookie)
    clock.time = NOW + LIFETIME
    after = open_sessions.find(cookie)

    assert before is not None
    assert after is None


def test_who_logs_out_is_out_and_others_are_not() -> None:
    open_sessions, _ = sessions()
    mine, other = (open_sessions.begin(ADA.token, "here") for _ in range(2))

    open_sessions.end(mine)

    assert mine != other
    assert open_sessions.find(mine) is None
    assert open_sessions.find(other) is not None


def test_a_session_outlives_the_server_and_not_its_token() -> None:
    cookie = sessions()[0].begin(ADA.token, "here")
    renewed = AccessKey(
        access_key_id=ADA.access_key_id,
        secret_access_key=ADA.secret_access_key,
        token="another-of-ada-" * 2,
    )

    assert sessions()[0].find(cookie) is not None
    assert sessions(renewed)[0].find(cookie) is None
    assert sessions(BOB)[0].find(cookie) is None


@given(st.text(max_size=200))
def test_no_other_text_is_a_cookie(text: str) -> None:
    assert sessions()[0].find(text) is None


@given(st.integers(0, 200), st.characters(min_codepoint=33, max_codepoint=126))
def test_a_cookie_that_was_changed_is_none(place: int, letter: str) -> None:
    open_sessions, _ = sessions()
    cookie = open_sessions.begin(ADA.token, "here")
    place %= len(cookie)
    changed = cookie[:place] + letter + cookie[place + 1 :]

    assert changed == cookie or open_sessions.find(changed) is None


def test_the_proof_of_one_session_is_none_of_another() -> None:
    open_sessions, _ = sessions()
    one, other = (open_sessions.find(open_sessions.begin(ADA.token, "here")) for _ in range(2))

    assert one is not None
    assert other is not None
    assert not open_sessions.proves(one, other.proof)
    assert not open_sessions.proves(one, "")
    assert not open_sessions.proves(one, "ö")


def test_a_session_and_its_proof_are_not_the_same_secret() -> None:
    open_sessions, _ = sessions()
    cookie = open_sessions.begin(ADA.token, "here")
    session = open_sessions.find(cookie)

    assert session is not None
    assert session.proof not in cookie


def test_after_some_wrong_tokens_none_is_looked_at_for_a_while() -> None:
    open_sessions, clock = sessions()
    for _ in range(TRIES):
        with pytest.raises(WrongToken):
            open_sessions.begin("wrong", "there")

    with pytest.raises(TooManyTries):
        open_sessions.begin(ADA.token, "there")
    assert open_sessions.begin(ADA.token, "here")
    clock.time = NOW + TRIES_WINDOW - timedelta(microseconds=1)
    with pytest.raises(TooManyTries):
        open_sessions.begin(ADA.token, "there")
    clock.time = NOW + TRIES_WINDOW
    assert open_sessions.begin(ADA.token, "there")
