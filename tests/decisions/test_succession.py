"""Who replaces whom."""

import random
from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.succession import Arrival, LeavingNode, successors, undecided
from holdfast.model.health import Remedy
from holdfast.model.nodes import Phase
from tests.ports.builders import NOW, a_record, a_remediation

BEFORE = NOW - timedelta(seconds=1)
AFTER = NOW + timedelta(seconds=1)


def leaves(*, group="a", since=NOW, provider_id="i-0", **remediation):
    ordered = {"ordered_at": since, "machine": f"{provider_id}#boot-1", **remediation}
    record = a_record(
        Phase.REPLACING, phase_since=since, remediation=a_remediation(Remedy.REPLACE, **ordered)
    )
    return LeavingNode(record=record, provider_id=provider_id, group=group, uid="uid")


def new(name="new", *, created=AFTER, group="a", provider_id="i-9", replaces=None, is_free=True):
    return Arrival(
        name=name,
        provider_id=provider_id,
        group=group,
        created_at=created,
        is_free=is_free and replaces is None,
        replaces=replaces,
    )


def matched(states, leaving):
    return successors(states, leaving)


def test_a_new_node_of_the_group_replaces_the_one_that_left() -> None:
    assert matched([new()], {"old": leaves()}) == {"new": "old"}


def test_creation_times_are_whole_seconds() -> None:
    at = NOW + timedelta(milliseconds=900)

    assert matched([new(created=NOW)], {"old": leaves(since=at)}) != {}
    assert matched([new(created=BEFORE)], {"old": leaves(since=at)}) == {}


def test_a_node_that_was_there_before_the_order_replaces_nobody() -> None:
    assert matched([new(created=BEFORE)], {"old": leaves()}) == {}


def test_a_repeated_order_does_not_make_the_first_answer_too_old() -> None:
    late = leaves(ordered_at=NOW + timedelta(minutes=5))

    assert matched([new()], {"old": late}) == {"new": "old"}


def test_nobody_is_replaced_before_the_order_was_accepted() -> None:
    assert matched([new()], {"old": leaves(ordered_at=None)}) == {}


def test_only_nodes_that_are_being_replaced_are_replaced() -> None:
    stays = replace(leaves(), record=a_record(Phase.QUARANTINED))

    assert matched([new()], {"old": stays}) == {}


def test_a_node_of_another_group_replaces_nobody() -> None:
    assert matched([new(group="b")], {"old": leaves()}) == {}
    assert matched([new(group="")], {"old": leaves()}) == {}
    assert matched([new(group="a")], {"old": leaves(group="")}) == {}


def test_nodes_without_a_group_label_replace_each_other() -> None:
    assert matched([new(group="")], {"old": leaves(group="")}) == {"new": "old"}


def test_a_node_that_is_not_free_replaces_nobody() -> None:
    assert matched([new(is_free=False)], {"old": leaves()}) == {}


def test_who_has_a_successor_needs_no_other() -> None:
    assert matched([new("first", replaces="old"), new()], {"old": leaves()}) == {}


def test_who_replaced_an_earlier_machine_of_that_name_is_no_answer() -> None:
    earlier = new("earlier", created=BEFORE, replaces="old")

    assert matched([earlier, new()], {"old": leaves()}) == {"new": "old"}
    assert undecided([earlier, new()], {"old": leaves()}) == {"new"}


def test_who_waits_longest_gets_the_node_that_came_first() -> None:
    leaving = {"late": leaves(since=NOW), "early": leaves(since=NOW - timedelta(hours=1))}
    states = [new("second", created=NOW + timedelta(seconds=9)), new("first")]

    assert matched(states, leaving) == {"first": "early", "second": "late"}


def test_a_node_too_old_for_one_may_be_young_enough_for_another() -> None:
    leaving = {"late": leaves(since=NOW), "early": leaves(since=NOW - timedelta(hours=1))}
    states = [new("second"), new("first", created=BEFORE)]

    assert matched(states, leaving) == {"first": "early", "second": "late"}


