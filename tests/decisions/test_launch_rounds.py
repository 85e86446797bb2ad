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
    NodeFault,
    NodeReported,
    Stopped,
    StopRequested,
    Succeeded,
    Suspected,
)
from holdfast.decisions.launch_orders import Order, OrderKind, order_for
from holdfast.decisions.launch_rounds import advance, next_deadline
from holdfast.decisions.launch_state import JobRounds, Outcome, Phase, RoundSettings
from holdfast.decisions.restart_rungs import RestartBudget, Rung
from holdfast.model.names import Cause

T0 = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MOMENT = timedelta(microseconds=1)
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


def test_a_launcher_that_joins_again_after_its_success_does_no_harm() -> None:
    succeeded = Succeeded(launcher="a", round=1)
    job = after([joined("a"), joined("b"), succeeded, Lost(launcher="a"), joined("a")])
    assert (job.phase, job.failure) == (Phase.RUN, None)

    job = after([Succeeded(launcher="b", round=1)], job=job)
    assert (job.outcome, job.lost) == (Outcome.SUCCEEDED, {})


def test_lost_launchers_are_awaited_at_the_end_until_they_have_joined_or_had_their_time() -> None:
    job = after([*map(joined, "abcd"), Lost(launcher="d"), Lost(launcher="b")])
    job = after([stopped("a"), None], job=job, now=T0 + TWO.fence)
    assert list(job.active) == ["a", "c"]
    succeeded = [Succeeded(launcher=name, round=2) for name in ("a", "c")]
    due = T0 + TWO.return_time
    assert after(succeeded, job=job, now=due).lost == {}

    job = after(succeeded, job=job, now=due - MOMENT)
    assert (job.outcome, job.lost) == (Outcome.SUCCEEDED, {"b": T0, "d": T0})
    assert next_deadline(job, TWO) == due
    assert after([Lost(launcher="c")], job=job, now=due - MOMENT) == job
    assert after([joined("b")], job=job, now=due - MOMENT).lost == {"d": T0}
    assert after([None], job=job, now=due).lost == {}


def test_lost_launchers_are_not_awaited_at_an_end_without_success() -> None:
    job = after([joined("a"), joined("b"), Lost(launcher="b")])
    job = after([StopRequested(signal=15), stopped("a"), None], job=job, now=T0 + TWO.fence)

    assert (job.outcome, job.lost) == (Outcome.INTERRUPTED, {})


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

    early = T0 + TWO.lease + TWO.fence - timedelta(microseconds=1)
    job = after([*rejoin, None], now=early)
    assert job.phase is Phase.GATHER  # ranks of a launcher that was cut off may be left
    assert next_deadline(job, TWO) == T0 + TWO.lease + TWO.fence
    job = after([None], job=job, now=T0 + TWO.lease + TWO.fence)
    assert (job.round, job.history) == (3, first.history)


def test_a_coordinator_without_predecessor_starts_at_once() -> None:
    assert after([joined("a"), joined("b")]).round == 1


URGENT = NodeFault(text="XidReplace: Xid 74", is_urgent=True)
DEFERRED = replace(URGENT, is_urgent=False)


def reported(name: str, fault: NodeFault | None = URGENT) -> NodeReported:
    return NodeReported(launcher=name, fault=fault)


def test_a_node_that_is_being_repaired_is_replaced_by_a_spare_at_once() -> None:
    job = after([joined("a"), joined("b"), joined("c"), reported("b")])
    assert (job.phase, order_for(job, "a").kind) == (Phase.STOP, OrderKind.STOP)
    assert job.failure is not None
    assert job.failure.text == "b is being repaired: XidReplace: Xid 74"

    job = after([stopped("a"), stopped("b")], job=job)
    assert (job.round, list(job.active), job.history.last) == (2, ["a", "c"], Rung.SPARE)
    assert order_for(job, "b").kind is OrderKind.WAIT


def test_ranks_run_on_while_no_spare_can_replace_a_node_that_is_being_repaired() -> None:
    job = after([joined("a"), joined("b"), reported("b")])
    assert job.phase is Phase.RUN
    spent = RoundSettings(nodes=2, budget=RestartBudget(exchanges=0))
    assert after([joined("a"), joined("b"), joined("c"), reported("b")], spent).phase is Phase.RUN

    job = after([joined("c")], job=job)
    assert job.phase is Phase.STOP


def test_no_rank_restarts_in_place_on_a_node_that_is_being_repaired() -> None:
    job = after([joined("a"), joined("b"), reported("b"), failed("a"), stopped("a"), stopped("b")])
    assert (job.phase, job.history.last) == (Phase.GATHER, Rung.EXCHANGE)
    assert job.why == "exit code 1; b is being repaired: XidReplace: Xid 74"

    assert list(after([joined("c")], job=job).active) == ["a", "c"]
    assert list(after([reported("b", None)], job=job).active) == ["a", "b"]
    late = after([None], job=job, now=T0 + TWO.join_timeout)
    why = "timed out: 1 of 2 launchers joined; b is being repaired: XidReplace: Xid 74"
    assert (late.outcome, late.why) == (Outcome.FAILED, why)
    whole = RoundSettings(nodes=2, budget=RestartBudget(job_restarts=1))
    late = after([None], whole, job, T0 + TWO.join_timeout)
    assert (late.outcome, late.why) == (Outcome.RESTART_JOB, why)


