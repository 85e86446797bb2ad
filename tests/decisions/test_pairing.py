"""Which node or link is bad, from tests of pairs."""

import random
from collections import Counter
from itertools import combinations, product

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.decisions.pairing import (
    BAD_FROM,
    DETECTION_RATE,
    GOOD_UP_TO,
    LINK_IS_BAD,
    NODE_IS_BAD,
    NOISE,
    Localization,
    PairTest,
    localize,
    next_pairs,
    pair_of,
)

NODES = [f"n{number:02}" for number in range(16)]


def play(nodes, passes, rounds) -> tuple[Localization, list[PairTest]]:
    tests: list[PairTest] = []
    for _ in range(rounds):
        tests += [PairTest(nodes=pair, passed=passes(pair)) for pair in next_pairs(nodes, tests)]
    return localize(nodes, tests), tests


@st.composite
def histories(draw, *, most: int = 9, tests: int = 40) -> tuple[list[str], list[PairTest]]:
    nodes = draw(st.lists(st.sampled_from(NODES), min_size=2, max_size=most, unique=True))
    pairs = st.lists(st.sampled_from(nodes), min_size=2, max_size=2, unique=True)
    one = st.builds(lambda pair, passed: PairTest(nodes=pair_of(*pair), passed=passed), pairs,
                    st.booleans())  # fmt: skip
    return nodes, draw(st.lists(one, max_size=tests))


@given(histories())
def test_every_node_is_in_one_pair_of_a_round_but_for_an_odd_one(history) -> None:
    nodes, tests = history

    pairs = next_pairs(nodes, tests)

    tested = Counter(node for pair in pairs for node in pair)
    assert set(tested) <= set(nodes)
    assert set(tested.values()) == {1}
    assert len(pairs) == len(nodes) // 2
    assert all(pair == pair_of(*pair) for pair in pairs)


@given(histories())
def test_beliefs_are_probabilities_whatever_was_measured(history) -> None:
    nodes, tests = history

    found = localize(nodes, tests)

    assert set(found.nodes) == set(nodes)
    assert all(0 <= belief <= 1 for belief in (*found.nodes.values(), *found.links.values()))
    assert set(found.links) == {test.nodes for test in tests if not test.passed}


@given(histories())
def test_the_same_tests_say_the_same(history) -> None:
    nodes, tests = history

    assert localize(nodes, tests) == localize(nodes, list(tests))
    assert next_pairs(nodes, tests) == next_pairs(nodes, list(tests))


@given(histories(), st.randoms(use_true_random=False))
def test_a_test_that_passed_exonerates_its_nodes(history, chance) -> None:
    nodes, tests = history
    pair = pair_of(*chance.sample(nodes, 2))

    before = localize(nodes, tests)
    after = localize(nodes, [*tests, PairTest(nodes=pair, passed=True)])

    if not any(not test.passed for test in tests):
        assert all(after.nodes[node] < before.nodes[node] for node in pair)


def test_without_failures_nobody_is_bad_and_seven_rounds_settle_it() -> None:
    for rounds, is_settled in ((0, False), (6, False), (7, True)):
        found, _ = play(NODES, lambda _: True, rounds)
        assert found.bad_nodes == found.bad_links == ()
        assert found.is_settled is is_settled
        assert not found.has_common_cause


def test_nodes_do_not_meet_twice_while_there_are_others() -> None:
    _, tests = play(NODES, lambda _: True, 7)

    assert max(Counter(test.nodes for test in tests).values()) == 1


@given(st.sampled_from(NODES))
def test_a_node_that_always_fails_is_found_and_no_other(bad) -> None:
    found, _ = play(NODES, lambda pair: bad not in pair, 4)

    assert found.bad_nodes == (bad,)
    assert found.bad_links == ()


@settings(max_examples=20)
@given(st.sets(st.sampled_from(NODES), min_size=1, max_size=3))
def test_several_nodes_that_always_fail_are_found(bad) -> None:
    found, _ = play(NODES, bad.isdisjoint, 7)

    assert set(found.bad_nodes) == bad


