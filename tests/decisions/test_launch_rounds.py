from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import hypothesis.strategies as st
from effort import examples
from hypothesis import given, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from holdfast.decisions.exit_meanings import ExitMeaning
from holdfast.decisions.launch_events import (
    Event,
    Failed,
    Inspected,
    Joined,
    Lost,
    Member,
    Stopped,
    StopRequested,
    Succeeded,
    Suspected,
)
from holdfast.decisions.launch_orders import OrderKind, order_for
from holdfast.decisions.launch_rounds import (
    JobRounds,
    Outcome,
    Phase,
    RoundSettings,
    advance,
    next_deadline,
)
from holdfast.decisions.restart_rungs import RestartBudget, Rung

T0 = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
TWO = RoundSettings(nodes=2)


def member(name: str, order: int = 0, slots: int = 2) -> Member:
    return Member(name=name, address=f"{name}.example", port=1000, slots=slots, order=order)


def joined(name: str, order: int = 0) -> Joined:
    return Joined(member=member(name, order))


def failed(name: str, number: int = 1, meaning: ExitMeaning = ExitMeaning.CRASH) -> Failed:
    return Failed(launcher=name, round=number, rank=0, code=1, meaning=meaning, text="exit code 1")


def stopped(name: str, number: int = 1, port: int = 1001) -> Stopped:
    return Stopped(launcher=name, round=number, port=port)


def after(
    events: Iterable[Event | None],
    config: RoundSettings = TWO,
    job: JobRounds | None = None,
    now: datetime = T0,
) -> JobRounds:
    state = job or JobRounds(since=T0)
    for event in events:
        state = advance(state, event, now, config)
    return state


def test_a_round_starts_when_enough_launchers_have_joined() -> None:
    job = after([joined("a")])
    assert job.phase is Phase.GATHER
    assert order_for(job, "a").kind is OrderKind.WAIT

    job = after([joined("b")], job=job)
    assert (job.phase, job.round, list(job.active)) == (Phase.RUN, 1, ["a", "b"])
    order = order_for(job, "b")
    assert (order.node_rank, order.first_rank, order.nodes, order.world_size) == (1, 2, 2, 4)
    assert (order.master_addr, order.master_port) == ("a.example", 1000)


def test_the_preferred_node_rank_decides_not_the_order_of_arrival() -> None:
    job = after([joined("b", 1), joined("a", 0)])

    assert list(job.active) == ["a", "b"]


def test_no_round_starts_before_every_launcher_has_stopped() -> None:
    job = after([joined("a"), joined("b"), failed("a"), stopped("a")])
    assert job.phase is Phase.STOP
    assert order_for(job, "b").kind is OrderKind.STOP

    job = after([stopped("b")], job=job)
    assert (job.phase, job.round) == (Phase.RUN, 2)
    assert (job.history.total, job.history.last) == (1, Rung.IN_PLACE)
    assert order_for(job, "b").master_port == 1001


def test_the_longest_wait_for_accelerators_is_that_of_the_last_stop() -> None:
    slow = [failed("a"), replace(stopped("a"), waited_s=3.0), replace(stopped("b"), waited_s=1.0)]
    job = after([joined("a"), joined("b"), *slow])
    assert (job.round, job.waited_s) == (2, 3.0)

    assert after([failed("a", 2)], job=job).waited_s == 0


def test_a_lost_launcher_is_fenced_and_replaced_by_a_spare() -> None:
    job = after([joined("a"), joined("b"), joined("c"), Lost(launcher="a"), stopped("b")])
    assert job.phase is Phase.STOP
    assert next_deadline(job, TWO) == T0 + TWO.fence

    early = T0 + TWO.fence - timedelta(microseconds=1)
    assert after([None], job=job, now=early).phase is Phase.STOP
    job = after([None], job=job, now=T0 + TWO.fence)
    assert (job.phase, list(job.active)) == (Phase.RUN, ["c", "b"])
    assert (job.history.total, job.history.last) == (1, Rung.SPARE)


def test_without_a_spare_the_others_wait_for_a_launcher_to_join() -> None:
    job = after([joined("a"), joined("b"), Lost(launcher="b"), stopped("a")])
    later = T0 + TWO.fence
    job = after([None], job=job, now=later)
    assert job.phase is Phase.GATHER
    assert next_deadline(job, TWO) == later + TWO.join_timeout

    assert list(after([joined("c")], job=job, now=later).active) == ["a", "c"]
    ended = after([None], job=job, now=later + TWO.join_timeout)
    assert (ended.outcome, ended.why) == (
        Outcome.FAILED,
        "timed out: 1 of 2 launchers joined",
    )


