"""Bad losses as the cause of a restart inside a job."""

from dataclasses import replace
from datetime import timedelta

import pytest
from decisions.test_launch_rounds import (
    T0,
    TWO,
    Launchers,
    after,
    failed,
    joined,
    reported,
    stopped,
)
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdfast.decisions.exit_meanings import ExitMeaning
from holdfast.decisions.launch_events import CheckpointsVerified, Event, LossReported, Lost
from holdfast.decisions.launch_losses import loss_variables
from holdfast.decisions.launch_orders import order_for
from holdfast.decisions.launch_rounds import next_deadline
from holdfast.decisions.launch_state import JobRounds, Outcome, Phase
from holdfast.decisions.loss_settings import parse_bad_loss
from holdfast.decisions.restart_rungs import RestartHistory, Rung
from holdfast.model.jobs import LossAction, LossFault
from holdfast.model.names import Reason

VERIFIES = replace(TWO, verifies_checkpoints=True)
ACTING = (LossAction.ROLLBACK, LossAction.SKIP)


def loss(
    name: str = "a",
    number: int = 1,
    action: LossAction = LossAction.ROLLBACK,
    step: int = 30,
    reason: Reason = Reason.LOSS_NOT_FINITE,
) -> LossReported:
    text = f"the loss is nan at step {step}"
    fault = LossFault(reason=reason, step=step, evidence=text, action=action)
    return LossReported(launcher=name, round=number, rank=0, fault=fault)


def restarted(*events: Event, config=TWO, number: int = 1) -> JobRounds:
    first = [joined("a"), joined("b")] if number == 1 else []
    return after([*first, *events, stopped("a", number), stopped("b", number)], config)


def test_ranks_restart_in_place_for_a_bad_loss_and_no_node_is_to_blame() -> None:
    job = restarted(loss())

    assert (job.phase, job.round, job.history.last) == (Phase.RUN, 2, Rung.IN_PLACE)
    assert job.history.failures == {}
    variables = loss_variables(order_for(job, "b").history, {})
    assert parse_bad_loss(variables["HOLDFAST_BAD_LOSS"]) == (30, T0)
    assert variables["HOLDFAST_RESTART_REASON"] == "LossNotFinite"
    assert "HOLDFAST_SKIP_STEPS" not in variables


def test_the_variables_of_a_bad_loss_end_with_the_next_restart_but_skipped_steps_stay() -> None:
    job = restarted(loss(action=LossAction.SKIP))
    job = after([failed("a", 2), stopped("a", 2), stopped("b", 2)], job=job)

    inherited = {"HOLDFAST_SKIP_STEPS": "7,8"}
    assert loss_variables(job.history, inherited) == {"HOLDFAST_SKIP_STEPS": "7,8,29,30"}
    assert loss_variables(RestartHistory(), inherited) == {}


def test_a_loss_that_is_only_reported_stops_no_rank() -> None:
    job = after([joined("a"), joined("b"), loss(action=LossAction.ASK)])
    assert (job.phase, job.failure) == (Phase.RUN, None)
    assert job.loss is not None

    assert after([failed("a"), stopped("a"), stopped("b")], job=job).loss is None


@pytest.mark.parametrize(
    ("action", "skipped", "outcome"),
    [
        (LossAction.STOP, (), Outcome.FAILED),
        (LossAction.SKIP, (30,), Outcome.FAILED),
        (LossAction.SKIP, (31,), None),
        (LossAction.ROLLBACK, (30,), None),
    ],
)
def test_a_restart_that_cannot_help_is_not_tried(
    action: LossAction, skipped: tuple[int, ...], outcome: Outcome | None
) -> None:
    job = after([joined("a"), joined("b")])
    job = replace(job, history=replace(job.history, skipped=skipped))

    ended = after([loss(action=action), stopped("a"), stopped("b")], job=job)
    assert ended.outcome is outcome
    assert ended.history.total == (outcome is None)


def test_a_bad_loss_explains_a_crash_that_another_node_reported_first() -> None:
    job = after([joined("a"), joined("b"), failed("b"), loss("a")])
    assert job.failure is not None
    assert job.failure.text == "LossNotFinite: the loss is nan at step 30; exit code 1"
    assert after([stopped("a"), stopped("b")], job=job).history.failures == {}

    named = after([joined("a"), joined("b"), failed("b", meaning=ExitMeaning.STOP), loss("a")])
    assert named.failure is not None
    assert named.failure.loss is None


