"""Software of groups is updated at the times of their schedules."""

from datetime import UTC, datetime, timedelta

import pytest
from created_calls import Lab, group

from holdfast.api.desired_groups import changed_group, desired_group
from holdfast.api.group_requests import resized

DAY = timedelta(days=1)
ROLLING = {
    "RollingUpdatePolicy": {"MaximumBatchSize": {"Type": "CAPACITY_PERCENTAGE", "Value": 50}},
    "WaitIntervalInSeconds": 0,
}


def schedule(at: datetime, **more) -> dict[str, object]:
    """A schedule with one time a year."""
    expression = f"cron({at.minute} {at.hour} {at.day} {at.month} ? *)"
    return {"ScheduleExpression": expression, **more}


@pytest.fixture
def lab(tmp_path):
    lab = Lab(f"sqlite:///{tmp_path}/clusters.db")
    lab.nodes.looked_after = True
    yield lab
    lab.database.close()


@pytest.fixture
def due() -> datetime:
    """A time two days ahead, never on the 29th of February."""
    return datetime.now(UTC).replace(hour=12, minute=30) + 2 * DAY


def shown(lab):
    [found] = lab.call("DescribeCluster", ClusterName="lab")["InstanceGroups"]
    return found


def reach(lab, moment: datetime) -> None:
    lab.late.late = moment - datetime.now(UTC)


def ids(lab):
    return {one["InstanceId"] for one in lab.listed()}


def test_an_update_runs_at_its_time_and_in_batches(lab, due) -> None:
    config = schedule(due, DeploymentConfig=ROLLING)
    lab.create(group("gpu", 3, ScheduledUpdateConfig=config, ImageId="ami-00000001"))
    lab.settle()
    assert shown(lab)["ScheduledUpdateConfig"] == config
    before = ids(lab)
    reach(lab, due - timedelta(minutes=2))
    lab.settle()
    assert (lab.status(), ids(lab)) == ("InService", before)

    reach(lab, due + timedelta(minutes=2))
    lab.reconciler.step()
    assert lab.status() == "SystemUpdating"
    batch = shown(lab)["ActiveSoftwareUpdateConfig"]["RollingUpdatePolicy"]["MaximumBatchSize"]
    assert batch == {"Type": "INSTANCE_COUNT", "Value": 2}
    lab.settle(rounds=40)

    assert lab.status() == "InService"
    assert not ids(lab) & before
    assert shown(lab)["SoftwareUpdateStatus"] == "Succeeded"
    assert shown(lab)["CurrentImageId"] == "ami-00000001"
    assert sum("Scheduled UpdateClusterSoftware" in one for one in lab.events()) == 1
    reach(lab, due + timedelta(minutes=30))
    after = ids(lab)
    lab.settle()
    assert ids(lab) == after


def test_a_run_that_a_stopped_server_missed_is_skipped(lab, due) -> None:
    lab.create(group("gpu", 2, ScheduledUpdateConfig=schedule(due)))
    lab.settle()
    before = ids(lab)
    lab.restart()
    reach(lab, due + timedelta(hours=2))
    lab.settle()

    assert (lab.status(), ids(lab)) == ("InService", before)
    found = lab.call("ListClusterEvents", ClusterName="lab")["Events"]
    skipped = [one["EventLevel"] for one in found if "update of IG gpu" in one["Description"]]
    assert skipped == ["Warn"]


def test_an_update_of_the_cluster_changes_and_removes_a_schedule(lab, due) -> None:
    lab.create(group("gpu", 1, ScheduledUpdateConfig=schedule(due)))
    lab.settle()
    later = schedule(due + DAY)
    changed = group("gpu", 1, ScheduledUpdateConfig=later)
    lab.call("UpdateCluster", ClusterName="lab", InstanceGroups=[changed])
    lab.settle()
    before = ids(lab)
    reach(lab, due + timedelta(minutes=1))
    lab.settle()
    assert (shown(lab)["ScheduledUpdateConfig"], ids(lab)) == (later, before)
    request = resized(shown(lab), 2)
    assert request["ScheduledUpdateConfig"] == later
    reach(lab, datetime.now(UTC))

    lab.call("UpdateCluster", ClusterName="lab", InstanceGroups=[group("gpu", 1)])
    lab.settle()
    reach(lab, due + DAY + timedelta(minutes=1))
    lab.settle()
    assert "ScheduledUpdateConfig" not in shown(lab)
    assert ids(lab) == before


