"""Instance groups as EC2 Auto Scaling groups, against moto."""

import base64
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from aws_front import REGION, Cloud, Door, Front, activities, error_response, refused

from holdfast.adapters.providers.aws_calls import Aws
from holdfast.adapters.providers.ec2_machine_groups import Ec2MachineGroups, build
from holdfast.adapters.providers.machine_group_settings import Ec2GroupSettings, Ec2TypeSettings
from holdfast.adapters.providers.settings import AwsSettings
from holdfast.apps.clock import SystemClock
from holdfast.kit.config import parse_table
from holdfast.model.clusters import GroupMachine, LifecycleScripts, MachineGroup, MachineState
from holdfast.model.errors import ConfigError, ProviderError, RetryLater
from holdfast.model.names import MachineTag
from holdfast.ports.clock import Clock
from tests.ports.fakes import FakeClock
from tests.ports.machine_group_contract import GPU, MachineGroupsContract

RUNNING = MachineState.RUNNING
SCRIPTS = LifecycleScripts(source="s3://sagemaker-a/lifecycle", on_create="on create.sh")


class Killed(BaseException):
    """The process ends here."""


class Mortal:
    """The calls of a process that is killed once so many were made; death before one is none."""

    def __init__(self, aws: Aws, made: list[str], lives: int | None) -> None:
        self._aws = aws
        self._made = made
        self._lives = lives
        self.region = aws.region

    def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        answer = self._aws.call(operation, **arguments)
        self._made.append(operation)
        if len(self._made) == self._lives:
            raise Killed
        return answer


class Place:
    """A region of moto, as an owner of groups that has none yet."""

    def __init__(self, cloud: Cloud, front: Front) -> None:
        self.cloud = cloud
        self.front = front
        self.ec2 = cloud.ec2
        self.subnets = [
            one["SubnetId"]
            for one in cloud.ec2.describe_subnets()["Subnets"]
            if one["DefaultForAz"]
        ]
        self.security = cloud.ec2.describe_security_groups()["SecurityGroups"][0]["GroupId"]
        self.settings = Ec2GroupSettings(
            subnets=tuple(self.subnets[:2]),
            image=cloud.image,
            aws=AwsSettings(
                region=REGION, endpoint_url=front.url, read_timeout=timedelta(seconds=20)
            ),
        )
        self.services = [Aws(one, self.settings.aws) for one in ("ec2", "autoscaling", "ssm")]
        self.first = self.settings

    @property
    def groups(self) -> Ec2MachineGroups:
        return self.at(SystemClock())

    def at(self, clock: Clock) -> Ec2MachineGroups:
        return Ec2MachineGroups(*self.services, self.settings, clock)

    def wipe(self) -> None:
        for group in self.all_groups():
            if "/" in group["AutoScalingGroupName"]:
                self.cloud.autoscaling.delete_auto_scaling_group(
                    AutoScalingGroupName=group["AutoScalingGroupName"], ForceDelete=True
                )
        for one in self.ec2.describe_launch_templates()["LaunchTemplates"]:
            self.ec2.delete_launch_template(LaunchTemplateId=one["LaunchTemplateId"])

    def all_groups(self) -> list[dict[str, Any]]:
        return self.cloud.autoscaling.describe_auto_scaling_groups()["AutoScalingGroups"]

    def group(self, key: str = GPU.key) -> dict[str, Any]:
        answer = self.cloud.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[key])
        [found] = answer["AutoScalingGroups"]
        return found

    def template(self, key: str = GPU.key) -> dict[str, Any]:
        answer = self.ec2.describe_launch_template_versions(
            LaunchTemplateName=key, Versions=["$Latest"]
        )
        [found] = answer["LaunchTemplateVersions"]
        return found["LaunchTemplateData"]

    def grown(self, count: int, group: MachineGroup = GPU) -> list[GroupMachine]:
        self.groups.ensure(group)
        self.groups.scale(group.key, count)
        return self.staying(group)

    def staying(self, group: MachineGroup = GPU) -> list[GroupMachine]:
        found = self.groups.machines(group.key)
        return [one for one in found if one.state is not MachineState.LEAVING]


@pytest.fixture(scope="module")
def region(cloud: Cloud, moto: str) -> Iterator[Place]:
    front = Front(moto)
    door = Door(front)
    yield Place(cloud, front)
    door.close()


