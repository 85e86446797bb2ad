"""Laws of the restart ladder of a step."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.step_restart import (
    ApplicationEnd,
    EndedStep,
    RestartDecision,
    RestartMode,
    RestartTimeouts,
    StepAction,
    decide_restart,
    format_faults,
)

NAMES = ("node1", "node2", "node3", "node4")
TIMEOUTS = RestartTimeouts(
    grace=timedelta(seconds=10),
    fence=timedelta(seconds=50),
    swap=timedelta(seconds=100),
    requeue=timedelta(seconds=5),
)
EDGES = [0.0, 9.999999, 10.0, 49.999999, 50.0, 99.999999, 100.0, 1e6]

some_names = st.lists(st.sampled_from(NAMES), min_size=1, unique=True).map(tuple)
node_sets = st.frozensets(st.sampled_from(NAMES))


losses = st.builds(
    ApplicationEnd,
    why=st.just("LossNotFinite: the loss is nan at step 3"),
    obstacle=st.sampled_from(["", "loss_action is stop"]),
    restarts=st.integers(0, 4),
    max_restarts=st.integers(0, 4),
)


@st.composite
def ended_steps(draw: st.DrawFn) -> EndedStep:
    step_nodes = draw(some_names)
    usable = draw(node_sets)
    return EndedStep(
        mode=draw(st.sampled_from(RestartMode)),
        step_nodes=step_nodes,
        allocation=draw(some_names),
        usable=usable,
        unreachable=draw(node_sets) - usable,
        faults=dict.fromkeys(draw(st.lists(st.sampled_from(step_nodes))), "broken"),
        since=timedelta(seconds=draw(st.sampled_from(EDGES))),
        relaunches=draw(st.integers(0, 4)),
        max_retries=draw(st.integers(0, 4)),
        stalled=draw(st.integers(0, 4)),
        stall_limit=draw(st.integers(1, 4)),
        batch_host=draw(st.sampled_from(["", *NAMES])),
        is_bound=draw(st.booleans()),
        cannot_exchange=draw(st.sampled_from(["", "it has GRES"])),
        application_end=draw(st.none() | losses),
    )


@given(ended_steps())
def test_a_step_without_a_fault_is_restarted_for_its_loss_only(step: EndedStep) -> None:
    if not step.faults and step.application_end is None:
        expected = StepAction.WAIT if step.since < TIMEOUTS.grace else StepAction.END
        assert decide_restart(step, TIMEOUTS).action is expected


@given(ended_steps())
def test_every_restart_states_its_cause(step: EndedStep) -> None:
    decision = decide_restart(step, TIMEOUTS)

    if decision.action not in (StepAction.WAIT, StepAction.END):
        assert step.faults or step.application_end is not None
        assert decision.why


@given(ended_steps())
def test_a_loss_restarts_a_step_within_its_own_budget_and_never_the_job(step: EndedStep) -> None:
    step = replace(step, faults={}, since=TIMEOUTS.grace)
    decision = decide_restart(step, TIMEOUTS)

    assert decision.action in (StepAction.WAIT, StepAction.END, StepAction.RELAUNCH)
    loss = step.application_end
    if loss is None or loss.obstacle or loss.restarts >= loss.max_restarts:
        assert decision.action is StepAction.END
    if loss is not None and decision.action is StepAction.END:
        assert decision.why


@given(ended_steps())
def test_a_fault_of_a_node_is_the_cause_whatever_the_loss(step: EndedStep) -> None:
    if step.faults:
        alone = replace(step, application_end=None)
        assert decide_restart(step, TIMEOUTS) == decide_restart(alone, TIMEOUTS)


def test_a_loss_restarts_the_step_on_its_own_nodes_in_every_mode() -> None:
    for mode in RestartMode:
        step = EndedStep(
            mode=mode,
            step_nodes=NAMES[:2],
            allocation=NAMES,
            usable=frozenset(NAMES),
            unreachable=frozenset(),
            faults={},
            since=TIMEOUTS.grace,
            relaunches=9,
            max_retries=0,
            application_end=ApplicationEnd(why="LossNotFinite: the loss is nan at step 3"),
        )
        assert decide_restart(step, TIMEOUTS) == RestartDecision(
            action=StepAction.RELAUNCH,
            nodes=NAMES[:2],
            why="LossNotFinite: the loss is nan at step 3",
        )
        early = replace(step, since=TIMEOUTS.grace - timedelta(microseconds=1))
        assert decide_restart(early, TIMEOUTS).action is StepAction.WAIT


@given(ended_steps())
def test_a_relaunch_is_on_as_many_usable_nodes_of_the_allocation(step: EndedStep) -> None:
    decision = decide_restart(step, TIMEOUTS)

    if decision.action is StepAction.RELAUNCH:
        assert len(set(decision.nodes)) == len(decision.nodes) == len(step.step_nodes)
        assert set(decision.nodes) <= set(step.allocation) & step.usable
        assert step.mode is not RestartMode.REQUEUE or step.own_end is not None
        assert step.batch_host not in step.faults
    elif decision.action is not StepAction.EXCHANGE:
        assert decision.nodes == ()


@given(ended_steps())
def test_a_relaunch_moves_only_what_it_must(step: EndedStep) -> None:
    decision = decide_restart(step, TIMEOUTS)

    if decision.action is StepAction.RELAUNCH:
        stay = [name for name in step.step_nodes if name in {*step.allocation} & step.usable]
        assert list(decision.nodes[: len(stay)]) == stay


@given(ended_steps())
def test_nodes_are_exchanged_once_for_a_step_that_may_run_elsewhere(step: EndedStep) -> None:
    decision = decide_restart(step, TIMEOUTS)

    if decision.action is StepAction.EXCHANGE:
        assert step.mode is RestartMode.RESIZE
        assert not step.is_bound
        assert not step.cannot_exchange
        assert decision.missing > 0
        assert len(decision.nodes) + decision.missing == len(step.step_nodes)
        assert set(decision.nodes) <= set(step.allocation) & step.usable
        assert step.batch_host not in step.faults


@given(ended_steps())
def test_a_step_that_swaps_or_names_its_nodes_stays_on_them(step: EndedStep) -> None:
    decision = decide_restart(step, TIMEOUTS)

    if decision.action is StepAction.RELAUNCH and (step.mode is RestartMode.SWAP or step.is_bound):
        assert decision.nodes == step.step_nodes


@given(ended_steps())
def test_waiting_is_bounded(step: EndedStep) -> None:
    if step.since >= max(TIMEOUTS.grace, TIMEOUTS.swap, TIMEOUTS.fence):
        assert decide_restart(step, TIMEOUTS).action is not StepAction.WAIT


@given(ended_steps())
def test_exhausted_retries_and_stalled_attempts_end_the_step(step: EndedStep) -> None:
    if step.faults and (step.relaunches >= step.max_retries or step.stalled >= step.stall_limit):
        assert decide_restart(step, TIMEOUTS).action is StepAction.END


@given(ended_steps())
def test_a_step_with_retries_left_ends_only_without_a_fault(step: EndedStep) -> None:
    has_budget = step.relaunches < step.max_retries and step.stalled < step.stall_limit
    if step.faults and has_budget:
        assert decide_restart(step, TIMEOUTS).action is not StepAction.END


@given(ended_steps())
def test_nothing_is_launched_while_a_rank_may_still_run(step: EndedStep) -> None:
    if step.faults.keys() & step.unreachable and step.since < TIMEOUTS.fence:
        action = decide_restart(step, TIMEOUTS).action
        assert action not in (StepAction.RELAUNCH, StepAction.EXCHANGE)


def counted(step: EndedStep) -> dict[str, Any]:
    """One more restart on the account of what ended the step."""
    if step.own_end is None:
        return {"relaunches": step.relaunches + 1}
    end = step.own_end
    return {"application_end": replace(end, restarts=end.restarts + 1)}


def supervised(data: st.DataObject, step: EndedStep) -> Iterator[tuple[EndedStep, RestartDecision]]:
    """Follow the decisions as a supervisor does, while nodes fail and recover at random."""
    while True:
        decision = decide_restart(step, TIMEOUTS)
        yield step, decision
        changes: dict[str, Any] = {"usable": data.draw(node_sets), "unreachable": frozenset()}
        match decision.action:
            case StepAction.WAIT:
                changes["since"] = step.since + timedelta(seconds=10)
            case StepAction.RELAUNCH:
                failed = data.draw(st.lists(st.sampled_from(decision.nodes)))
                changes |= {
                    "step_nodes": decision.nodes,
                    "faults": dict.fromkeys(failed, "broken"),
                    "since": timedelta(),
                    "stalled": data.draw(st.sampled_from([0, step.stalled + 1])),
                    "cannot_exchange": "",
                    **counted(step),
                }
            case StepAction.EXCHANGE:
                changes["cannot_exchange"] = "nodes from the exchange are not usable"
            case _:
                return
        step = replace(step, **changes)


@given(st.data(), ended_steps())
def test_the_ladder_ends_and_keeps_its_budgets(data: st.DataObject, step: EndedStep) -> None:
    """Restarts after faults of nodes and those of the application have separate budgets."""
    start = replace(step, since=timedelta(), relaunches=0)
    own = start.application_end
    relaunches = restarts = 0

    for ended, decision in supervised(data, start):
        is_relaunch = decision.action is StepAction.RELAUNCH
        relaunches += is_relaunch and ended.own_end is None
        restarts += is_relaunch and ended.own_end is not None
        assert relaunches <= start.max_retries
        assert restarts <= (0 if own is None else max(0, own.max_restarts - own.restarts))
    assert decision.action in (StepAction.END, StepAction.REQUEUE)


TWO: dict[str, Any] = {"allocation": ("node1", "node2")}
LATE: dict[str, Any] = {"since": TIMEOUTS.swap}


def decision_in(mode: RestartMode, *, bad: str = "node2", **changes: Any) -> RestartDecision:
    names = ("node1", "node2", "node3")
    step = EndedStep(
        mode=mode,
        step_nodes=("node1", "node2"),
        allocation=names,
        usable={*names} - {bad},
        unreachable=frozenset(),
        faults={bad: "FAIL"},
        since=timedelta(),
        relaunches=0,
        max_retries=1,
    )
    return decide_restart(replace(step, **changes), TIMEOUTS)


BACK: dict[str, Any] = {"usable": frozenset(("node1", "node2", "node3"))}
STEP, SWAP, RESIZE = RestartMode.STEP, RestartMode.SWAP, RestartMode.RESIZE


@pytest.mark.parametrize(
    ("mode", "changes", "action", "nodes"),
    [
        (STEP, {}, StepAction.RELAUNCH, ("node1", "node3")),
        (STEP, TWO, StepAction.WAIT, ()),
        (STEP, TWO | BACK, StepAction.RELAUNCH, ("node1", "node2")),
        (STEP, TWO | LATE, StepAction.REQUEUE, ()),
        (STEP, {"is_bound": True}, StepAction.WAIT, ()),
        (STEP, {"batch_host": "node2"}, StepAction.REQUEUE, ()),
        (STEP, {"batch_host": "node1"}, StepAction.RELAUNCH, ("node1", "node3")),
        (STEP, {"unreachable": {"node2"}}, StepAction.WAIT, ()),
        (STEP, {"unreachable": {"node2"}, "since": TIMEOUTS.fence}, StepAction.RELAUNCH,
         ("node1", "node3")),
        (RestartMode.REQUEUE, {"unreachable": {"node2"}}, StepAction.REQUEUE, ()),
        (SWAP, {}, StepAction.WAIT, ()),
        (SWAP, BACK, StepAction.RELAUNCH, ("node1", "node2")),
        (SWAP, LATE, StepAction.REQUEUE, ()),
        (SWAP, {"allocation": ("node1", "node3")}, StepAction.REQUEUE, ()),
        (RestartMode.REQUEUE, {}, StepAction.REQUEUE, ()),
        (RESIZE, {}, StepAction.RELAUNCH, ("node1", "node3")),
        (RESIZE, TWO, StepAction.EXCHANGE, ("node1",)),
        (RESIZE, {"allocation": ("node1",)}, StepAction.EXCHANGE, ("node1",)),
        (RESIZE, TWO | {"batch_host": "node2"}, StepAction.REQUEUE, ()),
        (RESIZE, {"is_bound": True}, StepAction.WAIT, ()),
        (RESIZE, TWO | {"cannot_exchange": "it has GRES"}, StepAction.REQUEUE, ()),
        (STEP, {"relaunches": 1}, StepAction.END, ()),
        (STEP, {"stalled": 2}, StepAction.RELAUNCH, ("node1", "node3")),
        (STEP, {"stalled": 3}, StepAction.END, ()),
    ],
)  # fmt: skip
def test_each_mode_falls_back_to_the_next_rung(
    mode: RestartMode, changes: dict[str, Any], action: StepAction, nodes: tuple[str, ...]
) -> None:
    decision = decision_in(mode, **changes)

    assert (decision.action, decision.nodes) == (action, nodes)


def test_a_refused_exchange_is_the_reason_of_the_requeue() -> None:
    assert decision_in(RESIZE, **TWO, cannot_exchange="it has GRES").why == "it has GRES"


def test_faults_are_listed_by_node() -> None:
    assert format_faults({"node2": "FAIL", "node1": "DOWN"}) == "node1: DOWN; node2: FAIL"