def test_one_failure_is_no_proof() -> None:
    found = localize(NODES, [PairTest(nodes=("n00", "n01"), passed=False)])

    assert found.bad_nodes == found.bad_links == ()
    assert found.nodes["n00"] == found.nodes["n01"] > 10 * found.nodes["n02"]
    assert not found.is_settled


def test_suspects_meet_those_that_nothing_speaks_against() -> None:
    good = [PairTest(nodes=pair, passed=True) for pair in (("c", "d"), ("c", "e"), ("d", "e"))]
    tests = [*good, PairTest(nodes=("a", "b"), passed=False)]

    pairs = next_pairs(["a", "b", "c", "d", "e", "f", "g"], tests)

    partners = {node for pair in pairs for node in pair if {"a", "b"} & {*pair}} - {"a", "b"}
    assert partners < {"c", "d", "e"}
    assert ("a", "b") not in pairs


def test_failures_that_follow_a_node_speak_against_it_and_for_its_partners() -> None:
    tests = [PairTest(nodes=pair_of("n00", other), passed=False) for other in ("n01", "n02")]

    found = localize(NODES, tests)

    assert found.bad_nodes == ("n00",)
    assert found.nodes["n01"] < BAD_FROM / 2


def test_failures_that_stay_with_a_pair_speak_against_the_link() -> None:
    first = pair_of(*next_pairs(NODES, [])[0])

    found, tests = play(NODES, lambda pair: pair != first, 20)
    later, _ = play(NODES, lambda pair: pair != first, 30)

    assert found.bad_links == later.bad_links == (first,)
    assert found.bad_nodes == later.bad_nodes == ()
    assert later.is_settled
    assert sum(test.nodes == first for test in tests) <= 4


def posterior(nodes, tests) -> dict[object, float]:
    """What is to be believed, by the definition of the model: over all that may be bad together."""
    links = sorted({test.nodes for test in tests if not test.passed})
    parts = [*nodes, *links]
    weights: Counter[object] = Counter()
    for bad in product((False, True), repeat=len(parts)):
        held = {part for part, is_bad in zip(parts, bad, strict=True) if is_bad}
        weight = 1.0
        for part in parts:
            prior = LINK_IS_BAD if isinstance(part, tuple) else NODE_IS_BAD
            weight *= prior if part in held else 1 - prior
        for test in tests:
            passes = (1 - NOISE) * (1 - DETECTION_RATE) ** len(held & {*test.nodes, test.nodes})
            weight *= passes if test.passed else 1 - passes
        weights[None] += weight
        weights.update(dict.fromkeys(held, weight))
    return {part: weights[part] / weights[None] for part in parts}


@pytest.mark.parametrize("count", [4, 6])
@pytest.mark.parametrize("failures", range(1, 9))
@pytest.mark.parametrize("passes", [0, 2])
def test_a_pair_that_fails_again_and_again_is_reckoned_exactly(count, failures, passes) -> None:
    nodes = NODES[:count]
    tests = [PairTest(nodes=(nodes[0], nodes[1]), passed=False)] * failures
    tests += [PairTest(nodes=(nodes[0], nodes[1]), passed=True)] * passes
    others = [pair for pair in combinations(nodes, 2) if pair != (nodes[0], nodes[1])]
    tests += [PairTest(nodes=pair, passed=True) for pair in others for _ in range(4)]

    found = localize(nodes, tests)

    exact = posterior(nodes, tests)
    for part, belief in (*found.nodes.items(), *found.links.items()):
        assert belief == pytest.approx(exact[part], rel=1e-3)


@given(histories(most=5, tests=16))
@settings(max_examples=examples(100), deadline=None)
def test_nobody_is_accused_or_cleared_against_the_model(history) -> None:
    """Where the pairs that failed make circles the reckoning is not exact, but not far off."""
    nodes, tests = history

    found = localize(nodes, tests)

    exact = posterior(nodes, tests)
    for part, belief in (*found.nodes.items(), *found.links.items()):
        assert belief < BAD_FROM or exact[part] > 0.5
        assert belief > GOOD_UP_TO or exact[part] < 0.05