@pytest.fixture
def place(region: Place) -> Iterator[Place]:
    yield region
    region.front.forget()
    region.settings = region.first
    region.wipe()


@dataclass
class Harness:
    place: Place

    def __post_init__(self) -> None:
        self.groups = self.place.groups

    def settle(self) -> None:
        pass  # moto's machines come and go at once

    def reopened(self) -> Ec2MachineGroups:
        return build(self.place.settings, SystemClock())


class TestEc2MachineGroups(MachineGroupsContract):
    @pytest.fixture
    def harness(self, place: Place) -> Harness:
        return Harness(place)


def tags(place: Place, machine: GroupMachine) -> dict[str, str]:
    answer = place.ec2.describe_instances(InstanceIds=[machine.id])
    [instance] = answer["Reservations"][0]["Instances"]
    return {one["Key"]: one["Value"] for one in instance["Tags"]}


def reported(place: Place, machine: GroupMachine, text: str) -> None:
    """What a machine does at the end of its scripts."""
    place.ec2.create_tags(Resources=[machine.id], Tags=[{"Key": MachineTag.SCRIPTS, "Value": text}])


# what machines are made of


def test_machines_are_what_was_asked_for_and_bear_the_names_of_their_cluster_and_group(place):
    requested = replace(
        GPU,
        spec={"VpcConfig": {"Subnets": place.subnets[2:], "SecurityGroupIds": [place.security]}},
    )
    place.groups.ensure(requested)
    data = place.template()
    place.groups.scale(GPU.key, 1)

    assert data["InstanceType"] == "g5.xlarge"
    assert data["ImageId"] == place.cloud.image
    assert data["SecurityGroupIds"] == [place.security]
    assert data["MetadataOptions"]["HttpTokens"] == "required"
    group = place.group()
    assert group["VPCZoneIdentifier"] == ",".join(place.subnets[2:])
    assert [one["ProcessName"] for one in group["SuspendedProcesses"]] == ["AZRebalance"]
    [machine] = place.staying()
    assert machine.name.endswith(".internal")
    assert machine.addresses == (place.cloud.addresses(machine.id)[0],)
    assert tags(place, machine).items() >= {
        MachineTag.CLUSTER: "lab", MachineTag.GROUP: "gpu", "Name": "lab/gpu"
    }.items()  # fmt: skip


def test_what_a_type_is_given_goes_before_what_is_given_to_all(place):
    images = [one["ImageId"] for one in place.ec2.describe_images()["Images"][1:3]]
    place.settings = replace(
        place.settings,
        instance_profile="node",
        types={"ml.g5.xlarge": Ec2TypeSettings(image=images[0])},
    )

    place.groups.ensure(GPU)
    assert place.template()["ImageId"] == images[0]
    assert place.template()["IamInstanceProfile"] == {"Name": "node"}
    place.groups.ensure(replace(GPU, image=images[1]))
    assert place.template()["ImageId"] == images[1]


def test_a_template_of_the_operator_is_where_ours_begin(place):
    interface = {"DeviceIndex": 0, "InterfaceType": "efa", "Groups": ["sg-89abcdef"]}
    made = place.ec2.create_launch_template(
        LaunchTemplateName="efa",
        LaunchTemplateData={
            "NetworkInterfaces": [interface],
            "UserData": base64.b64encode(b"join").decode(),
            "TagSpecifications": [
                {"ResourceType": "instance", "Tags": [{"Key": "team", "Value": "a"}]},
                {"ResourceType": "volume", "Tags": [{"Key": "team", "Value": "a"}]},
            ],
        },
    )["LaunchTemplate"]
    for name in ("efa", made["LaunchTemplateId"]):
        place.settings = replace(
            place.settings,
            security_groups=("sg-01234567",),
            types={"ml.g5.xlarge": Ec2TypeSettings(launch_template=name)},
        )
        place.groups.ensure(GPU)

        data = place.template()
        assert data["NetworkInterfaces"] == [{**interface, "Groups": ["sg-01234567"]}]
        assert "SecurityGroupIds" not in data
        assert base64.b64decode(data["UserData"]) == b"join"
        assert [one["ResourceType"] for one in data["TagSpecifications"]] == ["instance", "volume"]
        assert {"Key": "team", "Value": "a"} in data["TagSpecifications"][0]["Tags"]
    with pytest.raises(ProviderError, match="has user data"):
        place.groups.ensure(replace(GPU, scripts=SCRIPTS))


