import socket
from collections.abc import Iterator
from datetime import timedelta

import pytest
from aws_front import REGION, Cloud, Front, activities, error_response, refused

from holdfast.adapters.providers.orders import Orders
from holdfast.adapters.providers.settings import AwsSettings, ProviderConfig, ProviderName
from holdfast.adapters.providers.table import build_provider
from holdfast.model.errors import ConfigError, NodeGone, ProviderError, RetryLater
from holdfast.model.nodes import NodeView
from tests.ports.builders import a_node
from tests.ports.fakes import FakeClock

HALF_A_SECOND = timedelta(seconds=0.5)
UNKNOWN = "i-0123456789abcdef0"


def provider(url: str, name: str = "ec2-autoscaling", clock: FakeClock | None = None) -> Orders:
    aws = AwsSettings(region=REGION, endpoint_url=url, read_timeout=HALF_A_SECOND)
    config = ProviderConfig(replace=ProviderName(name), aws=aws)
    return build_provider(config, clock or FakeClock())


def node(instance: str) -> NodeView:
    return a_node(name=f"gpu-{instance}", provider_id=f"aws:///{REGION}a/{instance}")


def calls(front: Front, operation: str) -> int:
    return front.made.count(operation)


def test_a_group_is_informed_that_an_instance_is_unhealthy_whatever_its_grace_period(
    cloud: Cloud, front: Front
) -> None:
    faulty, healthy = cloud.group(2)

    provider(front.url).replace(node(faulty), "t/1")

    assert cloud.members() == {faulty: "Unhealthy", healthy: "Healthy"}
    (change,) = front.changes
    assert change["ShouldRespectGracePeriod"] == "false"


def test_an_unhealthy_instance_is_not_marked_again(cloud: Cloud, front: Front) -> None:
    (faulty,) = cloud.group()

    for _ in range(2):
        provider(front.url).replace(node(faulty), "t/1")

    assert calls(front, "SetInstanceHealth") == 1


@pytest.mark.parametrize("process", ["ReplaceUnhealthy", "Terminate", "Launch"])
def test_a_suspended_process_is_named_with_the_command_that_resumes_it(
    cloud: Cloud, front: Front, process: str
) -> None:
    (faulty,) = cloud.group()
    cloud.suspend(process)

    with pytest.raises(ProviderError) as caught:
        provider(front.url).replace(node(faulty), "t/1")

    assert str(caught.value) == (
        f"group {cloud.name} does not replace {faulty}: {process} is suspended; resume with"
        f" aws autoscaling resume-processes --auto-scaling-group-name {cloud.name}"
        f" --scaling-processes {process}"
    )
    assert cloud.members() == {faulty: "Healthy"}


def test_all_suspended_processes_are_named_even_for_an_unhealthy_instance(
    cloud: Cloud, front: Front
) -> None:
    (faulty,) = cloud.group()
    provider(front.url).replace(node(faulty), "t/1")
    cloud.suspend("Launch", "Terminate", "AZRebalance")

    with pytest.raises(ProviderError, match="Terminate and Launch are suspended"):
        provider(front.url).replace(node(faulty), "t/1")


def test_health_checks_that_are_suspended_do_not_matter(cloud: Cloud, front: Front) -> None:
    (faulty,) = cloud.group()
    cloud.suspend("HealthCheck", "AZRebalance")

    provider(front.url).replace(node(faulty), "t/1")

    assert cloud.members() == {faulty: "Unhealthy"}


def lifecycle(cloud: Cloud, front: Front, instance: str, state: str) -> None:
    member = (
        f"<member><InstanceId>{instance}</InstanceId><LifecycleState>{state}</LifecycleState>"
        f"<AutoScalingGroupName>{cloud.name}</AutoScalingGroupName><HealthStatus>HEALTHY</HealthStatus>"
        "<AvailabilityZone>a</AvailabilityZone></member>"
    )
    operation = "DescribeAutoScalingInstances"
    result = f"<AutoScalingInstances>{member}</AutoScalingInstances>"
    front.always[operation] = (
        200,
        f"<{operation}Response><{operation}Result>{result}</{operation}Result>"
        f"</{operation}Response>",
    )


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("Warmed:Stopped", "waits in the warm pool of group"),
        ("Warmed:Running", "waits in the warm pool of group"),
        ("Standby", "exit-standby"),
        ("EnteringStandby", "exit-standby"),
        ("Detached", "is Detached in group"),
        ("Detaching", "is Detaching in group"),
    ],
)
def test_an_instance_outside_service_is_not_replaced_and_the_way_back_is_reported(
    cloud: Cloud, front: Front, state: str, expected: str
) -> None:
    (faulty,) = cloud.group()
    lifecycle(cloud, front, faulty, state)

    with pytest.raises(ProviderError, match=expected):
        provider(front.url).replace(node(faulty), "t/1")

    assert front.changes == []


