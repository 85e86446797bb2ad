"""What the coordinator prints about a job."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from holdfast.apps.launch.coordinator import progress_lines
from holdfast.decisions.launch_events import Member
from holdfast.decisions.launch_rounds import JobRounds, RoundSettings


@pytest.mark.parametrize(("count", "end"), [(16, "n15;"), (17, "n15 and 1 more;")])
def test_a_round_of_many_nodes_is_one_short_line(count: int, end: str) -> None:
    names = [f"n{number}" for number in range(count)]
    nodes = {name: Member(name=name, address="", port=1, slots=8) for name in names}
    before = JobRounds(since=datetime.now(UTC))
    after = replace(before, round=1, members=nodes, active=nodes)

    [line] = progress_lines(before, after, RoundSettings(nodes=count))

    assert line == f"RoundStarted: round 1 on {', '.join(names[:15])}, {end} hot spares: 0"
