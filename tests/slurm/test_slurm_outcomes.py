"""The table of final states is whole, and the page shows all of it."""

import pytest
from final_states import FAULTS, recorded

from tools.slurm_outcomes import TITLES, rows

OLD, NEW = "22.05", "24.11"
ON_ONE = {"partition", "power-loss"}
"""Played on 22.05 alone: 24.11 may call the neighbor of a dead node down, too, and leave it so."""


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_was_played_on_the_versions_that_are_named_for_it(fault: str) -> None:
    assert recorded()[fault].keys() == ({OLD} if fault in ON_ONE else {OLD, NEW})


def test_the_page_has_a_line_for_every_outcome() -> None:
    lines = list(rows())

    assert {len(line) for line in lines} == {len(TITLES)}
    assert [line[0] for line in lines if OLD in line[1]] == [*FAULTS.values()]
    assert recorded().keys() == FAULTS.keys()


def test_no_job_is_lost_and_no_node_is_left_closed_but_where_nobody_could_repair_it() -> None:
    ended = {"killed-process", "no-retries"}
    closed = {"partition", "fault-while-completing", "provider-fails", "prolog-while-resumed"}
    for fault, versions in recorded().items():
        for outcome in versions.values():
            assert (outcome["job"] in ("RUNNING", "COMPLETED")) is (fault not in ended)
            is_open = not outcome["node"] or outcome["node"].endswith("open")
            assert is_open is (fault not in closed)