@pytest.mark.parametrize("state", ["Terminating", "Terminating:Wait", "Warmed:Terminating"])
def test_an_instance_on_its_way_out_is_being_replaced(
    cloud: Cloud, front: Front, state: str
) -> None:
    (faulty,) = cloud.group()
    lifecycle(cloud, front, faulty, state)
    front.always["DescribeScalingActivities"] = activities(("InProgress", ""))
    cloud.suspend("ReplaceUnhealthy", "Terminate")

    provider(front.url).replace(node(faulty), "t/1")

    assert front.changes == []


def gone_from_group(cloud: Cloud, front: Front) -> str:
    """An instance that the group has terminated; unlike moto's, EC2's keeps its tags."""
    (faulty,) = cloud.group()
    tag = f"<item><key>aws:autoscaling:groupName</key><value>{cloud.name}</value></item>"
    front.always["DescribeInstances"] = (
        200,
        "<DescribeInstancesResponse><reservationSet><item><instancesSet><item>"
        f"<instanceId>{faulty}</instanceId><instanceState><name>terminated</name></instanceState>"
        f"<tagSet>{tag}</tagSet></item></instancesSet></item></reservationSet></DescribeInstancesResponse>",
    )
    cloud.terminate(faulty)
    return faulty


def test_a_repeated_order_reports_why_a_group_could_not_launch_another(
    cloud: Cloud, front: Front
) -> None:
    faulty = gone_from_group(cloud, front)
    why = "We currently do not have sufficient p5.48xlarge capacity"
    front.always["DescribeScalingActivities"] = activities(("Failed", why), ("Successful", ""))

    with pytest.raises(
        RetryLater, match=f"group {cloud.name} could not launch another: {why}"
    ) as caught:
        provider(front.url).replace(node(faulty), "t/2")

    assert caught.value.after == timedelta(minutes=10)


def test_a_failure_that_has_been_overcome_is_forgotten(cloud: Cloud, front: Front) -> None:
    faulty = gone_from_group(cloud, front)
    front.always["DescribeScalingActivities"] = activities(("Successful", ""), ("Failed", "no"))

    provider(front.url).replace(node(faulty), "t/2")


def test_a_group_that_may_not_launch_is_reported_for_an_instance_that_has_left(
    cloud: Cloud, front: Front
) -> None:
    faulty = gone_from_group(cloud, front)
    cloud.suspend("Launch")

    with pytest.raises(ProviderError, match="Launch is suspended"):
        provider(front.url).replace(node(faulty), "t/2")


def test_a_group_that_was_deleted_is_reported(cloud: Cloud, front: Front) -> None:
    faulty = gone_from_group(cloud, front)
    cloud.autoscaling.delete_auto_scaling_group(AutoScalingGroupName=cloud.name, ForceDelete=True)

    with pytest.raises(ProviderError, match=f"Auto Scaling group {cloud.name} no longer exists"):
        provider(front.url).replace(node(faulty), "t/2")


def test_an_instance_without_a_group_is_not_replaced_but_another_provider_is_named(
    cloud: Cloud, front: Front
) -> None:
    lone = cloud.instance()

    with pytest.raises(ProviderError, match=f"{lone} is not in an Auto Scaling group"):
        provider(front.url).replace(node(lone), "t/1")

    assert cloud.state(lone) == "running"


@pytest.mark.parametrize("name", ["ec2", "ec2-autoscaling"])
def test_an_instance_that_nobody_knows_is_neither_rebooted_nor_taken_for_replaced(
    front: Front, cloud: Cloud, name: str
) -> None:
    with pytest.raises(NodeGone, match=f"{UNKNOWN} no longer exists in {REGION}"):
        provider(front.url, name).reboot(node(UNKNOWN), "t/1")
    with pytest.raises(ProviderError, match="the credentials belong to another account"):
        provider(front.url, name).replace(node(UNKNOWN), "t/2")

    assert front.changes == []


@pytest.mark.parametrize("name", ["ec2", "ec2-autoscaling"])
def test_a_running_instance_is_rebooted(cloud: Cloud, front: Front, name: str) -> None:
    one = cloud.instance()

    provider(front.url, name).reboot(node(one), "t/1")

    (change,) = front.changes
    assert (change["Action"], change["InstanceId.1"]) == ("RebootInstances", one)


def test_a_terminated_instance_is_gone_for_a_reboot_and_done_with_for_a_replacement(
    cloud: Cloud, front: Front
) -> None:
    one = cloud.instance()
    cloud.ec2.terminate_instances(InstanceIds=[one])

    with pytest.raises(NodeGone, match=one):
        provider(front.url, "ec2").reboot(node(one), "t/1")
    provider(front.url, "ec2").replace(node(one), "t/2")

    assert front.changes == []


