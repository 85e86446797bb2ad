"""Snapshots of the simulated platform are as new as its world."""

import pytest

from holdfast.adapters.sim.cluster import cluster_view
from holdfast.model.jobs import JobRecord, Placing
from holdfast.model.nodes import NodeRecord
from tests.simulation.fuzz import scenario_of
from tests.simulation.laws import Laws
from tests.simulation.trial import judge


class NewViews(Laws):
    """Laws that also compare each snapshot with one made without earlier ones."""

    def node_put(self, node, before: NodeRecord) -> None:
        self.compare()
        super().node_put(node, before)

    def job_put(self, job, before: JobRecord) -> None:
        self.compare()
        super().job_put(job, before)

    def event_applied(self, scenario_event) -> None:
        self.compare()
        super().event_applied(scenario_event)

    def round_ended(self, what: str, *, is_clean: bool) -> None:
        self.compare()
        super().round_ended(what, is_clean=is_clean)

    def compare(self) -> None:
        view = cluster_view(self.world)
        for node in self.world.nodes.values():
            node.last_view = None
        assert view == cluster_view(self.world)


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("placing", Placing)
def test_a_snapshot_is_what_it_would_be_without_earlier_ones(placing, pairs) -> None:
    for seed in (1, 2, 3, 4, 5, 7, 8, 9):
        judge(scenario_of(seed, placing, pairs=pairs), NewViews())
