"""Log rules of a job on several nodes, evaluated from the reports of its launchers."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.launch.messages import event_message
from holdfast.decisions.hangs import Hang
from holdfast.decisions.launch_events import Inspected, LogRuleReport, LogsRead, Member, Suspected
from holdfast.decisions.launch_inspection import begin, concluded, with_report
from holdfast.decisions.launch_log_rules import (
    RoundLogs,
    after_report,
    digest_of,
    no_logs,
    report_of,
    suspicion,
    unwatched,
)
from holdfast.decisions.launch_state import JobRounds, Phase
from holdfast.decisions.log_rules import (
    Comparison,
    Hit,
    JobLogRule,
    RuleState,
    after_line,
    first_hang,
)

T0 = datetime(2026, 1, 1, tzinfo=UTC)
TICKS = JobLogRule(name="Ticks", pattern="tick", frequency=timedelta(seconds=10))
START = JobLogRule(name="Start", pattern="begin", start_cutoff=timedelta(seconds=10))
SLOW = JobLogRule(
    name="Slow", pattern="(.*) s", threshold=2, comparison=Comparison.GT, data_points=2
)
BROKEN = JobLogRule(name="Broken", pattern="broken", fault_on_match=True)
ALL = (TICKS, START, SLOW, BROKEN)
ACTIVE = {name: Member(name=name, address=name, port=1, slots=2) for name in ("a", "b", "c")}
JOB = JobRounds(since=T0, phase=Phase.RUN, round=1, active=ACTIVE, members=ACTIVE)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def report(
    launcher: str, *rules: LogRuleReport, known_s: float | None = 0.0, of: Sequence[JobLogRule] = ()
) -> LogsRead:
    digest = digest_of(of or (TICKS,))
    return LogsRead(launcher=launcher, round=1, digest=digest, rules=rules, known_s=known_s)


def after(known: RoundLogs, *reports: LogsRead, second: float) -> RoundLogs:
    for one in reports:
        known = after_report(known, one, at(second))
    return known


QUIET = LogRuleReport()


def test_lines_of_one_launcher_count_for_all():
    known = after(no_logs((TICKS,)), report("a", LogRuleReport(matched_s=1)), second=20)
    known = after(known, report("b", QUIET), report("c", QUIET), second=20)
    assert suspicion(known, JOB) is None

    known = after(known, *(report(name, QUIET) for name in "abc"), second=29)

    assert suspicion(known, JOB) == Suspected(
        launcher="a",
        round=1,
        rank=-1,
        text="LogStateHanging_Ticks: no line matched 'tick' for 10s, last at 2026-01-01T00:00:19Z",
        restart=True,
        stalled_s=10,
        is_proven=True,
    )


@pytest.mark.parametrize("silent", ["a", "b", "c"])
def test_missing_lines_are_no_hang_until_all_launchers_have_read_their_logs(silent: str):
    started = LogRuleReport(matched_s=5)
    known = after(no_logs((TICKS,)), *(report(name, started) for name in "abc"), second=5)

    reports = [report(name, QUIET, known_s=21 if name == silent else 0) for name in "abc"]
    known = after(known, *reports, second=30)
    assert suspicion(known, JOB) is None
    assert suspicion(known, replace(JOB, succeeded=frozenset({silent}))) is None

    for last in ({"known_s": 20.0}, {"known_s": 21.0, "is_complete": True}):
        read = after(known, replace(report(silent, QUIET), **last), second=30)
        assert suspicion(read, JOB) is not None


def test_a_launcher_that_never_read_its_logs_hides_missing_lines():
    known = after(no_logs((START,)), report("a", QUIET, of=[START]), second=60)
    known = after(known, report("b", QUIET, of=[START]), second=60)
    assert suspicion(known, JOB) is None

    unread = report("c", QUIET, of=[START], known_s=None)
    assert suspicion(after(known, unread, second=60), JOB) is None
    assert suspicion(after(known, report("c", QUIET, of=[START]), second=60), JOB) is not None


def test_a_line_that_ends_a_rule_ends_it_on_all_nodes():
    known = after(
        no_logs((TICKS,)), *(report(name, LogRuleReport(matched_s=0)) for name in "abc"), second=1
    )
    known = after(
        known, replace(report("b", LogRuleReport(is_over=True)), is_complete=True), second=2
    )

    known = after(known, *(report(name, QUIET) for name in "ac"), second=60)

    assert suspicion(known, JOB) is None


def test_a_rule_that_one_launcher_cannot_evaluate_finds_no_silence_but_what_a_line_proves():
    rules = (TICKS, BROKEN)
    ignored = LogRuleReport(is_evaluated=False)
    known = no_logs(rules)
    known = after(
        known,
        *(report(name, LogRuleReport(matched_s=0), QUIET, of=rules) for name in "abc"),
        second=1,
    )
    known = after(known, report("b", ignored, ignored, of=rules), second=90)
    known = after(known, *(report(name, QUIET, QUIET, of=rules) for name in "ac"), second=90)
    assert suspicion(known, JOB) is None

    proven = LogRuleReport(hang_s=3, hang_rank=5, hang="rank 5 printed: broken")
    found = suspicion(after(known, report("c", QUIET, proven, of=rules), second=90), JOB)

    assert found is not None
    assert (found.launcher, found.rank) == ("c", 5)
    assert found.text == "LogStateHanging_Broken: rank 5 printed: broken"


def test_of_two_hangs_the_first_in_time_counts():
    rules = (SLOW, BROKEN)
    later = LogRuleReport(hang_s=1, hang_rank=1, hang="later")
    earlier = LogRuleReport(hang_s=2, hang_rank=4, hang="earlier")
    known = after(no_logs(rules), report("a", later, QUIET, of=rules), second=50)
    known = after(known, report("c", QUIET, earlier, of=rules), second=50)

    found = suspicion(known, JOB)

    assert found is not None
    assert (found.launcher, found.rank, found.text) == ("c", 4, "LogStateHanging_Broken: earlier")


@pytest.mark.parametrize(
    "job",
    [
        replace(JOB, phase=Phase.STOP),
        replace(JOB, round=2),
        replace(JOB, phase=Phase.GATHER),
    ],
)
def test_nothing_is_suspected_but_in_the_round_of_the_logs(job: JobRounds):
    proven = LogRuleReport(hang_s=3, hang="rank 0 printed: broken")
    known = after(no_logs((BROKEN,)), report("a", proven, of=[BROKEN]), second=9)

    assert suspicion(known, JOB) is not None
    assert suspicion(known, job) is None


def test_a_new_round_begins_without_what_was_known():
    proven = LogRuleReport(hang_s=3, hang="rank 0 printed: broken")
    known = after(no_logs((BROKEN,)), report("a", proven, of=[BROKEN]), second=9)

    known = after(known, replace(report("a", QUIET, of=[BROKEN]), round=2), second=10)

    assert suspicion(known, replace(JOB, round=2)) is None
    assert known.known.keys() == {"a"}


def test_other_rules_of_a_launcher_are_reported_and_hide_missing_lines():
    known = after(
        no_logs((TICKS,)), *(report(name, LogRuleReport(matched_s=0)) for name in "abc"), second=1
    )
    known = after(known, report("b", QUIET, of=[START]), second=60)
    known = after(known, *(report(name, QUIET) for name in "ac"), second=60)

    assert suspicion(known, JOB) is None
    required = "start all launchers with the same --log-rules FILE"
    assert unwatched(known, JOB, at(14)) == ""
    assert unwatched(known, JOB, at(15)) == (
        f"log rules of b differ from those of the coordinator: {required}; lines of their ranks "
        "are ignored, and missing lines do not count as a hang"
    )
    none = after(no_logs(()), report("b", QUIET), second=20)
    assert unwatched(none, JOB, at(20)) == (
        f"the coordinator has no log rules: {required}; no rule applies"
    )
    assert suspicion(none, JOB) is None


def test_launchers_without_rules_are_reported() -> None:
    active = dict.fromkeys("abcdef", ACTIVE["a"])
    job = replace(JOB, active=active)
    known = after(no_logs((TICKS,)), report("a", QUIET), second=1)

    assert unwatched(known, job, at(59)) == ""
    assert unwatched(known, job, at(60)).startswith("no log rules on b, c, d and 2 more: start all")
    assert unwatched(known, replace(job, round=2), at(60)).startswith("no log rules on a, b, c and")
    known = after(known, *(report(name, QUIET) for name in active), second=60)
    assert unwatched(known, job, at(60)) == ""


@pytest.mark.parametrize("known_s", [61.0, None])
def test_logs_that_are_not_read_for_a_minute_are_reported(known_s: float | None) -> None:
    known = after(no_logs((TICKS,)), *(report(name, QUIET) for name in "abc"), second=89)
    late = after(known, report("b", QUIET, known_s=known_s), second=90)
    text = (
        "logs on b cannot be read, or grow faster than they are read: missing lines do not count "
        "as a hang"
    )
    assert unwatched(known, JOB, at(90)) == ""
    assert unwatched(late, JOB, at(90)) == text
    assert unwatched(replace(late, complete=frozenset("b")), JOB, at(90)) == ""


def test_a_hang_without_a_rank_blames_no_node() -> None:
    known = after(
        no_logs((START,)), *(report(name, QUIET, of=[START]) for name in "abc"), second=60
    )
    found = suspicion(known, JOB)
    assert found is not None
    waits = Inspected(launcher="a", round=1, number=1, is_stalled=True, snapshots=())

    inspection = with_report(begin(None, found, at(60)), waits)
    while inspection.verdict is None:
        inspection, hung = concluded(inspection, {"a"}, inspection.until)

    assert hung is not None
    assert (hung.launcher, hung.rank) == ("", -1)


def test_reports_of_the_longest_lines_fit_in_a_message() -> None:
    line = "\U0001f600" * 400
    hang = Hang(reason="x", since=T0, at=T0, evidence=line, rank=1)
    state = RuleState(not_finite=line, matched_at=T0, hang=hang)

    read = report("a", *[report_of(state, T0)] * 20)

    assert len(json.dumps(event_message(read))) < 1 << 15
    assert report_of(RuleState(not_finite="x" * 400), T0).not_finite == "x" * 400


def test_new_steps_of_the_rank_do_not_end_what_a_rule_has_found():
    proven = LogRuleReport(hang_s=0, hang_rank=1, hang="rank 1 printed: broken")
    known = after(no_logs((BROKEN,)), report("a", proven, of=[BROKEN]), second=9)
    found = suspicion(known, JOB)
    assert found is not None
    steps = Inspected(launcher="a", round=1, number=1, is_stalled=False, snapshots=())

    _, hung = concluded(with_report(begin(None, found, at(9)), steps), {"a"}, at(9))
    _, other = concluded(
        with_report(begin(None, replace(found, is_proven=False), at(9)), steps), {"a"}, at(9)
    )

    assert hung is not None
    assert (hung.launcher, hung.rank) == ("a", 1)
    assert other is None


NUMBERS = st.sampled_from([1.0, 2.0, 3.0, float("nan"), float("inf")])
HITS = st.one_of(
    st.builds(Hit, is_match=st.booleans(), number=st.none() | NUMBERS),
    st.builds(Hit, is_match=st.just(False), is_stop=st.just(True)),
)
LINES = st.tuples(
    st.integers(0, 40), st.sampled_from(range(6)), st.sampled_from(range(len(ALL))), HITS
)


def take(states: list[RuleState], line: tuple[int, int, int, Hit]) -> None:
    second, rank, number, hit = line
    states[number] = after_line(
        ALL[number],
        states[number],
        hit,
        rank=rank,
        line=f"line {hit.number}",
        at=at(second),
        where=f"rank {rank}",
    )


def settled(states: list[RuleState]) -> list[bool]:
    return [one.is_over or one.hang is not None for one in states]


@given(st.lists(LINES, max_size=12), st.sampled_from([1, 5, 41]), st.integers(0, 60))
def test_reports_of_launchers_find_what_all_lines_in_one_place_show(
    lines: list[tuple[int, int, int, Hit]], every: int, end: int
):
    """Launchers report now and then, and at once what a line has proven or ended."""
    whole = [RuleState() for _ in ALL]
    parts = {name: [RuleState() for _ in ALL] for name in ACTIVE}
    known = no_logs(ALL)
    for second in range(end + 1):
        before = {name: settled(states) for name, states in parts.items()}
        for line in sorted(lines, key=lambda one: one[:3]):
            if line[0] == second:
                take(whole, line)
                take(parts["abc"[line[1] // 2]], line)
        for name, states in parts.items():
            if second in (0, end) or second % every == 0 or settled(states) != before[name]:
                reports = [report_of(state, at(second)) for state in states]
                known = after(known, report(name, *reports, of=ALL), second=second)

    hang, found = first_hang(zip(ALL, whole, strict=True), T0, at(end)), suspicion(known, JOB)

    assert (hang is None) == (found is None)
    if hang is not None and found is not None:
        assert found.text.startswith(f"{hang.reason}: ")
        assert hang.rank is None or found.rank // 2 == "abc".index(found.launcher)
