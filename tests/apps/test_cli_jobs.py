import contextlib
import io
import os
import sqlite3
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from written_runs import LINE, NOW, node, program

from holdfast.apps.cli.jobs.logs import start_of_last
from holdfast.apps.exit_codes import ExitCode
from holdfast.model.events import AttemptStarted, JobWaits
from holdfast.model.jobs import AttemptRecord, Failure, FailureKind, JobPhase
from holdfast.model.names import Reason

HOLDFAST = [sys.executable, "-m", "holdfast"]

FAILURE = Failure(
    kind=FailureKind.HARDWARE,
    reason=Reason.XID_REPLACE,
    at=NOW,
    node=node(2),
    evidence=LINE,
    step=57,
    incident_id="an-incident",
)


def attempt(number: int, **fields) -> AttemptRecord:
    values = {
        "attempt": number,
        "placement": (node(1), node(2)),
        "started_at": NOW,
        "stopped_at": NOW + timedelta(seconds=90),
        **fields,
    }
    return AttemptRecord(**values)


def write(path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def put(store, name: str, **fields) -> None:
    store.put_job(name, replace(store.jobs()[name][1], **fields))


def test_the_wide_list_has_the_step_rate(runs) -> None:
    runs.add("a", ranks=(1,))
    write(runs.directory("a").step_rate(1), "0.123456")

    listed = runs.call("jobs", "list", "--output", "wide")

    assert "STEPS/S" in listed.out
    assert " 0.123 " in listed.out


def test_list_shows_the_jobs_of_all_runs_the_newest_last(runs) -> None:
    runs.add("b", hardware_retries=2, started_at=NOW - timedelta(hours=2))
    runs.add("c", phase=JobPhase.SUCCEEDED, reason="done", is_active=False)
    runs.add("a", ranks=(1,), started_at=NOW - timedelta(hours=1), attempt=3, app_retries=1)
    write(runs.directory("b").progress(1), "40\n41\n42\n")

    listed = runs.call("jobs", "list")

    assert [line.split()[:7] for line in listed.out.splitlines()[1:]] == [
        ["b", "running", "2", "1", "42", "2/10", "0/3"],
        ["a", "running", "1", "3", "-", "0/10", "1/3"],
        ["c", "succeeded", "2", "1", "-", "0/10", "0/3"],
    ]


def test_an_empty_list_says_how_to_begin(runs) -> None:
    listed = runs.call("jobs", "list")

    assert (listed.code, listed.out) == (ExitCode.OK, "")
    assert "holdfast run -- COMMAND" in listed.err


@pytest.mark.parametrize(
    ("phase", "is_active", "shown"),
    [
        (JobPhase.RUNNING, True, "running"),
        (JobPhase.RUNNING, False, "interrupted"),
        (JobPhase.WAITING, False, "interrupted"),
        (JobPhase.FAILED, False, "failed"),
        (JobPhase.FAILED, True, "failed"),
    ],
)
def test_a_job_that_was_not_over_when_holdfast_was_killed_was_interrupted(
    runs, phase, is_active, shown
) -> None:
    runs.add("train", phase=phase, is_active=is_active)

    listed = runs.call("jobs", "list", "-o", "json")

    assert listed.json[0]["phase"] == shown


def test_an_interrupted_job_says_how_it_can_go_on(runs) -> None:
    runs.add("train", is_active=False)

    output = runs.call("jobs", "describe", "train").out

    assert (
        "holdfast run --name train --resume --nodes 2 -- python train.py --lr '1e-3; echo'"
        in output
    )


def test_describe_reports_every_attempt_why_it_ended_and_what_it_lost(runs) -> None:
    over = (
        attempt(1, first_step=0, last_step=57, failure=FAILURE),
        attempt(2, first_step=50, last_step=60, placement=(node(1), node(3))),
    )
    runs.add("train", attempt=3, attempts=over, hardware_retries=2)
    write(runs.directory("train").progress(3), "60\n61\n")

    shown = runs.call("jobs", "describe", "train", "-o", "json").json
    output = runs.call("jobs", "describe", "train").out

    assert shown["command"] == "python train.py --lr '1e-3; echo'"
    assert shown["checkpoint_dir"] == str(runs.directory("train").checkpoints)
    assert shown["step"] == 61
    assert [one["lost_steps"] for one in shown["attempts"]] == [7, 0, None]
    assert [one["stopped_at"] is None for one in shown["attempts"]] == [False, False, True]
    assert [one["first_step"] for one in shown["attempts"]] == [0, 50, 60]
    first = shown["attempts"][0]
    assert (first["kind"], first["reason"], first["node"]) == (
        "hardware",
        Reason.XID_REPLACE,
        node(2),
    )
    assert first["logs"] == [str(runs.directory("train").log(1, rank)) for rank in (0, 1)]
    for text in (
        "2 of 10 for hardware, 0 of 3 for the application",
        f"on {node(2)}: {LINE} (incident an-incident)",
        f"{node(1)}, {node(3)}",
        "1m30s",
        "0 to 57",
    ):
        assert text in output


def test_an_attempt_that_is_over_is_reported_once(runs) -> None:
    over = (attempt(1, first_step=0, last_step=57, failure=FAILURE),)
    runs.add("train", attempt=1, attempts=over, phase=JobPhase.WAITING, failure=FAILURE)
    write(runs.directory("train").progress(1), "0\n57\n")

    shown = runs.call("jobs", "describe", "train", "-o", "json").json["attempts"]

    assert [(one["attempt"], one["lost_steps"]) for one in shown] == [(1, None)]


@pytest.mark.parametrize(
    ("phase", "kind"), [(JobPhase.STOPPING, "hardware"), (JobPhase.RUNNING, "")]
)
def test_a_running_attempt_is_not_blamed_for_the_failure_before_it(runs, phase, kind) -> None:
    runs.add("train", attempt=1, phase=phase, failure=FAILURE)

    assert runs.call("jobs", "describe", "train", "-o", "json").json["attempts"][0]["kind"] == kind


def test_a_job_that_never_started_has_no_attempts(runs) -> None:
    runs.add("train", attempt=0, phase=JobPhase.WAITING, placement=(), started_at=NOW)

    shown = runs.call("jobs", "describe", "train", "-o", "json").json

    assert (shown["attempts"], shown["step"]) == ([], None)


def test_describe_reports_the_events_in_words_and_unknown_ones_by_name(runs) -> None:
    store = runs.add("train")
    store.add_event(NOW + timedelta(seconds=1.5), JobWaits(job="train", why="for nodes"))
    started = AttemptStarted(job="train", attempt=1, nodes=(node(1),))
    store.add_event(NOW + timedelta(seconds=2), started)
    store.add_event(NOW + timedelta(seconds=3), started)
    of_a_later_release = "UPDATE events SET name = 'job.sang' WHERE number = 3"
    execute(runs, "train", of_a_later_release)

    output = runs.call("jobs", "describe", "train").out.splitlines()

    assert output[-3:] == [
        "1.50s:  train: for nodes",
        f"2.00s:  train: attempt 1 running on {node(1)}",
        "3.00s:  job.sang",
    ]
    events = runs.call("jobs", "describe", "train", "-o", "json").json["events"]
    assert [event["event"] for event in events] == ["job.waits", "job.attempt_started", "job.sang"]


def execute(runs, name: str, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(runs.directory(name).state)) as state:
        state.execute(statement)
        state.commit()


@pytest.mark.parametrize("command", ["describe", "logs", "cancel"])
def test_an_unknown_job_is_answered_with_the_nearest(runs, command) -> None:
    runs.add("train-1")

    answered = runs.call("jobs", command, "trian-1")

    assert answered.code == ExitCode.FAILED
    assert "did you mean 'train-1'?" in answered.err


# Cancelling


def test_cancelling_is_recorded_and_wakes_the_run(runs) -> None:
    store = runs.add("train")
    wake = runs.directory("train").wake
    os.utime(wake, (1, 1))

    unconfirmed = runs.call("jobs", "cancel", "train")
    was_asked = store.jobs()["train"][2]
    confirmed = runs.call("jobs", "cancel", "train", "--yes")

    assert unconfirmed.code == ExitCode.BAD_INPUT
    assert "Cancel train (running, attempt 1)?" in unconfirmed.err
    assert not was_asked
    assert confirmed.code == ExitCode.OK
    assert store.jobs()["train"][2]
    assert wake.stat().st_mtime > 1
    assert runs.call("jobs", "describe", "train", "-o", "json").json["cancel_requested"]


@pytest.mark.parametrize(
    ("phase", "is_active", "said"),
    [
        (JobPhase.RUNNING, False, "not active (phase interrupted)"),
        (JobPhase.SUCCEEDED, False, "not active (phase succeeded)"),
        (JobPhase.SUCCEEDED, True, "not active (phase succeeded)"),
    ],
)
def test_a_job_that_does_not_run_any_more_cannot_be_cancelled(runs, phase, is_active, said) -> None:
    store = runs.add("train", phase=phase, is_active=is_active)

    answered = runs.call("jobs", "cancel", "train", "--yes")

    assert answered.code == ExitCode.FAILED
    assert said in answered.err
    assert not store.jobs()["train"][2]


# Logs


def test_logs_are_those_of_rank_0_in_the_newest_attempt(runs) -> None:
    runs.add("train", attempt=2)
    for number in (1, 2):
        for rank in (0, 1):
            write(runs.directory("train").log(number, rank), f"attempt {number} rank {rank}\n")

    assert runs.call("jobs", "logs", "train").out == "attempt 2 rank 0\n"
    assert runs.call("jobs", "logs", "train", "--rank", "1").out == "attempt 2 rank 1\n"
    assert runs.call("jobs", "logs", "train", "--attempt", "1").out == "attempt 1 rank 0\n"


def test_logs_are_printed_byte_by_byte_as_they_were_written(runs) -> None:
    written = b"\x1b[31mred\x1b[0m\r 99%\xff\x00 no newline"
    runs.add("train")
    path = runs.directory("train").log(1, 0)
    path.parent.mkdir(parents=True)
    path.write_bytes(written)

    printed = subprocess.run([*HOLDFAST, "jobs", "logs", "train"], capture_output=True, check=True)

    assert printed.stdout == written


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--rank", "2"], "rank 2 not found; ranks are 0 to 1"),
        (["--rank", "-1"], "rank -1 not found; ranks are 0 to 1"),
        (["--attempt", "3"], "attempt 3 not found; the latest is 2"),
        (["--attempt", "0"], "attempt 0 not found; the latest is 2"),
    ],
)
def test_logs_that_there_are_not_are_answered_with_those_that_there_are(
    runs, options, said
) -> None:
    runs.add("train", attempt=2)

    answered = runs.call("jobs", "logs", "train", *options)

    assert answered.code == ExitCode.FAILED
    assert said in answered.err