def test_a_failed_change_brings_the_former_schedule_back(lab, due) -> None:
    lab.create(group("gpu", 1, ScheduledUpdateConfig=schedule(due)))
    lab.settle()
    before = ids(lab)
    lab.groups.broken.add(("lab/gpu", 0))
    changed = group("gpu", 2, ScheduledUpdateConfig=schedule(due + DAY))
    lab.call("UpdateCluster", ClusterName="lab", InstanceGroups=[changed])
    lab.settle(rounds=30)
    assert shown(lab)["ScheduledUpdateConfig"] == schedule(due)
    lab.groups.broken.clear()
    reach(lab, due + timedelta(minutes=1))
    lab.settle(rounds=30)

    assert not ids(lab) & before
    assert lab.status() == "InService"


def test_a_change_keeps_a_run_that_is_due_unless_its_times_change(due) -> None:
    def requested(at: datetime, now: datetime, **more):
        spec = group("gpu", 1, ScheduledUpdateConfig=schedule(at, **more))
        return desired_group("lab", "uid", spec, {}, now, repairs=True)

    due = due.replace(second=0, microsecond=0)
    before = requested(due, due - DAY)
    late = due + timedelta(minutes=1)
    same = changed_group(before, requested(due, late, DeploymentConfig=ROLLING))
    other = changed_group(before, requested(due + DAY, late))

    assert same.schedule.next_at == due
    assert same.schedule.deployment.batch.value == 50
    assert other.schedule.next_at == due + DAY


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"ScheduleExpression": "rate(1 day)"}, "ScheduleExpression: expected cron(MINUTE HOUR"),
        (
            {"ScheduleExpression": "cron(0 3 ? * SUN 2021)"},
            "ScheduleExpression: cron(0 3 ? * SUN 2021) has no time after now",
        ),
        (
            {
                "ScheduleExpression": "cron(0 3 ? * SUN *)",
                "DeploymentConfig": {
                    "RollingUpdatePolicy": {
                        "MaximumBatchSize": {"Type": "CAPACITY_PERCENTAGE", "Value": 101}
                    }
                },
            },
            "ScheduledUpdateConfig.DeploymentConfig.RollingUpdatePolicy.MaximumBatchSize: a batch "
            "of 101 % exceeds 100 %",
        ),
    ],
)
def test_a_schedule_that_cannot_be_kept_is_refused(lab, config, expected) -> None:
    groups = [group("gpu", ScheduledUpdateConfig=config)]
    code, message = lab.refused("CreateCluster", ClusterName="lab", InstanceGroups=groups)

    assert code == "ValidationException"
    assert "InstanceGroups: gpu: ScheduledUpdateConfig." in message
    assert expected in message


def test_alarms_need_a_source(lab) -> None:
    alarms = {"AutoRollbackConfiguration": [{"AlarmName": "loss"}]}
    config = {"ScheduleExpression": "cron(0 3 ? * SUN *)", "DeploymentConfig": alarms}
    lab.create(group("gpu", 1, ScheduledUpdateConfig=config))
    lab.has_alarms = False
    lab.protocol = lab.served()
    request = {"InstanceGroups": [group("gpu", 1, ScheduledUpdateConfig=config)]}
    code, message = lab.refused("CreateCluster", ClusterName="other", **request)

    assert code == "ValidationException"
    assert message.startswith("InstanceGroups: gpu: ScheduledUpdateConfig.DeploymentConfig.AutoR")