def test_a_stopped_instance_is_not_rebooted(cloud: Cloud, front: Front) -> None:
    one = cloud.instance()
    cloud.ec2.stop_instances(InstanceIds=[one])

    with pytest.raises(ProviderError, match=f"{one} is stopped: start it"):
        provider(front.url, "ec2").reboot(node(one), "t/1")

    assert front.changes == []


def in_state(front: Front, state: str) -> None:
    front.always["DescribeInstances"] = (
        200,
        "<DescribeInstancesResponse><reservationSet><item><instancesSet><item>"
        f"<instanceState><name>{state}</name></instanceState>"
        "</item></instancesSet></item></reservationSet></DescribeInstancesResponse>",
    )


def test_an_instance_that_is_being_launched_is_rebooted_later(front: Front) -> None:
    in_state(front, "pending")

    with pytest.raises(RetryLater, match="still being launched"):
        provider(front.url, "ec2").reboot(node(UNKNOWN), "t/1")

    assert front.changes == []


def test_an_instance_that_shuts_down_for_good_is_as_good_as_gone(front: Front) -> None:
    in_state(front, "shutting-down")

    with pytest.raises(NodeGone):
        provider(front.url, "ec2").reboot(node(UNKNOWN), "t/1")
    provider(front.url, "ec2").replace(node(UNKNOWN), "t/2")

    assert front.changes == []


def test_ec2_alone_terminates_the_one_instance(cloud: Cloud, front: Front) -> None:
    one, other = cloud.instance(), cloud.instance()

    for _ in range(2):
        provider(front.url, "ec2").replace(node(one), "t/1")

    assert (cloud.state(one), cloud.state(other)) == ("terminated", "running")
    assert calls(front, "TerminateInstances") == 1


@pytest.mark.parametrize(
    "code", ["RequestLimitExceeded", "Throttling", "ThrottlingException", "RequestThrottled"]
)
def test_throttling_is_waited_out_and_holds_up_the_other_orders(
    cloud: Cloud, front: Front, code: str
) -> None:
    one, other = cloud.group(2)
    clock = FakeClock()
    orders = provider(front.url, clock=clock)
    front.say("DescribeInstances", refused(code, "Rate exceeded"), times=2)

    with pytest.raises(RetryLater, match=f"ec2:DescribeInstances: {code}: Rate exceeded") as caught:
        orders.reboot(node(one), "t/1")
    with pytest.raises(RetryLater, match="Rate exceeded"):
        orders.reboot(node(other), "u/1")
    assert calls(front, "DescribeInstances") == 2

    clock.time += caught.value.after
    orders.reboot(node(one), "t/1")
    orders.reboot(node(other), "u/1")
    assert calls(front, "RebootInstances") == 2


def test_one_throttled_call_is_repeated_at_once(cloud: Cloud, front: Front) -> None:
    (one,) = cloud.group()
    front.say("SetInstanceHealth", error_response("Throttling", "Rate exceeded"))

    provider(front.url).replace(node(one), "t/1")

    assert cloud.members() == {one: "Unhealthy"}


@pytest.mark.parametrize("operation", ["DescribeInstances", "RebootInstances"])
def test_a_missing_permission_of_ec2_is_named(cloud: Cloud, front: Front, operation: str) -> None:
    one = cloud.instance()
    front.always[operation] = refused("UnauthorizedOperation", "You are not authorized. x" * 99)

    with pytest.raises(ProviderError, match=f"not permitted: grant ec2:{operation} to") as caught:
        provider(front.url, "ec2").reboot(node(one), "t/1")

    assert len(str(caught.value)) < 500
    assert not isinstance(caught.value, RetryLater | NodeGone)


@pytest.mark.parametrize(
    "operation",
    ["DescribeAutoScalingInstances", "DescribeAutoScalingGroups", "SetInstanceHealth"],
)
def test_a_missing_permission_of_auto_scaling_is_named(
    cloud: Cloud, front: Front, operation: str
) -> None:
    (one,) = cloud.group()
    front.always[operation] = error_response("AccessDenied", "User x is not authorized")

    with pytest.raises(ProviderError, match=f"grant autoscaling:{operation} to") as caught:
        provider(front.url).replace(node(one), "t/1")

    assert "User x is not authorized" in str(caught.value)


def test_want_of_capacity_is_waited_out_for_long(cloud: Cloud, front: Front) -> None:
    (one,) = cloud.group()
    front.always["SetInstanceHealth"] = error_response("InsufficientInstanceCapacity", "none")

    with pytest.raises(RetryLater, match="InsufficientInstanceCapacity: none") as caught:
        provider(front.url).replace(node(one), "t/1")

    assert caught.value.after == timedelta(minutes=10)


