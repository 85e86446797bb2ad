"""Created clusters of nodes that are there already, as on Kubernetes and Slurm."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from holdfast.apps.api.fleet_clusters import FleetClusters
from holdfast.apps.views.nodes import NodeStatus, node_status
from holdfast.model.clusters import DesiredCluster, DesiredGroup, MachineGroup, MachineState
from holdfast.model.errors import ProviderError
from holdfast.model.nodes import NodeRecord, NodeView, Phase
from holdfast.model.requests import Request, Verb
from holdfast.model.sagemaker import ClusterStatus, InstanceStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GPU = MachineGroup(cluster="lab", name="gpu-workers")


def a_status(number: int, group: str, phase: Phase = Phase.SCHEDULABLE) -> NodeStatus:
    view = NodeView(
        name=f"n{number}",
        provider_id=f"aws:///us-east-1a/i-{number:017x}",
        group=group,
        addresses=(f"10.0.0.{number}", f"n{number}"),
        record=NodeRecord(phase=phase, phase_since=NOW),
    )
    return node_status(view, run="k", notices=(), incidents=())


@dataclass
class FakeFleet:
    name: str = "k"
    requested: list[tuple[str, Request]] = field(default_factory=list)
    first: NodeStatus = field(default_factory=lambda: a_status(1, "gpu workers"))

    def nodes(self) -> list[NodeStatus]:
        return [
            self.first,
            a_status(2, "gpu workers", Phase.REBOOTING),
            a_status(3, "cpu"),
        ]

    def submit(self, node: str, request: Request) -> str:
        self.requested.append((node, request))
        return "" if node == "n1" else "somebody else asked before"

    def incidents(self):
        return ()


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet()


@pytest.fixture
def clusters(fleet) -> FleetClusters:
    return FleetClusters(fleet)


def wanted(count: int, name: str = "gpu-workers") -> DesiredCluster:
    made_of = MachineGroup(cluster="lab", name=name)
    return DesiredCluster(
        name="lab",
        uid="0123456789ab",
        created_at=NOW,
        since=NOW,
        status=ClusterStatus.CREATING,
        groups=(DesiredGroup(made_of=made_of, target=count),),
    )


def test_a_group_is_made_of_the_nodes_that_have_its_name(clusters) -> None:
    clusters.ensure(GPU)
    found = clusters.machines(GPU.key)

    assert [one.name for one in found] == ["n1", "n2"]
    assert {one.state for one in found} == {MachineState.RUNNING}
    assert [one.addresses for one in found] == [("10.0.0.1", "n1"), ("10.0.0.2", "n2")]
    health = clusters.health("lab")
    assert [health[one.id].status for one in found] == [
        InstanceStatus.RUNNING,
        InstanceStatus.PENDING,
    ]


@pytest.mark.parametrize(
    ("count", "name", "is_good"),
    [(2, "gpu-workers", True), (3, "gpu-workers", False), (1, "gpu-workers", False),
     (1, "none", False), (0, "none", True)],
)  # fmt: skip
def test_only_the_nodes_that_are_there_can_be_had(clusters, count, name, is_good) -> None:
    rejections = clusters.rejections(wanted(count, name))

    assert (rejections == []) == is_good
    if not is_good:
        assert f"InstanceCount is {count}, and the instance group {name} has" in rejections[0]


def test_nothing_is_made_or_taken_away(clusters) -> None:
    clusters.ensure(GPU)
    clusters.scale(GPU.key, 2)
    with pytest.raises(ProviderError, match="3 nodes are requested"):
        clusters.scale(GPU.key, 3)
    with pytest.raises(ProviderError, match="cannot be removed"):
        clusters.remove(GPU.key, [clusters.machines(GPU.key)[0].id])


def test_a_deleted_group_lets_its_nodes_go_and_may_come_again(clusters, fleet) -> None:
    clusters.ensure(GPU)
    for _ in range(2):
        clusters.delete(GPU.key)
    assert list(clusters.machines(GPU.key)) == []
    assert len(fleet.nodes()) == 3

    clusters.ensure(GPU)
    assert len(clusters.machines(GPU.key)) == 2


def test_new_software_is_asked_of_whoever_looks_after_the_node(clusters, fleet) -> None:
    first, second = (one.id for one in clusters.machines(GPU.key))
    unknown = "i-0123456789abcdef0"
    assert clusters.renew("lab", [first, second, unknown]) == {first}

    assert [(node, one.verb) for node, one in fleet.requested] == [
        ("n1", Verb.REPLACE),
        ("n2", Verb.REPLACE),
    ]
    assert "no node has the machine" in clusters.submit("lab", unknown, Verb.REBOOT, "ada")


@pytest.mark.parametrize("phase", [Phase.DRAINING, Phase.REPLACING])
def test_a_replacement_that_is_under_way_is_not_requested_again(clusters, fleet, phase) -> None:
    [first, _] = (one.id for one in clusters.machines(GPU.key))
    fleet.first = a_status(1, "gpu workers", phase)

    assert clusters.renew("lab", [first]) == {first}
    assert fleet.requested == []


def test_a_machine_that_took_the_place_of_another_is_younger_than_its_node(clusters, fleet) -> None:
    fleet.first = replace(fleet.first, created_at=NOW)
    before = {one.name: one.launched_at for one in clusters.machines(GPU.key)}
    fleet.first = replace(fleet.first, provider_id="aws:///us-east-1a/i-00000000000000009")
    after = {one.name: one.launched_at for one in clusters.machines(GPU.key)}

    assert before["n1"] == NOW
    assert after["n1"] > before["n2"] == after["n2"]
    assert {one.name: one.launched_at for one in clusters.machines(GPU.key)} == after
