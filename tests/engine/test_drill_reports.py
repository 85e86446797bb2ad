"""Events of drills."""

from datetime import timedelta

from holdfast.engine.drill_reports import DrillReports
from holdfast.model.events import NodeDrillActive
from holdfast.model.nodes import ClusterView
from tests.ports.builders import NOW, a_node
from tests.ports.fakes import FakeEvents

UNTIL = NOW + timedelta(minutes=30)
LATER = NOW + timedelta(minutes=50)
ENDED = NOW + timedelta(minutes=58)


def test_each_drill_is_reported_once_while_it_is_active() -> None:
    events = FakeEvents()
    drills = DrillReports(events)
    for until, now in (
        (None, NOW),
        (UNTIL, NOW),
        (UNTIL, UNTIL - timedelta(microseconds=1)),
        (LATER, UNTIL),
        (LATER, LATER - timedelta(minutes=1)),
        (ENDED, ENDED),
    ):
        drills.report(ClusterView(nodes=(a_node(drill_until=until),)), now)

    name = a_node().name
    assert events.reported == [
        NodeDrillActive(node=name, until=UNTIL),
        NodeDrillActive(node=name, until=LATER),
    ]