def test_a_job_that_never_started_has_no_logs(runs) -> None:
    runs.add("train", attempt=0, phase=JobPhase.WAITING)

    answered = runs.call("jobs", "logs", "train")

    assert answered.code == ExitCode.FAILED
    assert "train has not started yet: it is waiting" in answered.err


def test_a_rank_that_has_not_printed_yet_prints_nothing(runs) -> None:
    runs.add("train")

    answered = runs.call("jobs", "logs", "train")

    assert (answered.code, answered.out) == (ExitCode.OK, "")


BLOCK = 1 << 16
"""Logs are read backwards in blocks of so many bytes: that is where bugs live."""

lines = st.lists(st.sampled_from([0, 1, 2, BLOCK - 2, BLOCK - 1, BLOCK, BLOCK + 1]), max_size=6)


@given(lines, st.booleans(), st.integers(0, 8))
def test_the_tail_is_the_last_so_many_lines(lengths, has_end, count) -> None:
    whole = b"".join(b"x" * length + b"\n" for length in lengths)
    log = whole if has_end else whole.removesuffix(b"\n")

    start = start_of_last(io.BytesIO(log), count)

    assert log[start:] == b"".join(log.splitlines(keepends=True)[-count:] if count else [])


@pytest.mark.parametrize(("count", "printed"), [("0", ""), ("1", "two\n"), ("9", "one\ntwo\n")])
def test_logs_begin_with_the_tail_that_is_asked_for(runs, count, printed) -> None:
    runs.add("train")
    write(runs.directory("train").log(1, 0), "one\ntwo\n")

    assert runs.call("jobs", "logs", "train", "--tail", count).out == printed


