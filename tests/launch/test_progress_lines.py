"""What the coordinator prints about a job."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from holdfast.apps.launch.coordinator import progress_lines
from holdfast.decisions.launch_events import Member
from holdfast.decisions.launch_state import JobRounds, RoundSettings
from holdfast.decisions.restart_rungs import Rung, RungChoice


@pytest.mark.parametrize(("count", "end"), [(16, "n15;"), (17, "n15 and 1 more;")])
def test_a_round_of_many_nodes_is_one_short_line(count: int, end: str) -> None:
    names = [f"n{number}" for number in range(count)]
    nodes = {name: Member(name=name, address="", port=1, slots=8) for name in names}
    before = JobRounds(since=datetime.now(UTC))
    after = replace(before, round=1, members=nodes, active=nodes)

    [line] = progress_lines(before, after, RoundSettings(nodes=count))

    assert line == f"RoundStarted: round 1 on {', '.join(names[:15])}, {end} hot spares: 0"


def test_a_restart_says_how_long_it_waited_for_accelerators() -> None:
    before = JobRounds(since=datetime.now(UTC))
    choice = RungChoice(Rung.IN_PLACE, "exit code 1")
    history = before.history.with_restart(choice, "n0", before.since)
    after = replace(before, history=history, why=choice.why, waited_s=3.04)
    text = "RanksRestarted: in-place (restarts in place: 1, limit 3): exit code 1"

    assert progress_lines(before, after, RoundSettings()) == [
        f"{text}; waited 3.0 s for GPU memory"
    ]
    assert progress_lines(before, replace(after, waited_s=0.0), RoundSettings()) == [text]
