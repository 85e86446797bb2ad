"""Newer images are installed on idle nodes, at a time that people can change."""

from datetime import UTC, datetime, timedelta

import pytest
from created_calls import Lab, group

from holdfast.api.group_requests import resized
from holdfast.model.errors import ProviderError
from holdfast.model.node_settings import KubernetesConfig
from holdfast.model.pod_demand import NodeLoad, NodeShape, PodDemand

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
OLD, NEW = "ami-00000001", "ami-00000002"


@pytest.fixture
def lab(tmp_path):
    lab = Lab(f"sqlite:///{tmp_path}/clusters.db")
    lab.nodes.looked_after = True
    yield lab
    lab.database.close()


def config(strategy: str = "WhenIdle", **more):
    return {"AutoPatchConfig": {"PatchingStrategy": strategy, **more}}


def shown(lab):
    [found] = lab.call("DescribeCluster", ClusterName="lab")["InstanceGroups"]
    return found


def ids(lab) -> set[str]:
    return {one["InstanceId"] for one in lab.listed()}


def busy(lab, *machines: str) -> None:
    """The nodes of all machines exist; pods run on these."""
    members = [one.id for found in lab.groups.members.values() for one in found]
    for one in members:
        lab.kubernetes.nodes.setdefault(one, KubernetesConfig())
    lab.pods.found = PodDemand(
        nodes={
            one: NodeLoad(
                shape=NodeShape(), is_open=True, pods=("ns/p",) if one in machines else ()
            )
            for one in members
        }
    )


def pass_time(lab, late: timedelta, *machines: str) -> None:
    lab.late.late = late
    for _ in range(4):
        busy(lab, *machines)
        lab.settle(rounds=6)


def tainted(lab) -> set[str]:
    return {key for key, one in lab.kubernetes.nodes.items() if one.taints} & ids(lab)


def created(lab, strategy: str = "WhenIdle", count: int = 3, **more) -> set[str]:
    lab.create(group("gpu", count, **config(strategy, **more)))
    lab.settle()
    assert shown(lab)["ImageVersionStatus"] == "UpToDate"
    lab.images.newest = NEW
    pass_time(lab, timedelta(0))
    return ids(lab)


def test_a_patch_is_announced_and_installed_on_idle_nodes_a_day_later(lab) -> None:
    before = created(lab, IdleWaitWindowInSeconds=7200)
    found = shown(lab)
    assert found["ImageVersionStatus"] == "UpdateAvailable"
    assert found["CurrentImageId"] == OLD
    at = found["AutoPatchConfig"]["CurrentPatchSchedule"]["NextPatchDate"]
    assert DAY - HOUR < at - datetime.now(UTC) < DAY + HOUR
    assert found["AutoPatchConfig"]["IdleWaitWindowInSeconds"] == 7200
    pass_time(lab, DAY - HOUR)
    assert (ids(lab), tainted(lab)) == (before, set())

    one = min(before)
    pass_time(lab, DAY + HOUR, one)
    assert lab.status() == "SystemUpdating"
    assert ids(lab) & before == {one} == tainted(lab)
    lab.restart()
    pass_time(lab, DAY + 2 * HOUR)
    assert not ids(lab) & before
    assert (lab.status(), shown(lab)["CurrentImageId"]) == ("InService", NEW)
    assert shown(lab)["ImageVersionStatus"] == "UpToDate"
    assert "CurrentPatchSchedule" not in shown(lab)["AutoPatchConfig"]
    after = ids(lab)
    pass_time(lab, 30 * DAY)
    assert (ids(lab), tainted(lab)) == (after, set())


def test_nodes_that_stay_busy_keep_their_image_and_are_opened_again(lab) -> None:
    before = created(lab)
    one = min(before)
    pass_time(lab, DAY + HOUR, one)
    pass_time(lab, DAY + 23 * HOUR, one)
    assert (lab.status(), tainted(lab)) == ("SystemUpdating", {one})
    pass_time(lab, 2 * DAY + 2 * HOUR, one)

    assert (lab.status(), tainted(lab)) == ("InService", set())
    assert ids(lab) & before == {one}
    assert any("1 nodes did not become idle" in said for said in lab.events())