def test_a_job_that_no_launcher_can_join_ends_on_a_node_that_is_being_repaired() -> None:
    alone = RoundSettings(can_join=False)
    job = after([joined("a"), reported("a"), failed("a"), stopped("a")], alone)

    why = "a is being repaired: XidReplace: Xid 74"
    assert (job.outcome, job.why) == (Outcome.FAILED, why)


def test_a_first_round_prefers_good_nodes_but_does_not_wait_for_them() -> None:
    bad = Joined(member=replace(member("a"), fault=URGENT))
    assert list(after([bad, joined("b")]).active) == ["b", "a"]

    one = RoundSettings(nodes=1)
    assert list(after([bad], one).active) == ["a"]


def test_a_node_whose_repair_waits_is_left_at_the_next_restart_if_there_is_a_spare() -> None:
    events = [joined("a"), joined("b"), reported("b", DEFERRED)]
    assert after([*events, joined("c")]).phase is Phase.RUN

    restart = [failed("a"), stopped("a"), stopped("b")]
    job = after([*events, joined("c"), *restart])
    assert (list(job.active), job.history.last) == (["a", "c"], Rung.SPARE)
    job = after([*events, *restart])
    assert (list(job.active), job.history.last) == (["a", "b"], Rung.IN_PLACE)


def fail_in_turn(names: str, spares: str) -> JobRounds:
    """Two nodes with spares; the ranks of a node fail in each round."""
    config = RoundSettings(nodes=2, budget=RestartBudget(in_place=50, offender_failures=2))
    job = after([joined(name) for name in f"ab{spares}"], config)
    for name in names:
        number, nodes = job.round, list(job.active)
        events = [failed(name, number), *(stopped(node, number) for node in nodes)]
        job = after(events, config, job)
    return job


def test_a_repeat_offender_is_replaced_though_another_node_failed_in_between() -> None:
    assert list(fail_in_turn("aba", "c").active) == ["c", "b"]
    assert list(fail_in_turn("aba", "").active) == ["a", "b"]


