"""What a job's Comment asks for."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.slurm.comment import MOST, Key, Mode, Wish, changed, parse


def test_a_comment_without_our_words_says_nothing() -> None:
    for comment in ("", "nightly run", "a=b project=llama", "{}", '{"x": 1}', "{broken"):
        assert parse(comment) == Wish()


def test_our_words_are_read_among_those_of_others() -> None:
    wish = parse("project=llama auto-resume=1  max-retry=3 mode=swap checkpoint=/fsx/c skip_checks")

    assert wish == Wish(auto_resume=True, max_retry=3, mode=Mode.SWAP, checkpoint="/fsx/c")


def test_the_last_of_two_words_counts() -> None:
    assert parse("auto-resume=1 auto-resume=0").auto_resume is False


def test_the_supervisor_may_ask_for_the_requeue() -> None:
    assert parse("mode=step ask=requeue").asks_requeue
    assert not parse("mode=step").asks_requeue
    assert not parse("ask=beer").asks_requeue


@pytest.mark.parametrize(
    ("comment", "resume", "retries"),
    [
        ('{"APS": {"auto_resume_mode": "requeue", "max_requeue_times": 1}}', True, 1),
        ('{"APS": {"auto_resume_mode": "requeue"}}', True, None),
        ('{"APS": {"auto_resume_mode": "none"}}', False, None),
        ('{"APS": {"auto_resume_mode": "requeue"}, "holdfast": {"max-retry": 7}}', True, 7),
        ('{"APS": {"max_requeue_times": 1}} auto-resume=1', True, 1),
        ('{"APS": 3}', None, None),
    ],
)
def test_nvidias_form_is_read(comment: str, resume: bool | None, retries: int | None) -> None:
    wish = parse(comment)

    assert (wish.auto_resume, wish.max_retry) == (resume, retries)
    assert wish.rejected == ()


@pytest.mark.parametrize(
    ("comment", "key"),
    [
        ("auto-resume=yes", "auto-resume"),
        ("auto-resume=", "auto-resume"),
        ("auto-resume=-1", "auto-resume"),
        ("Auto_Resume=1", "Auto_Resume"),
        (f"max-retry={MOST + 1}", "max-retry"),
        ("max-retry=³", "max-retry"),
        ("mode=fast", "mode"),
        ("ask=swap", "ask"),
        ("checkpoint=relative/path", "checkpoint"),
        ('{"APS": {"auto_resume_mode": "fly"}}', "auto-resume"),
        ('{"holdfast": {"mode": ["x"]}}', "mode"),
    ],
)
def test_what_cannot_be_used_is_rejected_and_not_guessed(comment: str, key: str) -> None:
    wish = parse(comment)

    assert [one.key for one in wish.rejected] == [key]
    assert Wish(rejected=wish.rejected) == wish


def test_a_change_keeps_the_words_of_others() -> None:
    comment = "project=llama  auto-resume=1 mode=step x-mode=step"

    asked = changed(comment, {Key.ASK: "requeue", Key.MODE: None})

    assert asked == "project=llama  auto-resume=1 x-mode=step ask=requeue"
    assert changed("auto-resume=1", {Key.AUTO_RESUME: None}) == ""


def test_json_stays_json() -> None:
    comment = '{"APS": {"auto_resume_mode": "requeue"}}'

    asked = changed(comment, {Key.ASK: "requeue"})

    assert json.loads(asked) == {**json.loads(comment), "holdfast": {"ask": "requeue"}}
    assert json.loads(changed(asked, {Key.ASK: None})) == json.loads(comment)


def test_a_value_that_cannot_be_read_again_is_not_written() -> None:
    with pytest.raises(ValueError, match="without blanks, got '/a b'"):
        changed("", {Key.CHECKPOINT: "/a b"})


@given(st.text(max_size=60))
def test_no_comment_is_too_strange(text: str) -> None:
    assert parse(text) == parse(text)


@given(
    st.lists(st.sampled_from(["a=b", "mode=step", '{"APS": 1}', "auto-resume=0", "x"]), max_size=5)
)
def test_what_is_changed_is_read_so_and_the_rest_as_before(words: list[str]) -> None:
    before = " ".join(words)
    after = changed(before, {Key.AUTO_RESUME: "1", Key.CHECKPOINT: "/c"})

    assert (parse(after).auto_resume, parse(after).checkpoint) == (True, "/c")
    assert parse(after).mode == parse(before).mode
    again = changed(after, {Key.AUTO_RESUME: "1", Key.CHECKPOINT: "/c"})
    assert parse(again) == parse(after)
