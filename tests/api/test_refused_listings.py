"""A provider that refuses to list machines stops one cluster, not the server."""

import pytest
from created_calls import Lab, group

from holdfast.decisions.cluster_policy import ClusterPolicy
from holdfast.model.errors import ProviderError


def failure(lab: Lab) -> str | None:
    return lab.call("DescribeCluster", ClusterName="lab").get("FailureMessage")


@pytest.fixture
def lab(tmp_path):
    lab = Lab(f"sqlite:///{tmp_path}/clusters.db")
    yield lab
    lab.database.close()


def test_a_refused_listing_is_reported_once_and_tried_again(lab) -> None:
    lab.create(group("gpu", 1))
    lab.groups.calls.failing["machines"] = ProviderError("not authorized to list lab/gpu")
    for _ in range(3):
        lab.reconciler.wake("lab")
        lab.reconciler.step()
    assert lab.reported == ["lab/gpu: not authorized to list lab/gpu"]
    assert (lab.status(), lab.listed()) == ("Creating", [])
    assert failure(lab) == "gpu: not authorized to list lab/gpu"

    lab.groups.calls.failing.clear()
    lab.reconciler.wake("lab")
    lab.settle()
    assert (lab.status(), len(lab.listed())) == ("InService", 1)
    assert failure(lab) is None


def test_a_cluster_in_service_keeps_its_nodes_while_they_cannot_be_listed(lab) -> None:
    lab.create(group("gpu", 2))
    lab.settle()
    nodes = lab.listed()
    lab.groups.calls.failing["machines"] = ProviderError("not authorized to list lab/gpu")
    lab.settle()
    assert (lab.status(), lab.listed()) == ("InService", nodes)
    assert failure(lab) == "gpu: not authorized to list lab/gpu"

    lab.groups.calls.failing.clear()
    lab.settle()
    assert failure(lab) is None


def test_a_listing_that_stays_refused_ends_the_creation_with_its_reason(lab) -> None:
    lab.create(group("gpu", 1))
    lab.groups.calls.failing["machines"] = ProviderError("not authorized to list lab/gpu")
    lab.settle()
    lab.late.late = ClusterPolicy().provision_timeout
    lab.settle()

    assert (lab.status(), lab.listed()) == ("Failed", [])
    assert failure(lab) == "gpu: timed out waiting for nodes; not authorized to list lab/gpu"


def test_a_group_of_somebody_else_fails_the_creation_and_may_be_deleted(lab) -> None:
    taken = ProviderError("the group lab/gpu is not Holdfast's; choose another name")
    lab.groups.calls.failing |= {"machines": taken, "ensure": taken}
    lab.create(group("gpu", 1))
    lab.settle()
    assert (lab.status(), failure(lab)) == ("Failed", f"gpu: {taken}")

    lab.call("DeleteCluster", ClusterName="lab")
    lab.settle()
    assert lab.records.names() == []


def test_a_refusal_is_over_when_nothing_is_left_to_do(lab) -> None:
    lab.create(group("gpu", 1), NodeProvisioningMode="Continuous")
    lab.settle()
    [node] = lab.listed()
    lab.groups.calls.failing["scale"] = ProviderError("group lab/gpu launches nothing")
    lab.groups.remove("lab/gpu", [node["InstanceId"]])
    lab.settle()
    lab.call("UpdateCluster", ClusterName="lab", InstanceGroups=[group("gpu", 0)])
    lab.settle()

    assert (lab.status(), failure(lab)) == ("InService", None)


def test_a_refusal_is_shown_until_it_is_over(lab) -> None:
    lab.create(group("gpu", 1), NodeProvisioningMode="Continuous")
    lab.settle()
    lab.groups.calls.failing["scale"] = ProviderError("group lab/gpu launches nothing")
    [node] = lab.listed()
    lab.groups.remove("lab/gpu", [node["InstanceId"]])
    lab.settle()
    assert (lab.status(), failure(lab)) == ("InService", "gpu: group lab/gpu launches nothing")

    lab.groups.calls.failing.clear()
    lab.settle()
    assert (failure(lab), len(lab.listed())) == (None, 1)