def test_a_lost_node_is_exchanged_though_the_loss_is_bad_too() -> None:
    job = after([joined("a"), joined("b"), joined("c"), Lost(launcher="b"), loss("a")])
    job = after([stopped("a")], job=job, now=T0 + TWO.fence)

    assert (list(job.active), job.history.last) == (["a", "c"], Rung.SPARE)
    assert job.history.loss is not None


def test_the_next_round_waits_for_the_checkpoints() -> None:
    job = restarted(loss(), config=VERIFIES)
    assert job.phase is Phase.GATHER
    assert next_deadline(job, VERIFIES) == T0 + VERIFIES.verify_timeout

    stale = after([CheckpointsVerified(restarts=0)], VERIFIES, job)
    assert stale.phase is Phase.GATHER
    assert after([CheckpointsVerified(restarts=1)], VERIFIES, job).round == 2
    ended = after([CheckpointsVerified(restarts=1, obstacle="ask")], VERIFIES, job)
    assert (ended.outcome, ended.why) == (Outcome.FAILED, "ask")


def test_a_verification_that_does_not_end_ends_the_job() -> None:
    job = restarted(loss(), config=VERIFIES)
    at = T0 + VERIFIES.verify_timeout

    assert after([None], VERIFIES, job, at - timedelta(microseconds=1)).phase is Phase.GATHER
    assert after([None], VERIFIES, job, at).outcome is Outcome.FAILED


def test_other_restarts_wait_for_no_verification() -> None:
    assert restarted(failed("a"), config=VERIFIES).round == 2


def test_a_next_coordinator_verifies_again() -> None:
    first = restarted(loss(), config=VERIFIES)
    known = [replace(joined(name), round=1, history=first.history) for name in ("a", "b")]
    later = T0 + TWO.lease + TWO.fence
    job = after([None], VERIFIES, after(known, VERIFIES), later)

    assert job.awaits_checkpoints(VERIFIES)
    job = after([CheckpointsVerified(restarts=1)], VERIFIES, job, later)
    assert (job.phase, job.round) == (Phase.RUN, 2)


class Losses(Launchers):
    """Launchers that report bad losses, too; checkpoints are verified at any time."""

    def step(self, event: Event | None) -> None:
        if not self.config.verifies_checkpoints:
            self.config = replace(self.config, verifies_checkpoints=True)
        before = self.job
        super().step(event)
        if self.job.round > before.round and self.job.history.loss is not None:
            assert self.job.verified == self.job.history.total, "started without verification"
        if before.history.total < self.job.history.total and self.job.history.loss is not None:
            is_new = self.job.history.skipped != before.history.skipped
            assert not is_new or self.job.history.loss.step in self.job.history.skipped

    @precondition(lambda self: self.ranks.keys() & self.connected)
    @rule(data=st.data(), action=st.sampled_from(LossAction), step=st.integers(1, 3))
    def report_loss(self, data: st.DataObject, action: LossAction, step: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.ranks.keys() & self.connected)))
        self.causes += action is not LossAction.ASK
        before = self.job.history.total
        self.step(loss(name, self.ranks[name], action, step))
        assert self.job.history.total == before or not self.job.alive

    @rule(restarts=st.integers(0, 4), is_current=st.booleans())
    def verify(self, restarts: int, *, is_current: bool) -> None:
        total = self.job.history.total if is_current else restarts
        self.step(CheckpointsVerified(restarts=total))


TestLosses = Losses.TestCase
TestLosses.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)


@given(st.lists(st.sampled_from(ACTING), max_size=8), st.integers(0, 4))
def test_a_loss_that_stays_bad_ends_within_the_budget(
    actions: list[LossAction], in_place: int
) -> None:
    budget = replace(TWO.budget, in_place=in_place)
    config = replace(TWO, budget=budget)
    job = after([joined("a"), joined("b")], config)
    for step, action in enumerate(actions):
        number = job.round
        events = [loss("a", number, action, step), stopped("a", number), stopped("b", number)]
        job = after(events, config, job)
    assert job.history.total == min(len(actions), in_place)
    assert (job.outcome is Outcome.FAILED) == (len(actions) > in_place)


def test_a_node_that_is_being_repaired_is_left_after_a_bad_loss() -> None:
    job = after([joined("a"), joined("b"), reported("b"), loss("a"), stopped("a"), stopped("b")])
    assert (job.phase, job.history.last) == (Phase.GATHER, Rung.EXCHANGE)
    assert list(after([joined("c")], job=job).active) == ["a", "c"]