def test_a_launcher_that_joins_again_has_no_rank_left() -> None:
    job = after([joined("a"), joined("b"), joined("b"), stopped("a")])

    assert (job.phase, job.round) == (Phase.RUN, 2)


def test_a_job_succeeds_when_all_launchers_have() -> None:
    job = after([joined("a"), joined("b"), Succeeded(launcher="a", round=1)])
    assert job.phase is Phase.RUN

    job = after([Succeeded(launcher="b", round=1)], job=job)
    assert (job.outcome, order_for(job, "a").kind) == (Outcome.SUCCEEDED, OrderKind.END)


def test_a_launcher_that_is_lost_after_its_success_does_no_harm() -> None:
    job = after(
        [
            joined("a"),
            joined("b"),
            Succeeded(launcher="a", round=1),
            Lost(launcher="a"),
            Succeeded(launcher="b", round=1),
        ]
    )

    assert job.outcome is Outcome.SUCCEEDED


def test_reports_of_an_earlier_round_change_nothing() -> None:
    job = after([joined("a"), joined("b"), failed("a"), stopped("a"), stopped("b")])
    stale = [failed("a"), Succeeded(launcher="a", round=1), Succeeded(launcher="b", round=1)]

    assert after(stale, job=job) == job
    assert after([stopped("a")], job=job).alive == {"a", "b"}


def test_a_stop_request_ends_the_job_after_its_ranks() -> None:
    job = after([joined("a"), joined("b"), StopRequested(signal=15), stopped("a")])
    assert (job.phase, order_for(job, "b").signal) == (Phase.STOP, 15)

    assert after([stopped("b")], job=job).outcome is Outcome.INTERRUPTED


def test_a_new_coordinator_continues_with_round_numbers_and_budget() -> None:
    first = after([joined("a"), joined("b"), failed("a"), stopped("a"), stopped("b")])
    rejoin = [
        replace(joined(name), round=first.round, history=first.history) for name in ("a", "b")
    ]

    job = after(rejoin)
    assert (job.round, job.history) == (3, first.history)


def test_a_node_that_is_lost_during_the_stop_is_replaced_too() -> None:
    job = after([joined("a"), joined("b"), joined("c"), failed("a"), Lost(launcher="b")])
    job = after([stopped("a")], job=job, now=T0 + TWO.fence)

    assert (job.phase, list(job.active)) == (Phase.RUN, ["a", "c"])
    assert (job.history.last, job.history.exchanges) == (Rung.SPARE, 1)


def test_another_device_shifts_ranks_in_place_and_prefers_a_spare() -> None:
    moved = failed("a", meaning=ExitMeaning.ANOTHER_DEVICE)
    events = [moved, stopped("a"), stopped("b")]

    alone = after([joined("a"), joined("b"), *events])
    assert (alone.rotation, list(alone.active)) == (1, ["a", "b"])
    spared = after([joined("a"), joined("b"), joined("c"), *events])
    assert (spared.rotation, list(spared.active)) == (0, ["c", "b"])


