"""Clusters whose creation fails, or whose provider is away for a while."""

from datetime import timedelta

import pytest
from created_calls import Lab, group

from holdfast.model.errors import BackendError, ProviderError, RetryLater


@pytest.fixture
def lab(tmp_path):
    lab = Lab(f"sqlite:///{tmp_path}/clusters.db")
    yield lab
    lab.database.close()


def test_a_creation_that_fails_takes_its_machines_away_and_says_why(lab) -> None:
    lab.groups.broken.add(("lab/gpu", 0))
    lab.create(group("gpu", 2), group("cpu", 1))
    lab.settle()

    described = lab.call("DescribeCluster", ClusterName="lab")
    assert described["ClusterStatus"] == "Failed"
    assert "its script ended with 1" in described["FailureMessage"]
    assert lab.listed() == []
    assert not any(lab.groups.members.values())
    failed = [text for text in lab.events() if "failed" in text]
    assert any("its script ended with 1" in text for text in failed)
    lab.call("DeleteCluster", ClusterName="lab")
    lab.settle()
    assert lab.records.names() == []


def test_a_failed_cluster_may_be_mended_by_an_update(lab) -> None:
    lab.groups.broken.add(("lab/gpu", 0))
    lab.create()
    lab.settle()
    lab.groups.broken.clear()
    lab.call("UpdateCluster", ClusterName="lab", InstanceGroups=[group()])
    lab.settle()

    assert (lab.status(), lab.statuses()) == ("InService", ["Running"] * 2)


def test_a_continuous_cluster_is_in_service_and_tries_again(lab) -> None:
    lab.groups.broken.add(("lab/gpu", 0))
    lab.create(group("gpu", 1), group("cpu", 1), NodeProvisioningMode="Continuous")
    lab.settle()

    assert lab.status() == "InService"
    assert lab.statuses() == ["Failure", "Running"]
    [failed] = [one for one in lab.listed() if one["InstanceStatus"]["Status"] == "Failure"]
    assert failed["InstanceStatus"]["Message"] == "its script ended with 1"
    lab.groups.broken.clear()
    lab.settle()
    assert lab.statuses() == ["Failure", "Running"]
    lab.late.late = timedelta(minutes=10)
    lab.settle()
    assert lab.statuses() == ["Running", "Running"]
    assert failed["InstanceId"] not in {one["InstanceId"] for one in lab.listed()}


def test_nodes_that_never_come_end_a_creation(lab) -> None:
    lab.create()
    for _ in range(3):
        lab.reconciler.step()  # the machines are ordered, and do not boot
    assert lab.status() == "Creating"
    lab.late.late = timedelta(hours=3)
    lab.settle()

    assert lab.status() == "Failed"
    assert (
        "timed out waiting for nodes"
        in lab.call("DescribeCluster", ClusterName="lab")["FailureMessage"]
    )


def test_what_the_owner_of_the_machines_refuses_fails_the_creation(lab) -> None:
    lab.groups.calls.failing["ensure"] = ProviderError("not allowed to do that")
    lab.create()
    lab.settle()

    described = lab.call("DescribeCluster", ClusterName="lab")
    assert described["ClusterStatus"] == "Failed"
    assert described["FailureMessage"] == "gpu: not allowed to do that"


@pytest.mark.parametrize("call", ["ensure", "machines", "scale"])
@pytest.mark.parametrize(
    "error", [BackendError("away"), RetryLater("slow down", after=timedelta(seconds=30))]
)
def test_an_owner_that_is_away_is_asked_again_later(lab, call, error) -> None:
    lab.groups.calls.failing[call] = error
    lab.create()
    lab.settle()
    assert lab.status() == "Creating"
    assert lab.reported == [f"lab: {error}"]
    lab.groups.calls.failing.clear()
    lab.late.late = timedelta(seconds=31)
    lab.settle()

    assert (lab.status(), lab.statuses()) == ("InService", ["Running"] * 2)