@contextlib.contextmanager
def following(*options: str):
    """``holdfast jobs logs train --follow`` in a process of its own."""
    with program("jobs", "logs", "train", "--follow", *options) as process:
        yield process
    assert process.returncode == ExitCode.OK


def append(path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def test_following_goes_on_with_the_next_attempt_until_the_job_ends(runs) -> None:
    store = runs.add("train")
    directory = runs.directory("train")
    append(directory.log(1, 1), "old\nnewer\n")

    with following("--rank", "1", "--tail", "1") as process:
        assert process.stdout.readline() == "newer\n"
        append(directory.log(1, 1), "newest\n")
        assert process.stdout.readline() == "newest\n"
        append(directory.log(1, 1), "last words\n")
        append(directory.log(2, 1), "again\n")
        put(store, "train", attempt=2)
        assert process.stdout.readline() == "last words\n"
        assert process.stdout.readline() == "holdfast: train: attempt 2\n"
        assert process.stdout.readline() == "again\n"
        append(directory.log(2, 1), "done\n")
        put(store, "train", phase=JobPhase.SUCCEEDED)
        assert process.stdout.read() == "done\n"


def test_following_one_attempt_ends_with_it(runs) -> None:
    store = runs.add("train")
    append(runs.directory("train").log(1, 0), "one\n")
    append(runs.directory("train").log(2, 0), "two\n")

    with following("--attempt", "1") as process:
        assert process.stdout.readline() == "one\n"
        put(store, "train", attempt=2)
        assert process.stdout.read() == ""


def test_following_ends_when_holdfast_is_killed(runs) -> None:
    runs.add("train")
    append(runs.directory("train").log(1, 0), "one\n")

    with following() as process:
        assert process.stdout.readline() == "one\n"
        runs.end()
        assert process.stdout.read() == ""


def test_following_waits_for_a_job_to_start(runs) -> None:
    store = runs.add("train", attempt=0, phase=JobPhase.WAITING)

    with following() as process:
        append(runs.directory("train").log(1, 0), "first\n")
        put(store, "train", attempt=1, phase=JobPhase.RUNNING)
        assert process.stdout.readline() == "first\n"
        put(store, "train", phase=JobPhase.SUCCEEDED)
        assert process.stdout.read() == ""