class Launchers(RuleBasedStateMachine):
    """Launchers that obey orders, are lost and join at any time; ranks outlive a lost one."""

    @initialize(
        nodes=st.integers(1, 3),
        in_place=st.integers(0, 3),
        exchanges=st.integers(0, 3),
        total=st.none() | st.integers(0, 6),
        job_restarts=st.integers(0, 1),
    )
    def begin(
        self, nodes: int, in_place: int, exchanges: int, total: int | None, job_restarts: int
    ) -> None:
        self.budget = RestartBudget(
            in_place=in_place, exchanges=exchanges, total=total, job_restarts=job_restarts
        )
        self.config = RoundSettings(nodes=nodes, budget=self.budget)
        self.now = T0
        self.job = JobRounds(since=T0)
        self.connected: set[str] = set()
        self.ranks: dict[str, int] = {}
        self.latest: dict[str, int] = {}
        self.lost_at: dict[str, datetime] = {}
        self.count = 0
        self.causes = 0
        self.rungs: list[Rung | None] = []

    def step(self, event: Event | None) -> None:
        before = self.job
        self.job = advance(self.job, event, self.now, self.config)
        assert self.job.round >= before.round
        history, old = self.job.history, before.history
        assert history.total <= self.causes
        if history.total > old.total:
            self.rungs.append(history.last)
            lost = [name for name in before.active if name not in self.job.members]
            assert not (history.last is Rung.IN_PLACE and lost), "in place on a lost node"
            assert history.exchanges >= old.exchanges + len(lost)
        for name in sorted(self.connected):
            order = order_for(self.job, name)
            if order.kind is OrderKind.RUN and order.round > self.latest.get(name, 0):
                assert name not in self.ranks, "ordered to start beside its own ranks"
                self.ranks[name] = self.latest[name] = order.round
        self.no_two_rounds()

    def no_two_rounds(self) -> None:
        assert len(set(self.ranks.values())) <= 1, f"two rounds alive: {self.ranks}"

    @rule()
    def join(self) -> None:
        self.count += 1
        name = f"n{self.count}"
        self.connected.add(name)
        self.step(joined(name))

    @precondition(lambda self: self.connected)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.connected)))
        self.connected.discard(name)
        self.lost_at[name] = self.now
        self.causes += 1
        self.step(Lost(launcher=name))

    @precondition(lambda self: self.ranks.keys() & self.connected)
    @rule(data=st.data(), meaning=st.sampled_from(ExitMeaning))
    def fail(self, data: st.DataObject, meaning: ExitMeaning) -> None:
        name = data.draw(st.sampled_from(sorted(self.ranks.keys() & self.connected)))
        self.causes += 1
        self.step(failed(name, self.ranks[name], meaning))

    @precondition(lambda self: self.ranks.keys() & self.connected)
    @rule(data=st.data(), restart=st.booleans())
    def suspect(self, data: st.DataObject, restart: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.ranks.keys() & self.connected)))
        number = self.ranks[name]
        self.causes += restart
        self.step(Suspected(launcher=name, round=number, rank=0, text="silent", restart=restart))

    @precondition(lambda self: self.ranks.keys() & self.connected)
    @rule(data=st.data(), is_stalled=st.booleans())
    def inspect(self, data: st.DataObject, is_stalled: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.ranks.keys() & self.connected)))
        number, order = self.ranks[name], order_for(self.job, name).inspection
        report = Inspected(
            launcher=name, round=number, number=order, is_stalled=is_stalled, snapshots=()
        )
        self.step(report)

    @precondition(lambda self: self.ranks.keys() & self.connected)
    @rule(data=st.data())
    def succeed(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.ranks.keys() & self.connected)))
        number = self.ranks.pop(name)
        self.step(Succeeded(launcher=name, round=number))
        self.step(stopped(name, number))

    @precondition(lambda self: self.job.phase in (Phase.STOP, Phase.END))
    @rule(data=st.data())
    def stop_one(self, data: st.DataObject) -> None:
        names = sorted(self.ranks.keys() & self.connected)
        if names:
            name = data.draw(st.sampled_from(names))
            self.step(stopped(name, self.ranks.pop(name)))

    @rule(seconds=st.sampled_from([0.5, 1.0, 30.0, 600.0]))
    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        for name, at in self.lost_at.items():  # the guard has ended them by then
            if self.now - at >= self.config.fence:
                self.ranks.pop(name, None)
        self.step(None)

    @rule(data=st.data())
    def repeat_an_old_report(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, max(0, self.job.round - 1)))
        name = f"n{data.draw(st.integers(1, max(1, self.count)))}"
        event = data.draw(st.sampled_from([failed(name, number), stopped(name, number)]))
        self.step(event)

    @invariant()
    def no_inspection_is_overdue(self) -> None:
        if self.job.inspection is not None and self.job.is_inspecting:
            is_due = self.job.inspection.until <= self.now
            assert not (is_due and self.job.phase is Phase.RUN)

    @invariant()
    def every_budget_is_kept(self) -> None:
        in_place = self.rungs.count(Rung.IN_PLACE)
        assert in_place <= self.budget.in_place  # all within one period
        assert self.job.history.in_place == () or len(self.job.history.in_place) == in_place
        assert self.job.history.exchanges <= self.budget.exchanges
        assert len(self.rungs) == self.job.history.total <= self.budget.limit
        if self.job.outcome is Outcome.RESTART_JOB:
            assert self.budget.job_restarts > 0

    def teardown(self) -> None:
        """Let every rank fail: the job ends, whatever has happened before."""
        if not hasattr(self, "job"):
            return
        for _ in range(100):
            if self.job.phase is Phase.END:
                break
            for name in sorted(self.ranks.keys() & self.connected):
                number = self.ranks[name]
                self.causes += 1
                self.step(failed(name, number))
                if self.ranks.get(name) == number:
                    del self.ranks[name]
                    self.step(stopped(name, number))
            self.wait(600.0)
        assert self.job.phase is Phase.END


TestLaunchers = Launchers.TestCase
TestLaunchers.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)


@given(st.lists(st.sampled_from([joined("a"), failed("a"), StopRequested(signal=15)])))
def test_the_end_is_final(events: list[Event]) -> None:
    job = after([joined("a"), failed("a", meaning=ExitMeaning.STOP), stopped("a")], RoundSettings())
    assert job.phase is Phase.END

    assert after(events, RoundSettings(), job) == job
