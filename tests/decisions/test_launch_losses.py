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
    member,
    reported,
    stopped,
)
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdfast.apps.launch.coordinator import progress_lines
from holdfast.decisions.exit_meanings import ExitMeaning
from holdfast.decisions.launch_events import (
    CheckpointsVerified,
    Event,
    Joined,
    LossReported,
    Lost,
    StopRequested,
)
from holdfast.decisions.launch_losses import REPORTS as WAIT
from holdfast.decisions.launch_losses import loss_variables, reporters
from holdfast.decisions.launch_orders import order_for
from holdfast.decisions.launch_rounds import advance, next_deadline
from holdfast.decisions.launch_state import JobRounds, Outcome, Phase, RankLosses
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
    ranks: tuple[int, ...] = (0,),
) -> LossReported:
    text = f"the loss is nan at step {step}"
    fault = LossFault(reason=reason, step=step, evidence=text, action=action)
    return LossReported(launcher=name, round=number, ranks=ranks, fault=fault)


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


def test_what_ranks_save_on_the_signal_to_end_was_saved_after_the_bad_loss() -> None:
    job, later = after([joined("a"), joined("b"), loss()]), T0 + timedelta(minutes=1)
    for event in (stopped("a"), stopped("b")):
        job = advance(job, event, later, TWO)

    assert job.history.loss is not None
    assert (job.round, job.history.loss.at) == (2, T0)


def test_the_variables_of_a_bad_loss_end_with_the_next_restart_but_skipped_steps_stay() -> None:
    job = restarted(loss(action=LossAction.SKIP))
    job = after([failed("a", 2), stopped("a", 2), stopped("b", 2)], job=job)

    inherited = {"HOLDFAST_SKIP_STEPS": "7,8"}
    assert loss_variables(job.history, inherited) == {"HOLDFAST_SKIP_STEPS": "7,8,29,30"}
    assert loss_variables(RestartHistory(), inherited) == {}


def test_a_loss_that_is_only_reported_stops_no_rank() -> None:
    job = after([joined("a"), joined("b"), loss(action=LossAction.ASK)])
    assert (job.phase, job.failure) == (Phase.RUN, None)
    assert job.losses is not None

    assert after([failed("a"), stopped("a"), stopped("b")], job=job).losses is None


def asked(name: str, *ranks: int, step: int = 30, **changes) -> LossReported:
    return loss(name, action=LossAction.ASK, step=step, ranks=ranks, **changes)


def printed(*events: Event | None, late: timedelta = WAIT, slots: int = 2) -> list[str]:
    """Return the lines about losses of a job of two nodes, with its ranks until ``late`` later."""
    nodes = [Joined(member=member(name, slots=slots)) for name in ("a", "b")]
    job, lines = after(nodes), []
    for event, now in [*((event, T0) for event in events), (None, T0 + late)]:
        before, job = job, advance(job, event, now, TWO)
        lines += [one for one in progress_lines(before, job, TWO) if one.startswith("LossFault")]
    return [line.removesuffix("; the ranks continue: see --loss-action") for line in lines]


@pytest.mark.parametrize(
    ("events", "who", "step"),
    [
        ([asked("b", 3)], "rank 3 on b", 30),
        ([asked("b", 2, 3)], "ranks 2-3 on b", 30),
        ([asked("b", 3), asked("a", 0)], "rank 0 on a, rank 3 on b", 30),
        ([asked("a", 0, 1), asked("b", 2), asked("b", 3)], "all ranks", 30),
        ([asked("a", 0, 1), asked("b", 2, 3, step=29)], "ranks 2-3 on b", 29),
        ([asked("b", 3, step=29), asked("a", 0, 1)], "rank 3 on b", 29),
        ([asked("a", 0, reason=Reason.LOSS_SPIKED), asked("b", 3, step=40)], "rank 3 on b", 40),
        ([asked("b", 3), asked("a", 0, step=9, reason=Reason.LOSS_SPIKED)], "rank 3 on b", 30),
    ],
)
def test_the_ranks_of_a_bad_loss_are_named_once(events: list[Event], who: str, step: int) -> None:
    assert printed(*events) == [f"LossFault: round 1: {who}: the loss is nan at step {step}"]


def test_the_message_waits_for_all_ranks_but_not_beyond_their_end() -> None:
    assert printed(asked("b", 3), late=WAIT - timedelta(microseconds=1)) == []
    job = after([joined("a"), joined("b"), asked("b", 3)])
    assert next_deadline(job, TWO) == T0 + WAIT
    assert next_deadline(after([None], job=job, now=T0 + WAIT), TWO) is None

    text = "LossFault: round 1: rank 3 on b: the loss is nan at step 30"
    assert printed(asked("b", 3), failed("b")) == [text]
    assert printed(asked("b", 3), StopRequested(signal=15)) == [text]


def test_a_nan_after_a_spike_is_a_second_message() -> None:
    spike = asked("a", 0, step=20, reason=Reason.LOSS_SPIKED)
    job = after([joined("a"), joined("b"), spike])
    job = after([None], job=job, now=T0 + WAIT)

    later = after([asked("b", 3)], job=job, now=T0 + 2 * WAIT)
    assert later.losses is not None
    assert (later.losses.fault.step, later.losses.is_complete) == (30, False)
    same = after([asked("b", 3, step=19, reason=Reason.LOSS_SPIKED)], job=job, now=T0 + 2 * WAIT)
    assert same.losses == job.losses, "what is printed does not change"


def test_of_many_nodes_some_are_named() -> None:
    names = [f"n{number}" for number in range(12)]
    active = {name: member(name, slots=8) for name in names}
    ranks = {8 * number + 1: name for number, name in enumerate(names[:10])}
    fault = asked("n0", 0).fault

    text = reporters(RankLosses(fault=fault, ranks=ranks, complete_at=T0), active)

    assert text.startswith("rank 1 on n0, rank 9 on n1, ")
    assert text.endswith("rank 57 on n7 and ranks on 2 more nodes")


@given(
    st.permutations([("a", 0), ("a", 1), ("b", 2), ("b", 3)]),
    st.lists(st.integers(28, 31), min_size=4, max_size=4),
    st.integers(1, 4),
)
def test_the_ranks_of_the_earliest_step_are_named_in_whatever_order_they_report(
    order: list[tuple[str, int]], steps: list[int], count: int
) -> None:
    reports = [(name, rank, steps[rank]) for name, rank in order[:count]]
    first = min(step for _, _, step in reports)
    job = after([joined("a"), joined("b"), *(asked(n, r, step=s) for n, r, s in reports)])

    assert job.losses is not None
    assert job.losses.fault.step == first
    assert dict(job.losses.ranks) == {rank: name for name, rank, step in reports if step == first}


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
