"""Who is let in to the console, for how long, and what proves that a request is meant."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.api.console_sessions import (
    FRESH,
    LIFETIME,
    SESSIONS,
    TRIES,
    TRIES_WINDOW,
    Sessions,
    TooManyTries,
    WrongToken,
)
from holdfast.api.identity import AccessKey, Role, token_digest
from holdfast.model.errors import BackendError
from tests.ports.fake_sessions import FakeSessions
from tests.ports.fakes import FakeClock

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TOKENS = {"ada": "token-of-ada-" * 2, "bob": "token-of-bob-" * 2}
ADA = AccessKey(
    access_key_id="AKIAAAAAAAAAAAAAAAAA",
    secret_access_key="a" * 40,
    role=Role.OPERATE,
    name="ada",
    token_sha256=token_digest(TOKENS["ada"]),
)
BOB = AccessKey(
    access_key_id="AKIABBBBBBBBBBBBBBBB",
    secret_access_key="b" * 40,
    name="bob",
    token_sha256=token_digest(TOKENS["bob"]),
)
EVE = AccessKey(access_key_id="AKIAEEEEEEEEEEEEEEEE", secret_access_key="e" * 40)


def sessions(
    *keys: AccessKey, at: datetime = NOW, records: FakeSessions | None = None
) -> tuple[Sessions, FakeClock]:
    clock = FakeClock(at)
    return Sessions(keys or (ADA, BOB, EVE), records or FakeSessions(), clock), clock


@pytest.mark.parametrize("key", [ADA, BOB])
def test_a_token_opens_a_session_of_its_owner(key: AccessKey) -> None:
    open_sessions, _ = sessions()

    cookie, begun = open_sessions.begin(TOKENS[key.name], "here")
    session = open_sessions.find(cookie)

    assert session == begun
    assert session.principal == key.principal
    assert open_sessions.proves(session, session.proof)


@pytest.mark.parametrize(
    "token", ["", "token", TOKENS["ada"][:-1], TOKENS["ada"] + "x", ADA.token_sha256, "a" * 40, "ö"]
)
def test_any_other_text_opens_none(token: str) -> None:
    open_sessions, _ = sessions()

    with pytest.raises(WrongToken):
        open_sessions.begin(token, "here")


def test_nobody_logs_in_without_a_token_of_their_own() -> None:
    assert not sessions(EVE)[0].are_possible
    assert sessions(ADA)[0].are_possible


def test_a_session_ends_with_its_time_and_not_before() -> None:
    open_sessions, clock = sessions()
    cookie = open_sessions.begin(TOKENS["ada"], "here")[0]

    clock.time = NOW + LIFETIME - timedelta(microseconds=1)
    before = open_sessions.find(cookie)
    clock.time = NOW + LIFETIME
    after = open_sessions.find(cookie)

    assert before is not None
    assert after is None


def test_who_logs_out_is_out_and_others_are_not() -> None:
    open_sessions, _ = sessions()
    mine, other = (open_sessions.begin(TOKENS["ada"], "here")[0] for _ in range(2))

    open_sessions.end(mine)

    assert mine != other
    assert open_sessions.find(mine) is None
    assert open_sessions.find(other) is not None


def test_a_session_outlives_the_server_and_not_its_token() -> None:
    records = FakeSessions()
    cookie, session = sessions(records=records)[0].begin(TOKENS["ada"], "here")
    renewed = replace(ADA, token_sha256=token_digest("another-of-ada-" * 2))

    assert sessions(records=records)[0].find(cookie) == session
    for keys in ((renewed,), (BOB,), (replace(ADA, operations=("ListClusters",)),)):
        assert sessions(*keys, records=records)[0].find(cookie) is None


@pytest.mark.attack
def test_a_logout_outlives_the_server() -> None:
    records = FakeSessions()
    open_sessions, _ = sessions(records=records)
    cookie, _ = open_sessions.begin(TOKENS["ada"], "here")
    assert open_sessions.find(cookie) is not None

    open_sessions.end(cookie)

    assert open_sessions.known(cookie) is None
    assert sessions(records=records)[0].find(cookie) is None


def test_a_logout_elsewhere_counts_once_the_session_is_read_again() -> None:
    records = FakeSessions()
    here, clock = sessions(records=records)
    cookie, session = here.begin(TOKENS["ada"], "here")
    assert here.known(cookie) is None
    assert here.find(cookie) == here.known(cookie) == session
    sessions(records=records)[0].end(cookie)

    clock.time = NOW + FRESH - timedelta(microseconds=1)
    before = here.known(cookie)
    clock.time = NOW + FRESH

    assert before == session
    assert here.known(cookie) is None
    assert here.find(cookie) is None


def test_a_logout_that_cannot_be_stored_is_reported() -> None:
    records = FakeSessions()
    open_sessions, _ = sessions(records=records)
    cookie, _ = open_sessions.begin(TOKENS["ada"], "here")
    records.trouble = "the disk is full"

    with pytest.raises(BackendError, match="the disk is full"):
        open_sessions.end(cookie)
    with pytest.raises(BackendError, match="the disk is full"):
        open_sessions.find(cookie)


def test_a_session_ends_with_its_key() -> None:
    ends = NOW + timedelta(minutes=1)
    open_sessions, clock = sessions(replace(ADA, expires_at=ends))
    cookie, session = open_sessions.begin(TOKENS["ada"], "here")

    assert session.expires_at == ends
    clock.time = ends - timedelta(microseconds=1)
    assert open_sessions.find(cookie) == session
    clock.time = ends
    assert open_sessions.find(cookie) is None
    assert open_sessions.known(cookie) is None
    with pytest.raises(WrongToken):
        open_sessions.begin(TOKENS["ada"], "here")


def test_the_sessions_of_one_person_are_limited() -> None:
    open_sessions, clock = sessions()
    other, _ = open_sessions.begin(TOKENS["bob"], "here")
    cookies = []
    for number in range(SESSIONS + 1):
        clock.time = NOW + timedelta(seconds=number)
        cookies.append(open_sessions.begin(TOKENS["ada"], "here")[0])

    is_open = [open_sessions.find(one) is not None for one in cookies]

    assert is_open == [False] + [True] * SESSIONS
    assert open_sessions.find(other) is not None


@given(st.text(max_size=200))
def test_no_other_text_is_a_cookie(text: str) -> None:
    assert sessions()[0].find(text) is None


@given(st.integers(0, 200), st.characters(min_codepoint=33, max_codepoint=126))
def test_a_cookie_that_was_changed_is_none(place: int, letter: str) -> None:
    open_sessions, _ = sessions()
    cookie = open_sessions.begin(TOKENS["ada"], "here")[0]
    place %= len(cookie)
    changed = cookie[:place] + letter + cookie[place + 1 :]

    assert changed == cookie or open_sessions.find(changed) is None


def test_the_proof_of_one_session_is_none_of_another() -> None:
    open_sessions, _ = sessions()
    one, other = (open_sessions.begin(TOKENS["ada"], "here")[1] for _ in range(2))

    assert not open_sessions.proves(one, other.proof)
    assert not open_sessions.proves(one, "")
    assert not open_sessions.proves(one, "ö")


def test_a_session_and_its_proof_are_not_the_same_secret() -> None:
    open_sessions, _ = sessions()
    cookie = open_sessions.begin(TOKENS["ada"], "here")[0]
    session = open_sessions.find(cookie)

    assert session is not None
    assert session.proof not in cookie


def test_after_some_wrong_tokens_none_is_looked_at_for_a_while() -> None:
    open_sessions, clock = sessions()
    for _ in range(TRIES):
        with pytest.raises(WrongToken):
            open_sessions.begin("wrong", "there")

    with pytest.raises(TooManyTries):
        open_sessions.begin(TOKENS["ada"], "there")
    assert open_sessions.begin(TOKENS["ada"], "here")[0]
    clock.time = NOW + TRIES_WINDOW - timedelta(microseconds=1)
    with pytest.raises(TooManyTries):
        open_sessions.begin(TOKENS["ada"], "there")
    clock.time = NOW + TRIES_WINDOW
    assert open_sessions.begin(TOKENS["ada"], "there")
