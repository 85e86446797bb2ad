"""Results of the same steps on two nodes, compared bit by bit."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.replay_results import Replay, compared, parse_replay

DIGESTS = st.sampled_from([letter * 64 for letter in "0123456789abcdef"])
KEYS = st.builds(lambda step, rank: f"{step} rank-{rank}", st.integers(0, 50), st.integers(0, 3))
RESULTS = st.dictionaries(KEYS, DIGESTS, min_size=1)


def printed(one: Replay) -> str:
    lines = [f"holdfast: replay on {one.kind}"]
    lines += [f"holdfast: replay {key} {digest}" for key, digest in one.digests.items()]
    return "\n".join(["loss 2.3", *lines, "holdfast: replay x", "done"])


@given(RESULTS)
def test_what_is_printed_is_read_and_equals_itself(digests: dict[str, str]) -> None:
    one = Replay(kind="torch 2", digests=digests)

    assert parse_replay(printed(one)) == one
    assert compared(one, one).is_equal is True


@given(RESULTS, st.data())
def test_any_other_digest_is_a_difference_and_the_first_step_is_named(digests, data) -> None:
    wrong = data.draw(st.sets(st.sampled_from(sorted(digests)), min_size=1))
    there = {key: "f" * 63 + "e" if key in wrong else one for key, one in digests.items()}

    found = compared(Replay(kind="a", digests=digests), Replay(kind="a", digests=there))

    assert found.is_equal is False
    first = min(int(key.split()[0]) for key in wrong)
    assert found.text.startswith(f"the results differ from step {first} on (rank-")


def test_what_cannot_be_compared_is_no_difference() -> None:
    one = Replay(kind="H100", digests={"0 cpu": "a" * 64})

    for other, why in (
        (Replay(kind="H200", digests={"0 cpu": "b" * 64}), "different hardware or software: H100"),
        (Replay(kind="H100"), "the other node has no results"),
        (Replay(kind="H100", digests={"1 cpu": "a" * 64}), "the nodes have done different steps"),
    ):
        found = compared(one, other)
        assert found.is_equal is None
        assert found.text.startswith(why)


def test_an_accelerator_that_differs_from_the_others_of_its_node_is_named() -> None:
    digests = {f"{step} cuda:{gpu}": "a" * 64 for step in range(3) for gpu in range(4)}
    bad = {**digests, "1 cuda:2": "b" * 64, "2 cuda:2": "c" * 64}

    found = compared(Replay(kind="H100", digests=digests), Replay(kind="H100", digests=bad))

    assert found.text == "the other node: cuda:2 differ from step 1 on"
    assert found.is_equal is False
    ranks = {"0 rank-0": "a" * 64, "0 rank-1": "b" * 64}  # of a job: they need not be equal
    assert compared(Replay(digests=ranks), Replay(digests=ranks)).is_equal is True
