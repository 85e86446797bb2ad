"""When a launcher samples its ranks, and when it stops."""

import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.apps.launch.options import parse
from holdfast.apps.launch.rank_sampling import RankSampling, StragglerOptions
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


@pytest.mark.samples
def test_a_node_without_samples_says_so_and_takes_no_more(capsys) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    options = StragglerOptions(window=timedelta(milliseconds=1), is_requested=True)
    sampling = RankSampling("node-a", options)
    sampling.begin({0: ended.pid, 1: ended.pid}, NOWHERE)
    deadline = time.monotonic() + 120
    while sampling.next_call() is not None and time.monotonic() < deadline:
        assert sampling.advance() is None
        time.sleep(0.05)

    assert sampling.next_call() is None
    assert sampling.pids == []
    assert "stragglers are not detected: no samples: " in capsys.readouterr().err


def test_a_node_with_too_many_ranks_for_a_message_is_not_sampled() -> None:
    sampling = RankSampling("node-a", StragglerOptions())
    sampling.begin(dict.fromkeys(range(129), 1), NOWHERE)
    assert sampling.next_call() is None
    sampling.begin(dict.fromkeys(range(128), 1), NOWHERE)
    assert sampling.next_call() is not None
    sampling.end()
    assert sampling.next_call() is None