@pytest.mark.parametrize("count", [4, 6])
def test_a_link_that_always_fails_is_found_also_where_each_pair_is_tested_often(count) -> None:
    bad = (NODES[0], NODES[1])

    found, _ = play(NODES[:count], lambda pair: pair != bad, 30)

    assert found.bad_links == (bad,)
    assert found.bad_nodes == ()


def around(failed: set[tuple[str, str]], count: int, times: int) -> list[PairTest]:
    """One failure of some pairs, and so many tests of all others that passed."""
    return [
        PairTest(nodes=pair, passed=pair not in failed)
        for pair in combinations(NODES[:count], 2)
        for _ in range(1 if pair in failed else times)
    ]


def test_a_doubt_about_a_link_is_worth_more_tests() -> None:
    link = (NODES[0], NODES[1])

    found = localize(NODES[:8], around({link}, 8, 4))

    assert max(found.nodes.values()) < GOOD_UP_TO
    assert NODE_IS_BAD < found.links[link] < BAD_FROM
    assert not found.is_settled


def test_of_two_links_in_doubt_at_one_node_only_one_is_tested_in_a_round() -> None:
    links = {(NODES[0], NODES[1]), (NODES[0], NODES[2])}
    tests = around(links, 10, 6)
    found = localize(NODES[:10], tests)

    pairs = next_pairs(NODES[:10], tests)

    assert all(found.links[link] > max(found.nodes[end] for end in link) for link in links)
    assert len(links.intersection(pairs)) == 1
    assert sorted(node for pair in pairs for node in pair) == NODES[:10]


def test_a_belief_accuses_nobody_while_most_fail() -> None:
    bad = set(NODES[:3])
    tests = [
        PairTest(nodes=pair, passed=bad.isdisjoint(pair))
        for pair in combinations(NODES[:5], 2)
        for _ in range(3)
    ]

    found = localize(NODES[:5], tests)

    assert max(found.nodes.values()) >= BAD_FROM
    assert found.has_common_cause
    assert found.bad_nodes == ()


def test_failures_of_one_pair_alone_accuse_nobody_however_many_there_are() -> None:
    nodes = NODES[:4]
    tests = [PairTest(nodes=(nodes[0], nodes[1]), passed=False)] * 1000
    tests += [PairTest(nodes=(nodes[2], nodes[3]), passed=True)] * 8

    found = localize(nodes, tests)

    assert not found.has_common_cause
    assert found.bad_nodes == found.bad_links == ()
    assert not found.is_settled


def test_what_all_share_is_blamed_on_nobody() -> None:
    found, _ = play(NODES, lambda _: False, 6)

    assert found.has_common_cause
    assert found.bad_nodes == found.bad_links == ()


def test_one_of_three_nodes_may_be_bad_one_of_two_cannot_be_named() -> None:
    three, _ = play(["a", "b", "c"], lambda pair: "a" not in pair, 9)
    two, _ = play(["a", "b"], lambda pair: "a" not in pair, 9)

    assert three.bad_nodes == ("a",)
    assert two.has_common_cause


def test_half_of_the_nodes_may_be_bad_before_it_is_a_common_cause() -> None:
    tests = [PairTest(nodes=pair_of("a", "b"), passed=False)]

    assert not localize(["a", "b", "c", "d"], tests).has_common_cause
    assert localize(["a", "b", "c"], tests).has_common_cause


@pytest.mark.parametrize("bad_count", [1, 4])
def test_nodes_that_fail_half_of_the_time_are_found_in_twelve_rounds(bad_count) -> None:
    nodes = [f"node-{number}" for number in range(64)]
    missed = wrong = 0
    for seed in range(12):
        chance = random.Random(seed)
        bad = set(chance.sample(nodes, bad_count))
        found, _ = play(
            nodes,
            lambda pair, b=bad, c=chance: all(n not in b or c.random() < 0.5 for n in pair),
            12,
        )
        missed += len(bad - set(found.bad_nodes))
        wrong += len(set(found.bad_nodes) - bad)

    assert wrong == 0
    assert missed <= 1
