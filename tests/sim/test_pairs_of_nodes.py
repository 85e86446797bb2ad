"""Tests between nodes in simulated worlds: what is bad is found, and nobody else is harmed."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from effort import examples

from holdfast.adapters.sim.scenario import (
    ControllerFaults,
    Hardware,
    LosesPower,
    RemedyRequest,
    Scenario,
    Training,
)
from holdfast.adapters.sim.simulation import Simulation
from holdfast.decisions.policy import RemediationPolicy
from holdfast.kit.quota import Quota
from holdfast.model.jobs import JobSpec
from holdfast.model.names import DeepCheck, Reason
from holdfast.model.requests import Verb
from tests.simulation.fuzz import judge_seeds
from tests.simulation.trial import judge

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
SCHEDULES = examples(200)
CHUNK = min(100, SCHEDULES)
ON_START = RemediationPolicy(
    deep_check_on_start=True, deep_check_pairs=True, max_unavailable=Quota(percent=100.0)
)
NO_MISHAPS = ControllerFaults()
NO_PARTNER = "no other node of its group and type was available to test it with"
ON_DEMAND = RemediationPolicy(deep_check_pairs=True)


@pytest.mark.parametrize("first", range(0, SCHEDULES, CHUNK))
def test_every_law_holds_in_every_schedule_with_tests_between_nodes(first: int) -> None:
    assert judge_seeds(range(first, first + CHUNK), pairs=True) == CHUNK


def judged(
    nodes: int,
    policy: RemediationPolicy = ON_START,
    *,
    scenario_events: Sequence[RemedyRequest | LosesPower] = (),
    trainings: Sequence[Training] = (),
    controller_faults: ControllerFaults = NO_MISHAPS,
    **hardware: Any,
) -> Simulation:
    return judge(
        Scenario(
            nodes=nodes,
            policy=policy,
            scenario_events=tuple(scenario_events),
            trainings=tuple(trainings),
            hardware=Hardware(**hardware),
            controller_faults=controller_faults,
        )
    )


def accused(simulation: Simulation) -> list[str]:
    """The machines that tests with others have sent away."""
    return [one.provider_id for one in simulation.world.incidents.values()
            if one.reason == Reason.PAIR_FAILED]  # fmt: skip


def machine(number: int) -> str:
    return f"i-{2 * number + 1:017x}"  # every second number is that of its first boot


def notes(simulation: Simulation) -> Iterable[str]:
    return [node.record.checks[-1].remarks for node in simulation.world.nodes.values()
            if node.record.checks]  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_a_node_that_is_bad_half_of_the_time_is_replaced_and_no_other(seed: int) -> None:
    simulation = judged(16, flawed=(seed % 16,), flaws_seed=seed)

    assert accused(simulation) == [machine(seed % 16)]
    assert set(notes(simulation)) == {""}


@pytest.mark.parametrize("seed", range(5))
def test_where_nothing_is_bad_nobody_is_accused_and_all_are_tested(seed: int) -> None:
    simulation = judged(9, flaws_seed=seed)

    assert accused(simulation) == []
    for node in simulation.world.nodes.values():
        assert len(node.record.checks[-1].partners) >= 4
        assert node.record.checked_machine
    assert simulation.world.now - simulation.world.start < timedelta(minutes=30)


def test_a_bad_link_is_reported_and_costs_no_node() -> None:
    simulation = judged(8, flawed_links=((0, 1),), flaws_show=1.0)

    assert accused(simulation) == []
    said = {name: node.record.checks[-1].detail for name, node in simulation.world.nodes.items()}
    ends = [f"hyperpod-{machine(0)}", f"hyperpod-{machine(1)}"]
    assert {name for name, note in said.items() if note} == set(ends)
    assert f"({ends[1]}); unclear whether the node, a peer or a link is bad" in said[ends[0]]


def test_where_all_tests_fail_no_node_is_to_blame() -> None:
    simulation = judged(6, flawed=tuple(range(6)), flaws_show=1.0)

    assert accused(simulation) == []
    assert all("inspect what they share" in note for note in notes(simulation))


def test_two_nodes_that_cannot_talk_are_both_given_back_with_a_word() -> None:
    simulation = judged(2, flawed=(0,), flaws_show=1.0)

    assert accused(simulation) == []
    assert all("it failed 12 of 12 tests" in note for note in notes(simulation))


def test_a_node_that_is_alone_passes_and_that_is_reported() -> None:
    simulation = judged(1)

    (note,) = notes(simulation)
    assert f"{DeepCheck.CONNECTIVITY} skipped: {NO_PARTNER}" in note


def requested(node: int) -> tuple[RemedyRequest, ...]:
    return (RemedyRequest(at=5 * MINUTE, node=node, verb=Verb.DEEP_CHECK),)


def test_a_single_node_is_tested_with_one_that_has_no_job() -> None:
    simulation = judged(3, ON_DEMAND, scenario_events=requested(0))

    reasons = [one.reason for one in simulation.world.incidents.values()]
    assert sorted(reasons) == [Reason.DEEP_CHECK_PARTNER, Reason.REQUESTED_DEEP_CHECK]
    (check,) = simulation.world.nodes[f"hyperpod-{machine(0)}"].record.checks
    assert (check.passed, check.detail, len(check.partners)) == (True, "", 1)


def test_a_single_bad_node_is_found_with_those_that_have_no_job() -> None:
    simulation = judged(4, ON_DEMAND, scenario_events=requested(0), flawed=(0,), flaws_show=1.0)

    assert accused(simulation) == [machine(0)]


def test_a_bad_node_that_is_lent_is_the_one_that_is_found() -> None:
    simulation = judged(5, ON_DEMAND, scenario_events=requested(3), flawed=(0,), flaws_show=1.0)

    assert machine(3) not in accused(simulation)


def test_a_node_that_works_is_never_taken_to_be_tested_with() -> None:
    training = Training(spec=JobSpec(name="job", nodes=3), steps=500, step_time=10 * SECOND)
    simulation = judged(4, ON_DEMAND, scenario_events=requested(3), trainings=(training,))

    assert {one.reason for one in simulation.world.incidents.values()} <= {
        Reason.REQUESTED_DEEP_CHECK
    }
    (job,) = simulation.world.jobs.values()
    assert job.record.attempt <= 2


def test_there_are_never_more_nodes_under_a_check_than_allowed() -> None:
    policy = RemediationPolicy(
        deep_check_on_start=True, deep_check_pairs=True, max_checking=Quota(count=1)
    )
    simulation = judged(4, policy)

    assert all(NO_PARTNER in note for note in notes(simulation))


def test_tests_that_say_nothing_are_given_up_soon() -> None:
    simulation = judged(2, silent_pairs=(True,) * 50)

    assert all(
        "no test with another node was conclusive: simulated" in n for n in notes(simulation)
    )
    assert simulation.world.owner.pairs == 2


def test_a_test_that_never_ends_keeps_nobody_for_ever() -> None:
    simulation = judged(4, silent_pairs=(None,))

    assert accused(simulation) == []
    assert simulation.world.now - simulation.world.start < timedelta(hours=1)


def test_a_node_that_dies_in_a_test_leaves_the_other_unharmed() -> None:
    simulation = judged(4, scenario_events=(LosesPower(at=98 * SECOND, node=0),))

    assert accused(simulation) == []


@pytest.mark.parametrize("call", range(60, 200, 10))
def test_a_controller_that_is_killed_in_a_round_is_followed_by_one_that_ends_it(call: int) -> None:
    controller_faults = ControllerFaults(kills=((call, True), (call + 40, False)))

    simulation = judged(6, flawed=(2,), flaws_show=1.0, controller_faults=controller_faults)

    assert accused(simulation) == [machine(2)]
