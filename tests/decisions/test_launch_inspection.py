"""What follows when a rank of a launch seems to hang."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.apps.launch.coordinator import progress_lines
from holdfast.decisions.exit_meanings import ExitMeaning
from holdfast.decisions.flight_recorder import Collective, RankTrace
from holdfast.decisions.inspection_tries import LIMIT
from holdfast.decisions.launch_events import (
    Event,
    Failed,
    Inspected,
    Joined,
    Lost,
    Member,
    Slowed,
    Stopped,
    Suspected,
)
from holdfast.decisions.launch_orders import order_for
from holdfast.decisions.launch_rounds import advance, next_deadline
from holdfast.decisions.launch_state import JobRounds, Phase, RoundSettings
from holdfast.decisions.rank_snapshots import Frame, RankSnapshot
from holdfast.decisions.restart_rungs import RestartBudget

T0 = datetime(2026, 1, 1, tzinfo=UTC)
TWO = RoundSettings(nodes=2)
WAITS = (Frame(function="all_reduce", file="/x/torch/distributed/distributed_c10d.py", line=1),)
READS = (Frame(function="read", file="/home/ada/train.py", line=7),)
SUSPECTED = Suspected(launcher="a", round=1, rank=0, text="no progress for 3m", restart=True)
REPORTED = replace(SUSPECTED, restart=False)
RULE = replace(SUSPECTED, text="LogStateHanging_Nccl: rank 1 printed: x", rank=1)


def inspected(name: str, *stacks: tuple[Frame, ...]) -> Inspected:
    first = 0 if name == "a" else 2
    return Inspected(
        launcher=name,
        round=1,
        number=1,
        is_stalled=True,
        snapshots=tuple(
            RankSnapshot(rank=first + place, node=name, pid=10, state="S", frames=frames)
            for place, frames in enumerate(stacks)
        ),
    )


FROM_A = inspected("a", WAITS, WAITS)
FROM_B = inspected("b", WAITS, READS)


def running() -> JobRounds:
    members = [Member(name=name, address=name, port=1, slots=2) for name in ("a", "b")]
    return after(JobRounds(since=T0), *(Joined(member=one) for one in members))


def after(job: JobRounds, *events: Event | None, now: datetime = T0) -> JobRounds:
    for event in events:
        job = advance(job, event, now, TWO)
    return job


def test_all_launchers_are_ordered_to_inspect_their_ranks_of_the_same_round():
    job = running()
    before = order_for(job, "b")
    job = after(job, SUSPECTED)

    assert (job.phase, next_deadline(job, TWO)) == (Phase.RUN, T0 + LIMIT)
    assert order_for(job, "b") == replace(before, inspection=1)
    assert order_for(after(job, FROM_A), "a").inspection == 1


def recorded(report: Inspected, *last: int) -> Inspected:
    """The report with recorders of ranks that are in collective 3, or have not entered it."""
    traces = tuple(
        RankTrace(
            rank=one.rank,
            collectives=tuple(
                Collective(
                    group="default_pg", sequence=at, operation="nccl:all_reduce", is_over=at < 3
                )
                for at in range(1, number + 1)
            ),
            members={},
        )
        for one, number in zip(report.snapshots, last, strict=True)
    )
    return replace(report, traces=traces)


def test_the_flight_recorders_of_all_nodes_name_the_rank_if_the_stacks_do_not():
    from_a = recorded(inspected("a", READS, READS), 3, 3)
    from_b = recorded(inspected("b", READS, READS), 2, 3)
    job = after(running(), SUSPECTED, from_a, from_b)

    assert job.failure is not None
    assert (job.failure.launcher, job.failure.rank) == ("b", 2)
    assert job.failure.text.endswith(
        "; flight recorder: rank 2 never entered all_reduce 3 of default_pg"
    )


def test_the_rank_that_the_others_wait_for_fails_with_the_verdict():
    job = after(running(), SUSPECTED, FROM_A, FROM_B)

    assert job.phase is Phase.STOP
    assert job.failure is not None
    assert (job.failure.launcher, job.failure.rank) == ("b", 3)
    assert job.failure.text == (
        "no progress for 3m; rank 3 on b never entered all_reduce: it is in read (train.py:7); "
        "the other 3 ranks wait"
    )


def test_the_verdict_does_not_wait_for_a_hot_spare():
    spare = Joined(member=Member(name="c", address="c", port=1, slots=2))

    assert after(running(), spare, SUSPECTED, FROM_A, FROM_B).phase is Phase.STOP


def test_without_a_timeout_the_verdict_is_kept_and_the_ranks_continue():
    job = after(running(), REPORTED, FROM_A, FROM_B)

    assert (job.phase, job.failure, next_deadline(job, TWO)) == (Phase.RUN, None, None)
    assert job.inspection is not None
    assert (job.inspection.verdict or "").startswith("no progress for 3m; rank 3 on b never")
    assert order_for(job, "a").inspection == 0


def test_a_hang_of_which_nothing_was_seen_is_inspected_again_for_twice_as_long():
    """On a node without free CPU time, the program that takes snapshots may end without any."""
    job = after(running(), REPORTED)
    assert order_for(job, "a").inspection_limit == LIMIT
    job = after(job, inspected("a"), inspected("b"), now=T0 + LIMIT)
    assert job.inspection is not None
    assert job.inspection.verdict is None
    assert (order_for(job, "a").inspection, order_for(job, "a").inspection_limit) == (2, 2 * LIMIT)
    assert next_deadline(job, TWO) == T0 + 3 * LIMIT
    assert after(job, FROM_A, FROM_B) == job, "reports on the first inspection"

    job = after(job, replace(FROM_A, number=2), replace(FROM_B, number=2))
    assert job.inspection is not None
    assert (job.inspection.verdict or "").startswith("no progress for 3m; rank 3 on b never")
    assert job.inspection.suspected_at == T0


def test_a_hang_of_which_nothing_can_be_seen_gets_a_verdict_in_the_end():
    job = after(running(), REPORTED)
    for limits in (1, 3, 7):
        assert job.inspection is not None
        assert job.inspection.verdict is None
        assert job.inspection.until == T0 + limits * LIMIT
        job = after(job, None, now=T0 + limits * LIMIT)

    assert job.inspection is not None
    assert "no rank could be read" in (job.inspection.verdict or "")
    assert job.inspection.suspected_at == T0
    job = after(job, REPORTED, now=T0 + 10 * LIMIT)
    assert job.inspection is not None
    assert (job.inspection.number, job.inspection.tries) == (4, 1)


def unread(name: str, *stacks: tuple[Frame, ...], number: int = 1) -> Inspected:
    """A report in which a rank without a stack was not read in time."""
    found = inspected(name, *stacks)
    snapshots = tuple(replace(one, is_unread=not one.frames) for one in found.snapshots)
    return replace(found, number=number, snapshots=snapshots)


def test_a_hang_is_inspected_again_while_a_rank_that_was_not_read_may_be_the_cause():
    """Else the network would be blamed for a rank that is not in the collective."""
    job = after(running(), REPORTED, FROM_A, unread("b", WAITS, ()))
    assert order_for(job, "b").inspection == 2

    job = after(job, replace(FROM_A, number=2), replace(FROM_B, number=2))
    assert job.inspection is not None
    assert (job.inspection.verdict or "").startswith("no progress for 3m; rank 3 on b never")


def test_a_rank_that_is_named_needs_no_other_inspection():
    job = after(running(), REPORTED, unread("a", WAITS, ()), FROM_B)

    assert job.inspection is not None
    assert (job.inspection.verdict or "").startswith("no progress for 3m; rank 3 on b never")


def test_a_restart_does_not_wait_for_another_inspection():
    assert after(running(), SUSPECTED, inspected("a"), inspected("b")).phase is Phase.STOP
    unseen = unread("a", (), ()), unread("b", (), ())
    assert after(running(), SUSPECTED, *unseen).phase is Phase.STOP


STACKS = st.sampled_from([WAITS, READS, ()])
ANSWERS = st.lists(st.one_of(st.none(), st.tuples(STACKS, STACKS)), min_size=1, max_size=8)


@given(from_a=ANSWERS, from_b=ANSWERS, delay_s=st.floats(0, 60))
def test_inspections_of_a_hang_double_their_limit_and_end(from_a, from_b, delay_s):
    """Whatever is seen: at most 10, 20 and 40 s, and the deadline is always in the future."""
    job, now, limits = after(running(), REPORTED), T0, []
    for answers in itertools.zip_longest(from_a, from_b):
        if not job.is_inspecting:
            break
        order = order_for(job, "a")
        assert order.inspection == len(limits) + 1
        assert order == replace(order_for(job, "b"), node_rank=0, first_rank=0)
        limits.append(order.inspection_limit)
        assert next_deadline(job, TWO) == now + order.inspection_limit
        for name, stacks in zip("ab", answers, strict=True):
            if stacks is not None:
                report = unread(name, *stacks, number=order.inspection)
                job = after(job, report, now=now)
        if not job.is_inspecting or order_for(job, "a").inspection != order.inspection:
            continue  # both have reported: the next try begins at once
        now += order.inspection_limit + timedelta(seconds=delay_s)
        job = after(job, None, now=now)

    assert limits == [LIMIT, 2 * LIMIT, 4 * LIMIT][: len(limits)]
    assert job.inspection is not None
    assert job.inspection.suspected_at == T0
    assert job.is_inspecting == (job.inspection.verdict is None)


def test_a_launcher_that_does_not_report_delays_the_verdict_until_the_limit():
    job = after(running(), SUSPECTED, FROM_A)
    early = T0 + LIMIT - timedelta(microseconds=1)
    assert after(job, None, now=early).phase is Phase.RUN

    job = after(job, None, now=T0 + LIMIT)
    assert job.phase is Phase.STOP
    assert job.failure is not None
    assert job.failure.text.endswith("; b did not report stacks")
    assert (job.failure.launcher, job.failure.rank) == ("a", 0)


def test_ranks_that_the_report_of_a_launcher_had_no_room_for_are_counted():
    job = after(running(), SUSPECTED, replace(FROM_A, omitted=6), replace(FROM_B, omitted=1))

    assert job.failure is not None
    assert job.failure.text.endswith(
        "; the other 3 ranks wait; without 7 ranks of a and 1 more: the report had reached its "
        "maximum size"
    )
    job = after(running(), SUSPECTED, replace(FROM_A, omitted=1), FROM_B)
    assert job.failure is not None
    assert "; without 1 rank of a: the report" in job.failure.text


def test_the_verdict_follows_the_suspicion_within_10_seconds():
    assert after(running(), SUSPECTED, now=T0).inspection.until == T0 + timedelta(seconds=10)


def test_without_any_report_the_suspected_rank_fails():
    job = after(after(running(), SUSPECTED), None, now=T0 + LIMIT)

    assert job.failure is not None
    assert (job.failure.launcher, job.failure.rank) == ("a", 0)
    assert "a and 1 more did not report stacks" in job.failure.text


def test_ranks_that_continue_meanwhile_are_not_restarted():
    job = after(running(), SUSPECTED, replace(FROM_A, is_stalled=False), FROM_B)

    assert (job.phase, job.failure) == (Phase.RUN, None)
    assert job.inspection is not None
    assert job.inspection.verdict == ""


def test_each_suspicion_of_a_round_has_its_own_inspection():
    job = after(running(), SUSPECTED, replace(SUSPECTED, launcher="b", rank=2))
    assert order_for(job, "a").inspection == 1

    job = after(job, replace(FROM_A, is_stalled=False), FROM_B, SUSPECTED)
    assert order_for(job, "a").inspection == 2
    assert after(job, FROM_A, FROM_B) == job, "reports on the first inspection"
    job = after(job, replace(FROM_A, number=2), replace(FROM_B, number=2))
    assert job.phase is Phase.STOP


def test_a_failure_during_an_inspection_ends_it_and_the_next_round_begins_anew():
    failed = Failed(
        launcher="b", round=1, rank=2, code=1, meaning=ExitMeaning.CRASH, text="exit code 1"
    )
    stopped = [Stopped(launcher=name, round=1, port=1) for name in ("a", "b")]
    job = after(running(), SUSPECTED, failed, FROM_A, FROM_B, *stopped)
    assert (job.phase, job.round, order_for(job, "a").inspection) == (Phase.RUN, 2, 0)
    assert after(job, SUSPECTED, FROM_A) == job, "of an earlier round"

    job = after(job, replace(SUSPECTED, round=2))
    assert order_for(job, "a").inspection == 1


def test_a_lost_launcher_ends_an_inspection():
    job = after(running(), SUSPECTED, Lost(launcher="b"))

    assert job.phase is Phase.STOP
    assert job.failure is not None
    assert job.failure.text == "its launcher was lost"


def test_equal_stacks_of_many_ranks_are_stored_once():
    job = after(running(), SUSPECTED, FROM_A, inspected("b", tuple(WAITS)))

    assert job.failure is not None
    job = after(running(), SUSPECTED, inspected("a", (WAITS[0],), (replace(WAITS[0]),)))
    assert job.inspection is not None
    [report] = job.inspection.found.values()
    one, other = report.snapshots
    assert one.frames is other.frames


EXCHANGES = RoundSettings(nodes=2, exchanges_suspects=True)
SLOWED = Slowed(launcher="b", round=1, rank=3, text="rank 3 on b is slow")


def with_spare() -> JobRounds:
    spare = Member(name="c", address="c", port=1, slots=2)
    return after(running(), Joined(member=spare))


def stopped(job: JobRounds, settings: RoundSettings) -> JobRounds:
    for name in ("a", "b"):
        job = advance(job, Stopped(launcher=name, round=1, port=1), T0, settings)
    return job


def test_the_node_of_a_straggler_is_exchanged_only_on_request_and_for_a_spare():
    assert advance(with_spare(), SLOWED, T0, TWO).failure is None
    assert advance(running(), SLOWED, T0, EXCHANGES).failure is None
    old = replace(SLOWED, round=0)
    assert advance(with_spare(), old, T0, EXCHANGES).failure is None
    spent = replace(EXCHANGES, budget=RestartBudget(exchanges=0))
    assert advance(with_spare(), SLOWED, T0, spent).failure is None

    job = stopped(advance(with_spare(), SLOWED, T0, EXCHANGES), EXCHANGES)

    assert (job.round, [*job.active], job.why) == (2, ["a", "c"], "rank 3 on b is slow")
    assert job.history.exchanges == 1


@pytest.mark.parametrize(
    ("state", "nodes"), [({"state": "D"}, ["a", "c"]), ({"state": "T"}, ["a", "b"])]
)
def test_a_hang_in_the_kernel_of_a_node_exchanges_it_and_no_other_hang_does(state, nodes):
    blocked = inspected("b", WAITS, READS)
    rank = replace(blocked.snapshots[1], **state)
    reports = (FROM_A, replace(blocked, snapshots=(blocked.snapshots[0], rank)))
    job = with_spare()
    for event in (SUSPECTED, *reports):
        job = advance(job, event, T0, EXCHANGES)

    assert [*stopped(job, EXCHANGES).active] == nodes


def test_a_rank_that_hangs_or_is_slow_again_on_another_node_exchanges_no_second_one():
    """The program or its data is the cause then, such as a file that cannot be read."""
    job = stopped(advance(with_spare(), SLOWED, T0, EXCHANGES), EXCHANGES)
    assert ([*job.active], job.history.moved_rank) == (["a", "c"], 3)
    job = advance(job, Joined(member=Member(name="d", address="d", port=1, slots=2)), T0, EXCHANGES)
    again = Slowed(launcher="c", round=2, rank=3, text="rank 3 on c is slow")
    assert advance(job, again, T0, EXCHANGES) == job
    assert advance(job, replace(again, rank=2), T0, EXCHANGES).failure is not None

    blocked = inspected("c", WAITS, READS)
    rank = replace(blocked.snapshots[1], rank=3, state="D")
    reports = (
        replace(FROM_A, round=2),
        replace(blocked, round=2, snapshots=(blocked.snapshots[0], rank)),
    )
    for event in (replace(SUSPECTED, round=2), *reports):
        job = advance(job, event, T0, EXCHANGES)
    assert job.failure is not None
    assert (job.failure.rank, job.failure.is_of_node) == (3, False)


TIMED_OUT = Failed(
    launcher="a",
    round=1,
    rank=0,
    code=1,
    meaning=ExitMeaning.CRASH,
    text="exit code 1: timed out",
    has_timed_out=True,
    is_consequence=True,
)


def ended(name: str, *frames: tuple[Frame, ...]) -> Inspected:
    """A report on ranks of which those without a stack have ended by the timeout."""
    found = inspected(name, *frames)
    snapshots = tuple(
        replace(one, pid=None, has_timed_out=True) if not one.frames else one
        for one in found.snapshots
    )
    return replace(found, snapshots=snapshots)


def test_a_timeout_is_inspected_and_the_failure_of_the_rank_that_never_came():
    job = after(running(), TIMED_OUT)
    assert (job.phase, job.failure, order_for(job, "b").inspection) == (Phase.RUN, None, 1)

    job = after(job, ended("a", (), ()), ended("b", (), READS))

    assert job.failure is not None
    assert (job.failure.launcher, job.failure.rank) == ("b", 3)
    assert job.failure.text.startswith("exit code 1: timed out; rank 3 on b never entered")


def test_launchers_whose_ranks_have_all_ended_report_their_dumps_too():
    gone = [Stopped(launcher=name, round=1, port=1) for name in ("a", "b")]
    job = after(running(), TIMED_OUT, *gone)
    assert (job.phase, job.alive) == (Phase.RUN, frozenset())

    job = after(job, ended("a", (), ()))
    assert job.failure is None
    before, job = job, after(job, ended("b", (), ()))

    assert job.round == 2
    why = "exit code 1: timed out; all 4 ranks ended because a collective timed out"
    assert job.why == why
    assert progress_lines(before, job, TWO) == [
        f"RankFailed: round 1: rank 0 on a: {why}",
        f"RanksRestarted: in-place (restarts in place: 1, limit 3): {why}",
        "RoundStarted: round 2 on a, b; hot spares: 0",
    ]


def test_other_ranks_that_notice_the_timeout_do_not_end_the_inspection_but_a_crash_does():
    lost = replace(TIMED_OUT, rank=1, has_timed_out=False, text="connection closed by peer")
    job = after(running(), TIMED_OUT, lost)
    assert job.failure is None

    crashed = replace(lost, rank=2, launcher="b", is_consequence=False, text="exit code 3")
    job = after(job, crashed)

    assert job.failure is not None
    assert job.failure.text == "exit code 3"


def test_a_timeout_without_reports_is_a_failure_after_the_limit():
    job = after(running(), TIMED_OUT)
    assert after(job, None, now=T0 + LIMIT - timedelta(microseconds=1)).failure is None

    job = after(job, None, now=T0 + LIMIT)

    assert job.failure is not None
    assert job.failure.text.startswith("exit code 1: timed out; no rank could be read")


def test_a_timeout_during_an_inspection_that_restarts_nothing_restarts_the_ranks():
    job = after(running(), REPORTED, TIMED_OUT, ended("a", (), ()), ended("b", (), READS))

    assert job.failure is not None
    assert "; no progress for 3m; rank 3 on b never entered" in job.failure.text


@pytest.mark.parametrize("order", [(REPORTED, RULE), (RULE, REPORTED)])
def test_a_suspicion_that_restarts_counts_beside_one_that_is_only_reported(
    order: tuple[Suspected, ...],
):
    """Its launcher reports it once, at whatever moment of an inspection."""
    job = after(running(), *order, FROM_A, FROM_B)

    assert job.failure is not None
    assert job.failure.text.startswith("LogStateHanging_Nccl: ")
