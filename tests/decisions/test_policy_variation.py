"""Every setting of a policy varies in the property tests and in the simulator."""

from dataclasses import fields
from typing import get_type_hints

import pytest
from hypothesis import Phase, find
from hypothesis import settings as effort
from hypothesis.errors import NoSuchExample
from hypothesis.strategies import SearchStrategy
from policy_strategies import job_policies, loss_limits, node_policies, restart_budgets

from holdfast.decisions.job_resume import ResumePolicy
from holdfast.decisions.loss_faults import LossLimits
from holdfast.decisions.policy import JobPolicy, RemediationPolicy
from holdfast.decisions.restart_rungs import RestartBudget
from tests.simulation.schedules import random_scenario

SEEDS = range(300)
SCENARIOS = [random_scenario(seed) for seed in SEEDS]


def settings(policy):
    return [field.name for field in fields(policy)]


def varies(strategy: SearchStrategy, name: str, default: object) -> bool:
    """Whether the strategy draws another value soon."""
    without_shrinking = effort(phases=[Phase.generate], max_examples=1000)
    try:
        find(strategy, lambda one: getattr(one, name) != default, settings=without_shrinking)
    except NoSuchExample:
        return False
    return True


def missing(name: str, settings: str) -> str:
    return f"{name} always has its default: add a strategy to {settings} in policy_strategies.py"


def unvaried(name: str, function: str) -> str:
    return f"{name} is always the same: draw it in {function} in tests/simulation/schedules.py"


@pytest.mark.parametrize("name", settings(RemediationPolicy))
def test_a_setting_for_nodes_varies_in_the_strategies_and_in_random_scenarios(name) -> None:
    default = getattr(RemediationPolicy(), name)

    assert varies(node_policies, name, default), missing(name, "NODE_SETTINGS")
    drawn = {getattr(one.policy, name) for one in SCENARIOS}
    assert len(drawn) > 1, unvaried(name, "_with_later_settings")


@pytest.mark.parametrize("name", settings(JobPolicy))
def test_a_setting_for_jobs_varies_in_the_strategies_and_in_random_scenarios(name) -> None:
    default = getattr(JobPolicy(), name)

    assert varies(job_policies, name, default), missing(name, "JOB_SETTINGS")
    drawn = {getattr(one.job_policy, name) for one in SCENARIOS}
    assert len(drawn) > 1, unvaried(name, "_job_policy")


def test_decisions_about_jobs_have_no_settings_but_those_that_vary() -> None:
    assert set(get_type_hints(ResumePolicy).values()) == {JobPolicy, RemediationPolicy}


@pytest.mark.parametrize("name", settings(LossLimits))
def test_a_setting_for_losses_varies_in_the_strategies(name) -> None:
    is_drawn = varies(loss_limits, name, getattr(LossLimits(), name))
    assert is_drawn, missing(name, "LOSS_SETTINGS")


@pytest.mark.parametrize("name", settings(RestartBudget))
def test_a_restart_budget_varies_in_the_strategies(name) -> None:
    is_drawn = varies(restart_budgets, name, getattr(RestartBudget(), name))
    assert is_drawn, missing(name, "BUDGET_SETTINGS")
