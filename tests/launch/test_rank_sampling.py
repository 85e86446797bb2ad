"""When a launcher samples its ranks, and when it stops."""

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.apps.launch.options import parse
from holdfast.apps.launch.rank_sampling import RankSampling, StragglerOptions, window_after
from holdfast.decisions.launch_events import Examined
from holdfast.kit.printed_value import PrintedValue
from holdfast.model.errors import ConfigError

NOWHERE = Path("/nowhere")

WATCHED = {"HOLDFAST_PROGRESS_FILE": "/run/steps"}


@pytest.mark.parametrize(
    ("options", "variables", "expected"),
    [
        ((), {}, StragglerOptions()),
        ((), WATCHED, None),
        (("--straggler-factor", "0"), {}, None),
        (("--straggler-factor", "1.3"), WATCHED, StragglerOptions(factor=1.3, is_requested=True)),
        (("--straggler-window", "1m"), {}, StragglerOptions(window=timedelta(minutes=1))),
        ((), {"PET_STRAGGLER_FACTOR": "2"}, StragglerOptions(factor=2, is_requested=True)),
    ],
)
def test_samples_are_taken_unless_another_system_watches_the_job(
    options, variables, expected
) -> None:
    assert parse([*options, "train.py"], variables).stragglers == expected


@pytest.mark.parametrize("text", ["1", "0.9", "-1", "nan", "inf", "much"])
def test_a_factor_that_every_rank_exceeds_is_rejected(text: str, capsys) -> None:
    with pytest.raises((ConfigError, SystemExit)):
        parse([f"--straggler-factor={text}", "train.py"], {})
    assert text in capsys.readouterr().err


def test_a_command_that_prints_nonsense_or_never_ends_has_the_default() -> None:
    for code in ("print('x')", "print('[')", "import time; time.sleep(600)"):
        value = PrintedValue(tuple[int, ...], (sys.executable, "-c", code), limit_s=1)
        deadline = time.monotonic() + 60
        while (found := value.value((7,))) is None and time.monotonic() < deadline:
            time.sleep(0.02)
        value.close()
        assert found == (7,)
    value = PrintedValue(tuple[int, ...], (sys.executable, "-c", "print([1, 2])"), limit_s=60)
    while (found := value.value((7,))) is None:
        time.sleep(0.02)
    value.close()
    assert found == (1, 2)


@pytest.mark.parametrize(
    ("elapsed", "number"), [(3.9, 4), (4.0, 4), (4.25, 4), (4.26, 5), (5.25, 5), (9.0, 9)]
)
def test_a_window_that_would_begin_a_little_late_is_not_left_out(elapsed, number) -> None:
    assert window_after(3, elapsed) == number


@pytest.mark.samples
def test_a_node_without_samples_says_so_and_takes_no_more(capsys) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    options = StragglerOptions(window=timedelta(milliseconds=1), is_requested=True)
    sampling = RankSampling("node-a", options)
    sampling.begin(1, {0: ended.pid, 1: ended.pid}, NOWHERE)
    deadline = time.monotonic() + 120
    while sampling.next_call() is not None and time.monotonic() < deadline:
        assert not [*sampling.advance()]
        time.sleep(0.05)

    assert sampling.next_call() is None
    assert sampling.pids == []
    assert "stragglers are not detected: no samples: " in capsys.readouterr().err


def test_a_node_with_too_many_ranks_for_a_message_is_not_sampled() -> None:
    sampling = RankSampling("node-a", StragglerOptions())
    sampling.begin(1, dict.fromkeys(range(129), 1), NOWHERE)
    assert sampling.next_call() is None
    sampling.begin(2, dict.fromkeys(range(128), 1), NOWHERE)
    assert sampling.next_call() is not None
    sampling.end()
    assert sampling.next_call() is None


def test_each_order_examines_its_rank_once_until_it_is_withdrawn() -> None:
    sampling = RankSampling("node-a", StragglerOptions())
    sampling.begin(3, {4: os.getpid(), 5: os.getpid()}, NOWHERE)

    def examines(number: int, rank: int) -> list[int]:
        sampling.examine(number, rank)
        return sampling.pids

    for others in ((3, -1), (3, 6), (2, 4)):
        assert examines(*others) == []
    first = examines(3, 4)
    assert len(first) == 1
    assert examines(3, 4) == first
    assert examines(2, 5) == first
    other = examines(3, 5)
    assert len(other) == 1
    assert other != first
    assert examines(3, -1) == []
    assert len(examines(3, 5)) == 1
    sampling.end()
    assert sampling.pids == []


def test_what_was_found_is_reported_once() -> None:
    sampling = RankSampling("node-a", StragglerOptions())
    sampling.begin(3, {4: os.getpid()}, NOWHERE)
    sampling.examine(3, 4)
    for pid in sampling.pids:
        os.kill(pid, signal.SIGKILL)  # so that it takes no 5 seconds
    deadline, found = time.monotonic() + 60, []
    while not found and time.monotonic() < deadline:
        found = [*sampling.advance()]
        time.sleep(0.05)

    [event] = found
    assert event == Examined(launcher="node-a", round=3, rank=4, text="")
    sampling.examine(3, 4)
    assert sampling.pids == []
    sampling.end()
