"""Scheduler configurations and compute quotas through the API."""

from datetime import timedelta

import pytest
from api_calls import ADA
from created_calls import Lab, group

from holdfast.model.errors import BackendError, ProviderError

P5 = "ml.p5.48xlarge"
GPU = "nvidia.com/gpu"
WHOLE = {"InstanceType": P5, "Count": 1}
CONFIG = {
    "PriorityClasses": [{"Name": "training", "Weight": 90}, {"Name": "batch", "Weight": 10}],
    "FairShare": "Enabled",
}


@pytest.fixture
def lab(tmp_path):
    lab = Lab(f"sqlite:///{tmp_path}/clusters.db")
    lab.create(group("gpu", 1))
    lab.settle()
    yield lab
    lab.database.close()


def quota(lab, team: str = "red", *resources, name: str = "", config=None, **more):
    target = {"TeamName": team, "FairShareWeight": more.pop("weight", 0)}
    return {
        "Name": name or f"quota-{team}",
        "ClusterArn": lab.arn(),
        "ComputeQuotaConfig": {
            "ComputeQuotaResources": [*(resources or (WHOLE,))],
            **(config or {}),
        },
        "ComputeQuotaTarget": target,
        **more,
    }


def created(lab, team: str = "red", *resources, **more) -> str:
    answer = lab.call("CreateComputeQuota", **quota(lab, team, *resources, **more))
    assert answer["ComputeQuotaArn"].endswith(f":compute-quota/{answer['ComputeQuotaId']}")
    return answer["ComputeQuotaId"]


def scheduler(lab, config=None, name: str = "policy") -> str:
    answer = lab.call(
        "CreateClusterSchedulerConfig",
        Name=name,
        ClusterArn=lab.arn(),
        SchedulerConfig=CONFIG if config is None else config,
    )
    return answer["ClusterSchedulerConfigId"]


def described(lab, quota_id: str):
    return lab.call("DescribeComputeQuota", ComputeQuotaId=quota_id)


def config_of(lab, config_id: str):
    return lab.call("DescribeClusterSchedulerConfig", ClusterSchedulerConfigId=config_id)


def step(lab) -> None:
    lab.policy_reconciler.step()


def test_a_quota_is_described_and_becomes_a_queue(lab) -> None:
    sharing = {"ResourceSharingConfig": {"Strategy": "LendAndBorrow", "BorrowLimit": 25}}
    red = created(lab, weight=3, config=sharing, Description="of red")
    found = described(lab, red)
    assert (found["Status"], found["ComputeQuotaVersion"]) == ("Creating", 1)
    assert found["CreatedBy"]["IamIdentity"]["Arn"].endswith(":user/ada")
    step(lab)

    found = described(lab, red)
    assert (found["Status"], found["ActivationState"]) == ("Created", "Enabled")
    assert (found["Description"], found["ClusterArn"]) == ("of red", lab.arn())
    assert found["ComputeQuotaConfig"]["ResourceSharingConfig"] == sharing["ResourceSharingConfig"]
    queue = lab.queues.queues[red]
    [flavor] = queue.flavors
    assert (flavor.nominal[GPU], flavor.borrowing[GPU], queue.weight) == (8, 2, None)
    step(lab)
    assert described(lab, red)["Status"] == "Created"


def test_a_scheduler_config_sets_priorities_weights_and_idle_compute(lab) -> None:
    red = created(lab, weight=3)
    config = scheduler(lab, {**CONFIG, "IdleResourceSharing": "Enabled"})
    step(lab)

    found = config_of(lab, config)
    assert found["Status"] == "Created"
    assert set(found["StatusDetails"]) == {"PriorityClasses", "FairShare", "IdleResourceSharing"}
    assert found["SchedulerConfig"]["PriorityClasses"] == CONFIG["PriorityClasses"]
    assert lab.queues.priorities[config] == {"training": 90, "batch": 10}
    assert lab.queues.queues[red].weight == 3
    [idle] = lab.queues.idle[config]
    assert idle.nominal[GPU] == 3 * 8

    changed = {"FairShare": "Disabled", "PriorityClasses": [{"Name": "x", "Weight": 1}]}
    answer = lab.call(
        "UpdateClusterSchedulerConfig",
        ClusterSchedulerConfigId=config,
        TargetVersion=1,
        SchedulerConfig=changed,
    )
    assert answer["ClusterSchedulerConfigVersion"] == 2
    assert config_of(lab, config)["Status"] == "Updating"
    step(lab)
    step(lab)
    assert config_of(lab, config)["Status"] == "Updated"
    assert lab.queues.priorities[config] == {"x": 1}
    assert (lab.queues.queues[red].weight, lab.queues.idle[config]) == (None, ())