def test_disks_threads_and_spot_capacity_are_those_that_were_asked_for(place):
    spec = {
        "InstanceStorageConfigs": [{"EbsVolumeConfig": {"VolumeSizeInGB": n}} for n in (300, 9)],
        "ThreadsPerCore": 1,
        "CapacityRequirements": {"Spot": {}},
    }
    place.groups.ensure(replace(GPU, spec=spec))

    data = place.template()
    disks = {one["DeviceName"]: one["Ebs"]["VolumeSize"] for one in data["BlockDeviceMappings"]}
    assert disks == {"/dev/sdf": 300, "/dev/sdg": 9}
    assert data["CpuOptions"] == {"CoreCount": 2, "ThreadsPerCore": 1}
    assert data["InstanceMarketOptions"] == {"MarketType": "spot"}
    place.groups.ensure(replace(GPU, spec={"ThreadsPerCore": 2}))
    assert "CpuOptions" not in place.template()


def test_new_software_is_for_new_machines_only_and_the_same_is_not_written_twice(place):
    [before] = place.grown(1)
    for _ in range(2):
        place.groups.ensure(replace(GPU, revision=1))

    assert place.front.made.count("CreateLaunchTemplate") == 1
    assert place.front.made.count("CreateLaunchTemplateVersion") == 1
    assert place.staying() == [before]


def test_a_group_that_has_its_size_is_left_alone(place):
    place.grown(2)
    place.front.changes.clear()
    place.groups.scale(GPU.key, 2)

    assert place.front.changes == []
    assert (place.group()["MinSize"], place.group()["MaxSize"]) == (0, 2)


def test_a_change_of_subnets_reaches_the_group(place):
    place.groups.ensure(GPU)
    place.groups.ensure(replace(GPU, spec={"VpcConfig": {"Subnets": place.subnets[:1]}}))

    assert place.group()["VPCZoneIdentifier"] == place.subnets[0]
    assert place.front.made.count("UpdateAutoScalingGroup") == 1


