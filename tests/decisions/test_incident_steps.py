"""What an operator does next about an incident."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from holdfast.decisions.attention import Attention, Topic
from holdfast.decisions.checkpoint_incidents import next_steps as checkpoint_steps
from holdfast.decisions.incident_steps import FleetState, next_steps
from holdfast.model.incidents import Incident
from holdfast.model.nodes import Phase
from holdfast.model.set_aside import SetAside

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
OPEN = Incident(
    id="i",
    node="n1",
    provider_id="p1",
    reason="Xid",
    remedy="replace",
    detected_at=NOW,
    quarantined_at=NOW,
)
ASIDE = SetAside(name="s", path="/c.set-aside/s", why="w", at=NOW, folder="/c", state="damaged")


def waits(node: str) -> Attention:
    return Attention(
        topic=Topic.REPAIR_WAITS, fleet="f", node=node, since=NOW, what=f"{node}: waits", next="do"
    )


ACTIVE = FleetState(is_active=True, phases={"n1": Phase.REPLACING})


@pytest.mark.parametrize(
    ("incident", "fleet", "steps"),
    [
        (
            replace(OPEN, released_at=NOW, successor="n2", check_remarks="no nccl"),
            FleetState(is_active=False, attention=[waits("n1")]),
            ("no action required: n2 is schedulable", "parts of its check did not run: no nccl"),
        ),
        (replace(OPEN, released_at=NOW), ACTIVE, ("no action required: n1 is schedulable",)),
        (OPEN, FleetState(is_active=False), ("its run has ended, so nothing repairs the node",)),
        (OPEN, ACTIVE, ("no action required yet: n1 is replacing",)),
        (OPEN, FleetState(is_active=True), ("no action required yet: waiting for n1",)),
        (
            replace(OPEN, successor="n2"),
            replace(ACTIVE, phases={"n1": Phase.REPLACING, "n2": Phase.JOINING}),
            ("no action required yet: n2 is joining",),
        ),
        (
            OPEN,
            replace(ACTIVE, is_breaker_open=True, pauses={"n1": "cable"}, attention=[waits("n1")]),
            ("n1: waits; do",),
        ),
        (
            OPEN,
            replace(ACTIVE, is_breaker_open=True, pauses={"n1": "cable"}, attention=[waits("n9")]),
            ("repairs on n1 are paused: cable; to resume them, run: holdfast nodes unhold n1",),
        ),
        (
            OPEN,
            replace(ACTIVE, is_breaker_open=True),
            (
                "the circuit breaker has paused all repairs: inspect the nodes, then run: "
                "holdfast nodes reset-breaker",
            ),
        ),
        (replace(OPEN, node="", checkpoint=ASIDE), ACTIVE, checkpoint_steps(ASIDE)),
        (replace(OPEN, node=""), ACTIVE, ("read the evidence",)),
    ],
)
def test_the_most_urgent_step_counts(incident, fleet, steps) -> None:
    assert next_steps(incident, fleet) == steps


def test_a_node_that_vanished_is_looked_for_at_its_provider() -> None:
    [step] = next_steps(replace(OPEN, vanished_at=NOW), ACTIVE)

    assert step.endswith("at the provider")