def test_who_comes_back_by_its_name_replaces_itself() -> None:
    assert matched([new("old"), new("new")], {"old": leaves()}) == {}


def test_the_old_object_may_still_be_there() -> None:
    states = [new("old", provider_id="i-0", created=BEFORE), new("new")]

    assert matched(states, {"old": leaves()}) == {"new": "old"}


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(-3, 3)), max_size=6),
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(-3, 3)), max_size=4),
    st.randoms(use_true_random=False),
)
def test_each_is_matched_once_and_the_order_does_not_matter(nodes, old, shuffling) -> None:
    states = [
        new(f"new-{i}", group=group, created=NOW + timedelta(seconds=s))
        for i, (group, s) in enumerate(nodes)
    ]
    leaving = {
        f"old-{i}": leaves(group=group, since=NOW + timedelta(seconds=s))
        for i, (group, s) in enumerate(old)
    }

    pairs = matched(states, leaving)

    assert len(set(pairs.values())) == len(pairs)
    known = {state.name: state for state in states}
    for name, gone in pairs.items():
        assert known[name].group == leaving[gone].group
        assert known[name].created_at >= leaving[gone].record.phase_since
    for state in states:  # nobody waits beside a node that would do
        for name, one in leaving.items():
            fits = state.group == one.group and state.created_at >= one.record.phase_since
            assert not (fits and state.name not in pairs and name not in pairs.values())
    mixed = random.Random(shuffling.random()).sample(states, len(states))
    assert matched(mixed, dict(reversed(leaving.items()))) == pairs

    earlier = [
        new(f"earlier-{name}", created=one.record.phase_since - timedelta(seconds=1), replaces=name)
        for name, one in leaving.items()
    ]
    assert matched([*states, *earlier], leaving) == pairs  # names are used again

    assert waits(states, leaving) == set(pairs)  # every order is answered
    recorded = [
        one._replace(is_free=one.name not in pairs, replaces=pairs.get(one.name)) for one in states
    ]
    assert waits(recorded, leaving) == set()


def waits(states, leaving):
    return undecided(states, leaving)


def test_a_new_node_waits_while_an_order_has_no_answer() -> None:
    unanswered = {"old": leaves(ordered_at=None)}

    assert waits([new()], unanswered) == {"new"}
    assert matched([new()], unanswered) == {}


def test_a_new_node_waits_for_no_order_that_it_cannot_be_the_answer_to() -> None:
    unanswered = {"old": leaves(ordered_at=None)}

    assert waits([new(created=BEFORE)], unanswered) == set()
    assert waits([new(group="b")], unanswered) == set()
    assert waits([new(is_free=False)], unanswered) == set()


def test_a_new_node_waits_for_no_refused_order() -> None:
    assert waits([new()], {"old": leaves(ordered_at=None, retry_at=NOW)}) == set()


def test_a_replacement_waits_until_that_is_recorded_and_no_other_new_node_does() -> None:
    states = [new("first"), new("second")]

    assert waits(states, {"old": leaves()}) == {"first"}
    recorded = [new("first", replaces="old"), new("second")]
    assert waits(recorded, {"old": leaves()}) == set()


def test_the_replacement_whose_order_got_no_response_is_taken_when_it_appears() -> None:
    lost = {"old": leaves(ordered_at=None, retry_at=NOW, is_outcome_unknown=True)}

    assert matched([new()], lost) == {"new": "old"}
    assert matched([new(created=BEFORE)], lost) == {}
    assert waits([new()], lost) == {"new"}


def test_a_replacement_may_come_while_its_repetition_is_refused() -> None:
    again = {"old": leaves(ordered_at=None, retry_at=NOW, replacements=2)}

    assert matched([new()], again) == {"new": "old"}
    assert waits([new()], again) == {"new"}


def test_who_comes_back_by_its_name_replaces_nobody_else() -> None:
    assert matched([new("old")], {"old": leaves(), "other": leaves(provider_id="i-1")}) == {}