def test_a_repeat_offender_does_not_replace_another_one() -> None:
    assert list(fail_in_turn("aabb", "c").active) == ["c", "b"]
    assert list(fail_in_turn("aabb", "cd").active) == ["c", "d"]
    assert list(fail_in_turn("aabbcc", "cde").active) == ["e", "d"]


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
        offender_failures=st.integers(0, 3),
        can_join=st.booleans(),
        stops=st.booleans(),
    )
    def begin(self, nodes: int, *, can_join: bool, stops: bool, **budget: int | None) -> None:
        self.budget = RestartBudget(**budget)  # type: ignore[arg-type]
        self.config = RoundSettings(
            nodes=nodes, budget=self.budget, can_join=can_join, stops_on_permanent_cause=stops
        )
        self.failures: list[Failed] = []
        self.now = T0
        self.job = JobRounds(since=T0)
        self.connected: set[str] = set()
        self.ranks: dict[str, int] = {}
        self.latest: dict[str, int] = {}
        self.lost_at: dict[str, datetime] = {}
        self.cut_at: dict[str, datetime] = {}
        self.awaited: dict[str, datetime] = {}
        self.known: dict[str, Order] = {}
        self.count = 0
        self.causes = 0
        self.rungs: list[Rung | None] = []

    def step(self, event: Event | None) -> None:
        before = self.job
        self.job = advance(self.job, event, self.now, self.config)
        if isinstance(event, Joined):
            self.awaited.pop(event.member.name, None)
        elif isinstance(event, Lost) and before.phase is not Phase.END:
            self.awaited[event.launcher] = self.now
        assert self.job.round >= before.round
        history, old = self.job.history, before.history
        assert history.total <= self.causes
        # A successor of the coordinator is told of earlier restarts.
        is_successor = isinstance(event, Joined) and event.history.total > old.total
        if history.total > old.total and not is_successor:
            self.rungs.append(history.last)
            lost = [name for name in before.active if name not in self.job.members]
            assert not (history.last is Rung.IN_PLACE and lost), "in place on a lost node"
            assert history.exchanges >= old.exchanges + len(lost)
        if self.job.round > before.round > 0:
            self.best_nodes(before)
        for name in sorted(self.connected):
            order = self.known[name] = order_for(self.job, name)
            if order.kind is OrderKind.RUN and order.round > self.latest.get(name, 0):
                assert name not in self.ranks, "ordered to start beside its own ranks"
                self.ranks[name] = self.latest[name] = order.round
        self.no_two_rounds()

    def best_nodes(self, before: JobRounds) -> None:
        """No node of a next round is being repaired, and none is worse than a spare."""
        members, history = self.job.members, self.job.history
        faults = {name: members[name].fault for name in members}
        started = set(self.job.active)
        assert not any(faults[name] and faults[name].is_urgent for name in started)
        failed = max(history.failures.values(), default=0)
        offenders = {name for name in members if history.is_offender(name, self.budget)}
        good = {name for name in members if faults[name] is None} - offenders - started
        if history.exchanges < self.budget.exchanges and failed and history.total:
            taken = (started & offenders) - set(before.active)
            assert not (taken and good), f"{taken} although there are {good}"

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

    @precondition(lambda self: self.lost_at)
    @rule(data=st.data())
    def join_again(self, data: st.DataObject) -> None:
        """A lost launcher ends its ranks, and joins again."""
        name = data.draw(st.sampled_from(sorted(self.lost_at)))
        del self.lost_at[name]
        self.ranks.pop(name, None)
        self.connected.add(name)
        self.causes += 1
        self.step(Joined(member=member(name), round=self.latest.get(name, 0)))

    @invariant()
    def those_lost_shortly_before_a_success_are_awaited(self) -> None:
        if self.job.phase is not Phase.END:
            return
        recent = {name: at for name, at in self.awaited.items()
                  if self.now < at + self.config.return_time}  # fmt: skip
        has_succeeded = self.job.outcome is Outcome.SUCCEEDED
        assert self.job.lost == (recent if has_succeeded else {})

    @precondition(lambda self: self.connected)
    @rule(data=st.data())
    def cut_off(self, data: st.DataObject) -> None:
        """The network to a launcher fails: its lease ends, and the coordinator notices it then."""
        name = data.draw(st.sampled_from(sorted(self.connected)))
        self.connected.discard(name)
        self.cut_at[name] = self.now

    @precondition(lambda self: self.connected and self.job.phase is not Phase.END)
    @rule()
    def kill_coordinator(self) -> None:
        """All launchers end their ranks, and join the next coordinator."""
        members = self.job.members
        self.job = JobRounds(since=self.now)
        self.awaited.clear()
        for name in self.connected:
            self.ranks.pop(name, None)
        history = max((self.known[name].history for name in self.connected), key=lambda x: x.total)
        assert history.total == len(self.rungs), "restarts are forgotten"
        for name in sorted(self.connected):
            order = self.known[name]
            self.causes += 1
            self.step(Joined(member=members[name], round=order.round, history=order.history))

    @precondition(lambda self: self.connected)
    @rule(data=st.data(), fault=st.sampled_from([None, URGENT, DEFERRED]))
    def report(self, data: st.DataObject, fault: NodeFault | None) -> None:
        name = data.draw(st.sampled_from(sorted(self.connected)))
        self.causes += fault is not None
        self.step(reported(name, fault))

    @precondition(lambda self: self.ranks.keys() & self.connected)
    @rule(
        data=st.data(),
        meaning=st.sampled_from(ExitMeaning),
        cause=st.sampled_from(["", Cause.IMPORT_FAILED, Cause.DISK_FULL, Cause.EXCEPTION]),
        has_progress=st.booleans(),
    )
    def fail(self, data: st.DataObject, meaning: ExitMeaning, cause: str, **report: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.ranks.keys() & self.connected)))
        self.causes += 1
        event = replace(failed(name, self.ranks[name], meaning), cause=cause, **report)
        self.failures.append(event)
        self.step(event)

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

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.0, 30.0, 600.0]))
    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        cut = [name for name, at in self.cut_at.items() if self.now - at >= self.config.lease]
        for name in cut:
            self.lost_at[name] = self.cut_at.pop(name) + self.config.lease
        for name, at in self.lost_at.items():  # the guard has ended them by then
            if self.now - at >= self.config.fence:
                self.ranks.pop(name, None)
        for name in cut:
            self.causes += 1
            self.step(Lost(launcher=name))
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
    def only_a_cause_of_all_nodes_ends_a_job_at_once(self) -> None:
        failure = self.job.failure
        if failure is None or "in the same way" not in self.job.why:
            return
        assert self.config.stops_on_permanent_cause
        same = [one for one in self.failures if one.cause == failure.cause]
        nodes = {one.launcher for one in same if one.round == self.job.round}
        rounds = {one.round for one in same}
        is_repeated = failure.cause == Cause.DISK_FULL and len(rounds) > 1
        assert self.config.nodes == 1 or len(nodes) > 1 or is_repeated
        assert failure.cause == Cause.DISK_FULL or not all(one.has_progress for one in same)

    @invariant()
    def no_wait_for_other_ranks_is_overdue(self) -> None:
        failure = self.job.failure
        if self.job.phase is Phase.RUN and failure is not None and failure.at is not None:
            assert self.config.stops_on_permanent_cause
            assert failure.at <= self.now < failure.at + self.config.failure_margin
            deadline = next_deadline(self.job, self.config)
            assert deadline is not None
            assert deadline <= failure.at + self.config.failure_margin

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