def test_an_update_has_a_new_version_and_others_are_not_kept(lab) -> None:
    red = created(lab)
    step(lab)
    changed = {"ComputeQuotaResources": [{"InstanceType": P5, "Accelerators": 4}]}
    request = {"ComputeQuotaId": red, "ComputeQuotaConfig": changed, "Description": "less"}
    code, message = lab.refused("UpdateComputeQuota", **request, TargetVersion=2)
    assert code == "ConflictException"
    assert "TargetVersion: expected 1, the present version of quota-red, got 2" in message
    assert lab.call("UpdateComputeQuota", **request, TargetVersion=1)["ComputeQuotaVersion"] == 2
    assert described(lab, red)["Status"] == "Updating"
    step(lab)

    found = described(lab, red)
    assert (found["Status"], found["Description"]) == ("Updated", "less")
    assert found["ComputeQuotaConfig"] == changed
    assert lab.queues.queues[red].flavors[0].nominal[GPU] == 4
    code, message = lab.refused("DescribeComputeQuota", ComputeQuotaId=red, ComputeQuotaVersion=1)
    assert code == "ResourceNotFound"
    assert "earlier ones are not kept" in message


def test_a_team_keeps_its_name_and_has_one_quota(lab) -> None:
    red = created(lab)
    target = {"ComputeQuotaId": red, "ComputeQuotaTarget": {"TeamName": "blue"}}
    code, message = lab.refused("UpdateComputeQuota", **target, TargetVersion=1)
    assert (code, "cannot be changed" in message) == ("ValidationException", True)
    for request in (quota(lab, "red", name="other"), quota(lab, "blue", name="quota-red")):
        assert lab.refused("CreateComputeQuota", **request)[0] == "ConflictException"
    scheduler(lab)
    again = {"Name": "b", "ClusterArn": lab.arn(), "SchedulerConfig": {}}
    code, message = lab.refused("CreateClusterSchedulerConfig", **again)
    assert (code, "has the scheduler configuration policy" in message) == (
        "ConflictException",
        True,
    )


def test_a_failure_is_shown_and_tried_again(lab) -> None:
    other = {"InstanceType": "ml.g5.xlarge", "Count": 1}
    red = created(lab, "red", other)
    lab.queues.calls.failing["put_priorities"] = ProviderError("Kueue is not installed")
    config = scheduler(lab)
    step(lab)
    found = described(lab, red)
    assert found["Status"] == "CreateFailed"
    assert found["FailureReason"].startswith("ml.g5.xlarge: the cluster has no such nodes")
    assert config_of(lab, config)["FailureReason"] == "Kueue is not installed"
    lab.queues.calls.failing.clear()
    lab.queues.types["ml.g5.xlarge"] = lab.queues.types[P5]
    step(lab)

    assert described(lab, red)["Status"] == config_of(lab, config)["Status"] == "Created"
    assert "FailureReason" not in described(lab, red)
    lab.queues.types.pop("ml.g5.xlarge")
    step(lab)
    assert described(lab, red)["Status"] == "UpdateFailed"
    assert lab.queues.queues[red]


def test_an_unreachable_cluster_changes_no_status(lab) -> None:
    red = created(lab)
    lab.queues.calls.failing["node_types"] = BackendError("no answer")
    step(lab)
    assert described(lab, red)["Status"] == "Creating"
    assert lab.reported == ["no answer"]
    step(lab)
    assert lab.reported == ["no answer"]


def test_a_deleted_quota_stays_until_its_jobs_are_over(lab) -> None:
    red = created(lab)
    step(lab)
    lab.queues.busy.add("red")
    assert "Error" not in lab.call("DeleteComputeQuota", ComputeQuotaId=red)
    for _ in range(2):
        step(lab)
    assert described(lab, red)["Status"] == "Deleting"
    change = {"ComputeQuotaId": red, "TargetVersion": 1}
    assert lab.refused("UpdateComputeQuota", **change)[0] == "ConflictException"
    lab.queues.busy.clear()
    step(lab)

    assert lab.refused("DescribeComputeQuota", ComputeQuotaId=red)[0] == "ResourceNotFound"
    assert lab.refused("DeleteComputeQuota", ComputeQuotaId=red)[0] == "ResourceNotFound"
    assert lab.queues.queues == {}


