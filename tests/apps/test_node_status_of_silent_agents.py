"""A node whose agent is silent is not shown as healthy, whatever the policy does about it."""

from holdfast.apps.views.nodes import node_status
from holdfast.model.names import Condition, Reason
from tests.ports.builders import NOW, a_node


def test_a_node_with_a_silent_agent_has_the_condition_though_it_stays_in_service() -> None:
    node = a_node(record={"agent_silent_since": NOW})

    status = node_status(node, run="cluster", notices=(), incidents=())

    assert status.conditions == {Condition.AGENT_SILENT: Reason.AGENT_SILENT}