@pytest.mark.parametrize(
    ("group", "changes", "said"),
    [
        (replace(GPU, instance_type=""), {}, "InstanceType is missing"),
        (GPU, {"subnets": ()}, "has no subnet"),
        (GPU, {"image": ""}, "has no image"),
        (GPU, {"types": {"ml.g5.xlarge": Ec2TypeSettings(launch_template="lt-0")}}, "lt-0 not"),
        (replace(GPU, scripts=replace(SCRIPTS, source="/srv/lcs")), {}, "into S3"),
        (
            replace(GPU, spec={"InstanceStorageConfigs": [{"FsxLustreConfig": {}}]}),
            {},
            "only new EBS volumes",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_made_is_refused_before_anything_is_made(place, group, changes, said):
    place.settings = replace(place.settings, **changes)

    with pytest.raises(ProviderError, match=said):
        place.groups.ensure(group)

    assert place.front.changes == []


# what becomes of them


@pytest.mark.parametrize(
    ("text", "state", "message"),
    [
        (None, MachineState.JOINING, "have not ended"),
        ("done", MachineState.RUNNING, ""),
        ("failed: on create.sh ended with 3", MachineState.FAILED, "ended with 3"),
    ],
)
def test_a_machine_runs_once_its_scripts_have_succeeded(place, text, state, message):
    [machine] = place.grown(1, replace(GPU, scripts=SCRIPTS))
    if text is not None:
        reported(place, machine, text)

    [now] = place.staying()
    assert (now.id, now.state) == (machine.id, state)
    assert message in now.message


def test_scripts_that_report_nothing_for_too_long_have_failed(place):
    [machine] = place.grown(1, replace(GPU, scripts=SCRIPTS))
    limit = place.settings.scripts_timeout
    for late, state in (
        (timedelta(0), MachineState.JOINING),
        (timedelta(microseconds=1), MachineState.FAILED),
    ):
        [now] = place.at(FakeClock(machine.launched_at + limit + late)).machines(GPU.key)

        assert now.state is state


def test_a_machine_in_whose_place_another_comes_leaves(place):
    [faulty, healthy] = place.grown(2)
    place.cloud.autoscaling.set_instance_health(InstanceId=faulty.id, HealthStatus="Unhealthy")

    assert {one.id: one.state for one in place.groups.machines(GPU.key)} == {
        faulty.id: MachineState.LEAVING,
        healthy.id: MachineState.RUNNING,
    }
    place.groups.remove(GPU.key, [faulty.id])
    assert place.group()["DesiredCapacity"] == 2


def test_a_machine_that_was_stopped_leaves(place):
    [machine] = place.grown(1)
    place.ec2.stop_instances(InstanceIds=[machine.id])

    [stopped] = place.groups.machines(GPU.key)
    assert (stopped.state, "stopped" in stopped.message) == (MachineState.LEAVING, True)


# what goes wrong


def test_want_of_capacity_is_reported_with_aws_s_own_words(place):
    why = "We currently do not have sufficient p5 capacity. InsufficientInstanceCapacity"
    place.groups.ensure(GPU)
    place.front.say("DescribeScalingActivities", activities(("Failed", why)))
    short(place, desired=2)

    with pytest.raises(RetryLater, match="InsufficientInstanceCapacity") as caught:
        place.groups.scale(GPU.key, 2)

    assert caught.value.after == timedelta(minutes=10)


def test_a_launch_that_is_going_on_is_no_failure(place):
    place.groups.ensure(GPU)
    short(place, desired=2)
    place.front.always["DescribeScalingActivities"] = activities(("InProgress", ""), ("Failed", ""))

    place.groups.scale(GPU.key, 2)


def test_a_group_that_may_not_launch_says_how_to_let_it(place):
    place.groups.ensure(GPU)
    short(place, desired=1, suspended=("AZRebalance", "Launch"))

    with pytest.raises(ProviderError, match="resume-processes --auto-scaling-group-name lab/gpu"):
        place.groups.scale(GPU.key, 1)


def short(place: Place, desired: int, suspended: tuple[str, ...] = ("AZRebalance",)) -> None:
    """A group that wants more machines than it has, which moto's never do."""
    listed = "".join(f"<member><ProcessName>{one}</ProcessName></member>" for one in suspended)
    operation = "DescribeAutoScalingGroups"
    place.front.always[operation] = (
        200,
        f"<{operation}Response><{operation}Result><AutoScalingGroups><member>"
        f"<AutoScalingGroupName>{GPU.key}</AutoScalingGroupName>"
        f"<DesiredCapacity>{desired}</DesiredCapacity><MaxSize>{desired}</MaxSize>"
        f"<Instances></Instances><SuspendedProcesses>{listed}</SuspendedProcesses>"
        f"<Tags><member><Key>{MachineTag.CLUSTER}</Key><Value>lab</Value></member></Tags>"
        f"</member></AutoScalingGroups></{operation}Result></{operation}Response>",
    )


@pytest.mark.parametrize(
    ("operation", "answer", "error"),
    [
        ("CreateLaunchTemplate", refused("RequestLimitExceeded", status=503), RetryLater),
        ("CreateLaunchTemplate", refused("UnauthorizedOperation", status=403), ProviderError),
        ("CreateAutoScalingGroup", error_response("Throttling"), RetryLater),
        ("CreateAutoScalingGroup", error_response("ValidationError", "subnet"), ProviderError),
        ("SuspendProcesses", error_response("Throttling"), RetryLater),
    ],
)  # fmt: skip
def test_a_refusal_of_aws_is_reported_and_the_next_try_ends_the_work(
    place, operation, answer, error
):
    place.front.say(operation, answer, times=2)

    with pytest.raises(error):
        place.groups.ensure(GPU)
    place.front.moods.clear()

    assert len(place.grown(1)) == 1


def test_a_group_of_somebody_else_is_left_alone(place):
    place.cloud.autoscaling.create_auto_scaling_group(
        AutoScalingGroupName=GPU.key,
        LaunchConfigurationName="l",
        MinSize=1,
        MaxSize=1,
        AvailabilityZones=[f"{REGION}a"],
    )
    place.front.changes.clear()
    for act in (
        lambda: place.groups.ensure(GPU),
        lambda: place.groups.machines(GPU.key),
        lambda: place.groups.scale(GPU.key, 0),
        lambda: place.groups.remove(GPU.key, ["i-01234567"]),
    ):
        with pytest.raises(ProviderError, match=r"lab/gpu is not Holdfast's.*another name"):
            act()
    place.groups.delete(GPU.key)
    assert place.front.changes == []


def test_a_group_that_is_being_deleted_is_waited_for(place):
    place.groups.ensure(GPU)
    short(place, desired=0)
    code, text = place.front.always["DescribeAutoScalingGroups"]
    text = text.replace("<Instances>", "<Status>Delete in progress</Status><Instances>")
    place.front.always["DescribeAutoScalingGroups"] = (code, text)
    place.front.changes.clear()

    with pytest.raises(RetryLater, match="still being deleted"):
        place.groups.ensure(GPU)
    place.groups.delete(GPU.key)

    assert [one["Action"] for one in place.front.changes] == ["DeleteLaunchTemplate"]


def test_machines_are_found_on_every_page(place):
    place.groups.ensure(GPU)
    ids = ["i-01234567", "i-89abcdef"]
    for number, more in ((0, "<nextToken>2</nextToken>"), (1, "")):
        instance = (
            f"<instanceId>{ids[number]}</instanceId><launchTime>2026-01-01T00:00:00Z</launchTime>"
            "<instanceState><name>running</name></instanceState>"
        )
        page = (
            f"<reservationSet><item><instancesSet><item>{instance}</item></instancesSet></item>"
            f"</reservationSet>{more}"
        )
        answer = f"<DescribeInstancesResponse>{page}</DescribeInstancesResponse>"
        place.front.say("DescribeInstances", (200, answer))

    assert [one.id for one in place.groups.machines(GPU.key)] == ids


# killed at any moment


def test_what_is_left_of_a_group_goes_when_it_is_deleted_again(place):
    place.groups.ensure(GPU)
    place.cloud.autoscaling.delete_auto_scaling_group(AutoScalingGroupName=GPU.key)
    place.groups.delete(GPU.key)

    assert place.ec2.describe_launch_templates()["LaunchTemplates"] == []


def life(groups: Ec2MachineGroups) -> Iterator[None]:
    """All that is ever done with a group, as often as a process that begins anew does it."""
    groups.ensure(GPU)
    yield
    groups.scale(GPU.key, 3)
    yield
    found = [one for one in groups.machines(GPU.key) if one.state is not MachineState.LEAVING]
    if len(found) == 3:
        groups.remove(GPU.key, [found[0].id])
    yield
    groups.ensure(replace(GPU, revision=1))
    groups.scale(GPU.key, 2)
    yield
    groups.delete(GPU.key)


def test_a_process_that_is_killed_between_any_two_calls_leaves_nothing_behind(place):
    whole: list[str] = []
    assert lived(place, whole, None)
    for lives in range(1, len(whole)):
        assert not lived(place, [], lives)
        assert lived(place, [], None)
        assert list(place.groups.machines(GPU.key)) == []
        assert GPU.key not in [one["AutoScalingGroupName"] for one in place.all_groups()]
        assert place.ec2.describe_launch_templates()["LaunchTemplates"] == []
    assert len(whole) > 20


def lived(place: Place, made: list[str], lives: int | None) -> bool:
    """Whether a process comes to the end of its life."""
    services = (Mortal(one, made, lives) for one in place.services)
    try:
        live(Ec2MachineGroups(*services, place.settings, SystemClock()))
    except Killed:
        return False
    return True


def live(groups: Ec2MachineGroups) -> None:
    """All that is ever done with a group, as a process does it that finds anything done before."""
    groups.ensure(GPU)
    groups.scale(GPU.key, 3)
    [first, *_] = groups.machines(GPU.key)
    groups.remove(GPU.key, [first.id])
    groups.ensure(replace(GPU, revision=1))
    groups.scale(GPU.key, 2)
    assert len([one for one in groups.machines(GPU.key) if one.state is RUNNING]) == 2
    groups.delete(GPU.key)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"types": {"p5.48xlarge": {}}}, "'p5.48xlarge' does not begin with ml."),
        ({"types": {"ml.p5.48xlarge": {"ami": "a"}}}, r"types\.ml\.p5\.48xlarge\.ami: unknown key"),
        ({"scripts_timeout": "0s"}, "scripts_timeout must be longer than 0s"),
    ],
)
def test_settings_that_cannot_be_are_reported(settings, said):
    with pytest.raises(ConfigError, match=said):
        parse_table(settings, Ec2GroupSettings)
