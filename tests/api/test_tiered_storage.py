"""``TieredStorageConfig`` from the request to the machine groups."""

import pytest
from created_calls import Lab, group

MISSING = "checkpoint_mirror is not set in the configuration of the server"
ENABLE = {"Mode": "Enable", "InstanceMemoryAllocationPercentage": 20}
DISABLE = {"Mode": "Disable"}


@pytest.fixture
def lab(tmp_path):
    lab = Lab(f"sqlite:///{tmp_path}/clusters.db")
    yield lab
    lab.database.close()


def shown(lab):
    return lab.call("DescribeCluster", ClusterName="lab").get("TieredStorageConfig")


def mirrored(lab) -> dict[str, bool]:
    """Whether checkpoints are copied, of each group that the machine provider has."""
    return {key: one.mirrors_checkpoints for key, one in lab.groups.groups.items()}


def update(lab, **request) -> None:
    lab.call("UpdateCluster", ClusterName="lab", **request)
    lab.settle()
    assert lab.status() == "InService"


def test_the_setting_reaches_all_groups_and_is_described(lab) -> None:
    lab.create(group("gpu"), group("cpu", 1), TieredStorageConfig=ENABLE)
    lab.settle()

    assert shown(lab) == ENABLE
    assert mirrored(lab) == {"lab/gpu": True, "lab/cpu": True}

    update(lab, InstanceGroups=[group("gpu", 3), group("new", 1)])
    assert shown(lab) == ENABLE
    assert mirrored(lab) == {"lab/gpu": True, "lab/cpu": True, "lab/new": True}

    update(lab, TieredStorageConfig=DISABLE)
    assert shown(lab) == DISABLE
    assert set(mirrored(lab).values()) == {False}

    update(lab, InstanceGroupsToDelete=["cpu"], TieredStorageConfig={"Mode": "Enable"})
    assert shown(lab) == {"Mode": "Enable"}
    assert mirrored(lab) == {"lab/gpu": True, "lab/new": True}


def test_a_cluster_without_the_setting_copies_nothing(lab) -> None:
    lab.create()
    lab.settle()

    assert shown(lab) is None
    assert mirrored(lab) == {"lab/gpu": False}


def test_a_change_of_the_setting_changes_no_machine(lab) -> None:
    lab.create(group("gpu", 3))
    lab.settle()
    before = lab.listed()

    for tiers in (ENABLE, DISABLE, ENABLE):
        update(lab, TieredStorageConfig=tiers)

    assert lab.listed() == before


def test_a_group_is_rolled_back_without_the_setting_of_its_cluster(lab) -> None:
    lab.create(group("gpu", 3))
    lab.settle()
    scripts = {"SourceS3Uri": "s3://b/new", "OnCreate": "x.sh"}
    lab.groups.broken.add(("lab/gpu", 0))

    grown = group("gpu", 5, LifeCycleConfig=scripts)
    update(lab, InstanceGroups=[grown], TieredStorageConfig=ENABLE)

    described = lab.call("DescribeCluster", ClusterName="lab")
    assert "its script ended with 1" in described["FailureMessage"]
    assert lab.groups.groups["lab/gpu"].scripts is None
    assert (shown(lab), mirrored(lab)) == (ENABLE, {"lab/gpu": True})


@pytest.mark.parametrize("operation", ["CreateCluster", "UpdateCluster"])
def test_a_server_without_a_location_refuses_it(lab, operation) -> None:
    if operation == "UpdateCluster":
        lab.create()
        lab.settle()
    lab.mirror_problem = MISSING
    lab.protocol = lab.served()
    request = {"ClusterName": "lab", "InstanceGroups": [group("gpu", 3)]}

    code, message = lab.refused(operation, **request, TieredStorageConfig=ENABLE)

    assert (code, MISSING in message) == ("ValidationException", True)
    assert message.startswith("TieredStorageConfig: Mode is Enable, but ")
    lab.call(operation, **request, TieredStorageConfig=DISABLE)
    assert shown(lab) == DISABLE


def test_a_server_that_lost_its_location_changes_what_does_not_need_it(lab) -> None:
    lab.create(TieredStorageConfig=ENABLE)
    lab.settle()
    lab.mirror_problem = MISSING
    lab.protocol = lab.served()

    update(lab, InstanceGroups=[group("gpu", 1)])
    assert (len(lab.listed()), shown(lab)) == (1, ENABLE)
    update(lab, TieredStorageConfig=DISABLE)
    assert mirrored(lab) == {"lab/gpu": False}


@pytest.mark.parametrize(
    ("tiers", "why"),
    [
        ({}, "Mode"),
        ({"InstanceMemoryAllocationPercentage": 20}, "Mode"),
        ({"Mode": "enable"}, "Enable"),
        ({"Mode": ""}, "Enable"),
        ({"Mode": None}, "Mode"),
        ({"Mode": ["Enable"]}, "Mode"),
        ({"Mode": "Enable", "InstanceMemoryAllocationPercentage": -1}, "InstanceMemoryAllocation"),
        ({"Mode": "Enable", "InstanceMemoryAllocationPercentage": 101}, "InstanceMemoryAllocation"),
        ({"Mode": "Enable", "InstanceMemoryAllocationPercentage": 1e300}, "InstanceMemory"),
        ({"Mode": "Enable", "InstanceMemoryAllocationPercentage": "20"}, "InstanceMemory"),
        ({"Mode": "Enable", "InstanceMemoryAllocationPercentage": True}, "InstanceMemory"),
        ([], "TieredStorageConfig"),
        ("Enable", "TieredStorageConfig"),
    ],
)
def test_invalid_settings_are_refused(lab, tiers, why) -> None:
    code, message = lab.refused(
        "CreateCluster", ClusterName="lab", InstanceGroups=[group()], TieredStorageConfig=tiers
    )

    assert code in ("ValidationException", "SerializationException")
    assert why.lower() in message.lower()
    assert lab.records.names() == []


@pytest.mark.parametrize("percentage", [0, 100])
def test_the_edges_of_the_percentage_are_accepted(lab, percentage) -> None:
    tiers = {"Mode": "Enable", "InstanceMemoryAllocationPercentage": percentage}
    lab.create(TieredStorageConfig=tiers)

    assert shown(lab) == tiers