def test_lists_are_filtered_sorted_and_paged(lab) -> None:
    for number, team in enumerate(("b", "a", "c")):
        lab.late.late = timedelta(seconds=number)
        created(lab, team)
    step(lab)
    created(lab, "d")

    def names(**request):
        found = lab.call("ListComputeQuotas", **request)["ComputeQuotaSummaries"]
        return [one["Name"] for one in found]

    assert sorted(names()) == names(SortBy="Name", SortOrder="Ascending")
    assert names(SortBy="Name") == ["quota-d", "quota-c", "quota-b", "quota-a"]
    assert names(Status="Creating") == ["quota-d"]
    assert names(NameContains="ta-a") == ["quota-a"]
    other = lab.arn()[:-1] + ("1" if lab.arn().endswith("0") else "0")
    assert names(ClusterArn=other) == []
    first = lab.call("ListComputeQuotas", SortBy="ClusterArn", MaxResults=3)
    rest = lab.call("ListComputeQuotas", SortBy="ClusterArn", NextToken=first["NextToken"])
    shown = [*first["ComputeQuotaSummaries"], *rest["ComputeQuotaSummaries"]]
    assert len({one["ComputeQuotaId"] for one in shown}) == 4
    assert shown[0]["ComputeQuotaConfig"]["ComputeQuotaResources"] == [WHOLE]
    scheduler(lab)
    [found] = lab.call("ListClusterSchedulerConfigs")["ClusterSchedulerConfigSummaries"]
    assert (found["Name"], found["Status"]) == ("policy", "Creating")


def test_a_cluster_with_policies_is_not_deleted(lab) -> None:
    red = created(lab)
    step(lab)
    code, message = lab.refused("DeleteCluster", ClusterName="lab")
    assert code == "ConflictException"
    assert "compute quotas: quota-red; delete them first" in message
    lab.call("DeleteComputeQuota", ComputeQuotaId=red)
    step(lab)
    lab.call("DeleteCluster", ClusterName="lab")
    assert lab.refused("CreateComputeQuota", **quota(lab))[0] == "ConflictException"
    lab.settle()
    assert lab.records.names() == []


def test_policies_survive_a_restart(lab) -> None:
    red = created(lab)
    lab.restart()
    step(lab)

    assert described(lab, red)["Status"] == "Created"
    operations = [one["operation"] for one in lab.audit.lines if one["outcome"] == "accepted"]
    assert operations[-1] == "CreateComputeQuota"


@pytest.mark.parametrize(
    ("resources", "config", "expected"),
    [
        ([{"InstanceType": P5}], {}, f"{P5}: expected Count, Accelerators, VCpu, MemoryInGiB"),
        ([{**WHOLE, "VCpu": 1}], {}, f"{P5}: Count is whole instances; omit VCpu"),
        ([WHOLE, WHOLE], {}, f"ComputeQuotaConfig.ComputeQuotaResources: {P5} is duplicated"),
        (
            [{
                "InstanceType": P5,
                "Accelerators": 1,
                "AcceleratorPartition": {"Type": "mig-1g.5gb", "Count": 1},
            }],
            {},
            "expected Accelerators or AcceleratorPartition",
        ),
        (
            [WHOLE],
            {"ResourceSharingConfig": {"Strategy": "LendAndBorrow", "BorrowLimit": 501}},
            "ResourceSharingConfig.BorrowLimit: expected 1 to 500 percent, got 501",
        ),
        (
            [WHOLE],
            {"ResourceSharingConfig": {"Strategy": "Lend", "BorrowLimit": 50}},
            "BorrowLimit: the Strategy is Lend, which does not borrow; omit it",
        ),
        (
            [WHOLE],
            {
                "ResourceSharingConfig": {
                    "Strategy": "DontLend",
                    "AbsoluteBorrowLimits": [WHOLE],
                }
            },
            "AbsoluteBorrowLimits: the Strategy is DontLend, which does not borrow; omit it",
        ),
    ],
)  # fmt: skip
def test_a_quota_that_cannot_be_kept_is_refused(lab, resources, config, expected) -> None:
    request = quota(lab, "red", *resources, config=config)
    code, message = lab.refused("CreateComputeQuota", **request)

    assert code == "ValidationException"
    assert "ComputeQuotaConfig." in message
    assert expected in message
    assert lab.policies.all() == []


def test_a_quota_of_nothing_a_double_class_and_tags_are_refused(lab) -> None:
    request = quota(lab)
    request["ComputeQuotaConfig"] = {}
    assert "expected the compute of one instance" in lab.refused("CreateComputeQuota", **request)[1]
    double = {"PriorityClasses": [{"Name": "a", "Weight": 1}, {"Name": "a", "Weight": 2}]}
    request = {"Name": "p", "ClusterArn": lab.arn(), "SchedulerConfig": double}
    code, message = lab.refused("CreateClusterSchedulerConfig", **request)
    assert (code, "PriorityClasses: a is duplicated" in message) == ("ValidationException", True)
    tagged = quota(lab, Tags=[{"Key": "a", "Value": "b"}])
    assert "Tags is not supported" in lab.refused("CreateComputeQuota", ADA, **tagged)[1]


def test_a_server_without_kubernetes_says_so(lab) -> None:
    lab.policies = None
    lab.protocol = lab.served()

    code, message = lab.refused("ListComputeQuotas")
    assert code == "ValidationException"
    assert "need Kueue on Kubernetes; serve the cluster with --platform kubernetes" in message
    lab.call("DeleteCluster", ClusterName="lab")