@pytest.mark.parametrize(
    "code", ["ExpiredToken", "RequestExpired", "AuthFailure", "InvalidClientTokenId"]
)
def test_expired_credentials_are_reported_as_such(cloud: Cloud, front: Front, code: str) -> None:
    front.always["DescribeInstances"] = refused(code, "token expired")

    with pytest.raises(ProviderError, match=r"credentials are expired or wrong.*token expired"):
        provider(front.url, "ec2").reboot(node(UNKNOWN), "t/1")


def test_missing_credentials_are_reported_as_such(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")

    with pytest.raises(ProviderError, match="no usable AWS credentials"):
        provider(front.url, "ec2").reboot(node(UNKNOWN), "t/1")


def test_a_refusal_that_nobody_knows_is_reported_in_aws_s_words(cloud: Cloud, front: Front) -> None:
    one = cloud.instance()
    front.always["TerminateInstances"] = refused("OperationNotPermitted", "protected")

    with pytest.raises(ProviderError) as caught:
        provider(front.url, "ec2").replace(node(one), "t/1")

    assert str(caught.value) == "ec2:TerminateInstances: OperationNotPermitted: protected"
    assert not isinstance(caught.value, RetryLater)


def test_an_error_of_aws_itself_is_waited_out(cloud: Cloud, front: Front) -> None:
    front.always["DescribeInstances"] = refused("InternalError", "oops", status=500)

    with pytest.raises(RetryLater, match="InternalError: oops"):
        provider(front.url, "ec2").reboot(node(UNKNOWN), "t/1")


def test_an_endpoint_that_hangs_is_waited_for_twice_and_then_left_alone(
    cloud: Cloud, front: Front
) -> None:
    front.hang("DescribeInstances", times=4)
    orders = provider(front.url, "ec2")

    with pytest.raises(RetryLater, match="AWS does not respond") as caught:
        orders.reboot(node(UNKNOWN), "t/1")
    for number in range(100):
        with pytest.raises(RetryLater, match="AWS does not respond"):
            orders.reboot(node(UNKNOWN), f"u/{number}")

    assert calls(front, "DescribeInstances") == 2
    assert caught.value.after == timedelta(seconds=30)


@pytest.fixture
def dead_url() -> Iterator[str]:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_a_dead_endpoint_is_tried_again_later(front: Front, dead_url: str) -> None:
    with pytest.raises(RetryLater, match="AWS does not respond"):
        provider(dead_url, "ec2").replace(node(UNKNOWN), "t/1")


def test_an_answer_that_is_no_answer_of_aws_is_reported(front: Front) -> None:
    front.always["DescribeInstances"] = (200, "<html>a proxy's page")

    with pytest.raises(ProviderError, match="ec2:DescribeInstances"):
        provider(front.url, "ec2").reboot(node(UNKNOWN), "t/1")


@pytest.mark.parametrize(
    "provider_id",
    [UNKNOWN, f"aws:///usw2-az1/{UNKNOWN}", f"aws:///{REGION}b/{UNKNOWN}", "i-01234567", ""],
)
def test_an_instance_is_known_by_the_end_of_its_provider_id_or_of_its_name(
    front: Front, cloud: Cloud, provider_id: str
) -> None:
    one = a_node(name=f"hyperpod-{UNKNOWN}", provider_id=provider_id)

    with pytest.raises(NodeGone, match="i-01234567" if provider_id == "i-01234567" else UNKNOWN):
        provider(front.url, "ec2").reboot(one, "t/1")


@pytest.mark.parametrize(
    "provider_id", ["kind://docker/kind/n", "gce://p/z/i-xyz", "xi-01234567", "i-012345678", ""]
)
def test_what_is_no_instance_gets_no_order(front: Front, provider_id: str) -> None:
    one = a_node(name="n", provider_id=provider_id)

    with pytest.raises(
        ProviderError, match=r"n is not an EC2 instance: .* such as i-0123456789abc"
    ):
        provider(front.url, "ec2").replace(one, "t/1")

    assert front.made == []


def test_an_instance_of_another_region_gets_no_order(front: Front) -> None:
    one = a_node(provider_id=f"aws:///us-gov-east-1a/{UNKNOWN}")

    with pytest.raises(
        ProviderError, match=r"is in us-gov-east-1, but orders go to us-west-2: set"
    ):
        provider(front.url, "ec2").reboot(one, "t/1")

    assert front.made == []


def test_an_unknown_region_is_reported_at_the_start(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.delenv("AWS_REGION", raising=False)
    config = ProviderConfig(replace=ProviderName.EC2)

    with pytest.raises(ConfigError, match=r"provider.aws: You must specify a region"):
        build_provider(config, FakeClock())