def test_when_all_idle_patches_all_or_none(lab) -> None:
    before = created(lab, "WhenAllIdle")
    pass_time(lab, DAY + HOUR, min(before))
    assert (ids(lab), tainted(lab)) == (before, before)
    pass_time(lab, 2 * DAY + 2 * HOUR, min(before))
    assert (ids(lab), tainted(lab), lab.status()) == (before, set(), "InService")

    lab.images.newest = "ami-00000003"
    pass_time(lab, 3 * DAY)
    pass_time(lab, 5 * DAY)
    assert not ids(lab) & before
    assert shown(lab)["CurrentImageId"] == "ami-00000003"


def test_batches_are_kept(lab) -> None:
    size = {"MaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": 1}}
    rolling = {"RollingUpdatePolicy": size, "WaitIntervalInSeconds": 3600}
    before = created(lab, "WhenAllIdle", DeploymentConfig=rolling)
    pass_time(lab, DAY + HOUR)
    assert len(ids(lab) & before) == 2
    assert shown(lab)["AutoPatchConfig"]["DeploymentConfig"] == rolling
    pass_time(lab, DAY + 3 * HOUR)
    assert len(ids(lab) & before) == 1


def test_a_patch_that_fails_is_rolled_back_and_not_tried_again(lab) -> None:
    before = created(lab, count=1)
    lab.groups.broken.add(("lab/gpu", 1))
    pass_time(lab, DAY + HOUR)
    after = ids(lab)
    assert not after & before
    assert (lab.status(), shown(lab)["SoftwareUpdateStatus"]) == ("InService", "RollbackComplete")
    assert shown(lab)["CurrentImageId"] == OLD
    pass_time(lab, 9 * DAY)
    assert ids(lab) == after
    lab.images.newest = "ami-00000003"
    pass_time(lab, 10 * DAY)
    pass_time(lab, 12 * DAY)
    assert shown(lab)["CurrentImageId"] == "ami-00000003"


def test_people_choose_the_time_and_an_update_of_another_field_keeps_it(lab) -> None:
    created(lab)
    at = (datetime.now(UTC) + 9 * DAY).replace(microsecond=0)
    changed = group("gpu", 3, **config(PatchSchedule={"NextPatchDate": at.timestamp()}))
    lab.call("UpdateCluster", ClusterName="lab", InstanceGroups=[changed])
    lab.settle()
    request = resized(shown(lab), 2)
    assert request["AutoPatchConfig"]["PatchingStrategy"] == "WhenIdle"
    lab.call("UpdateCluster", ClusterName="lab", InstanceGroups=[request])
    lab.settle()
    schedule = shown(lab)["AutoPatchConfig"]["CurrentPatchSchedule"]
    assert schedule == {"NextPatchDate": at}
    before = ids(lab)
    pass_time(lab, 8 * DAY)
    assert ids(lab) == before
    pass_time(lab, 9 * DAY + HOUR)
    assert not ids(lab) & before


def test_without_the_field_nothing_is_patched(lab) -> None:
    before = created(lab)
    lab.call("UpdateCluster", ClusterName="lab", InstanceGroups=[group("gpu", 3)])
    lab.settle()
    pass_time(lab, 9 * DAY)

    assert ids(lab) == before
    assert "AutoPatchConfig" not in shown(lab)
    assert "ImageVersionStatus" not in shown(lab)


def test_an_image_that_cannot_be_found_stops_only_the_patches(lab) -> None:
    created(lab)
    lab.images.trouble = ProviderError("no parameter /x")
    lab.call("UpdateCluster", ClusterName="lab", InstanceGroups=[group("gpu", 4, **config())])
    lab.settle()

    assert (lab.status(), len(ids(lab))) == ("InService", 4)
    assert any("no parameter /x" in said for said in lab.reported)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (config("DrainFirst"), "AutoPatchConfig.PatchingStrategy: DrainFirst is not supported"),
        (config(DrainPolicy={"OnDrainTimeout": "Skip"}), "DrainPolicy is not supported"),
        ({**config(), "ImageId": OLD}, "AutoPatchConfig: ImageId is ami-00000001 and fixed"),
        (
            config(PatchSchedule={"NextPatchDate": 1_700_000_000}),
            "PatchSchedule.NextPatchDate: 2023-11-14T22:13:20Z has passed",
        ),
        (config(IdleWaitWindowInSeconds=60), "autoPatchConfig.idleWaitWindowInSeconds"),
    ],
)
def test_what_cannot_be_is_refused(lab, more, expected) -> None:
    code, message = lab.refused(
        "CreateCluster", ClusterName="lab", InstanceGroups=[group("gpu", **more)]
    )
    assert code == "ValidationException"
    assert expected in message
