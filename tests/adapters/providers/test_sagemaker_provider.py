import json
from datetime import timedelta
from typing import Any

import pytest
from aws_front import REGION, Front

from holdfast.adapters.providers.orders import Orders
from holdfast.adapters.providers.settings import (
    AwsSettings,
    ProviderConfig,
    ProviderName,
    SageMakerSettings,
)
from holdfast.adapters.providers.table import build_provider
from holdfast.model.errors import NodeGone, ProviderError, RetryLater
from tests.ports.builders import a_node
from tests.ports.fakes import FakeClock

INSTANCE = "i-0123456789abcdef0"
NODE = a_node(name=f"hyperpod-{INSTANCE}", provider_id="")

ACTIVE = (
    "Node has active replacement operation (started: 2026-01-01T00:00:00Z). Wait for completion or"
    " retry if operation is stale."
)


class HyperPod:
    """A cluster that takes orders, or refuses each node for a reason."""

    def __init__(self, front: Front) -> None:
        self.orders: list[tuple[str, str, list[str]]] = []
        self.failure: dict[str, str] | None = None
        front.batch = self.take

    def take(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if operation == "DescribeClusterNode":
            return {"NodeDetails": {"PrivatePrimaryIp": "10.0.0.7"}}
        nodes = arguments["NodeIds"]
        self.orders.append((operation, arguments["ClusterName"], nodes))
        if self.failure is None:
            return {"Successful": nodes}
        return {"Failed": [{"NodeId": one, **self.failure} for one in nodes]}


@pytest.fixture
def hyperpod(front: Front) -> HyperPod:
    return HyperPod(front)


@pytest.fixture
def orders(front: Front) -> Orders:
    config = ProviderConfig(
        replace=ProviderName.SAGEMAKER,
        aws=AwsSettings(region=REGION, endpoint_url=front.url),
        sagemaker=SageMakerSettings(cluster="ml-cluster"),
    )
    return build_provider(config, FakeClock())


def test_a_reboot_and_a_replacement_are_ordered_of_the_cluster(
    hyperpod: HyperPod, orders: Orders
) -> None:
    orders.reboot(NODE, "t/1")
    orders.replace(NODE, "t/2")

    assert hyperpod.orders == [
        ("BatchRebootClusterNodes", "ml-cluster", [INSTANCE]),
        ("BatchReplaceClusterNodes", "ml-cluster", [INSTANCE]),
    ]


def test_a_provider_id_goes_before_the_name(hyperpod: HyperPod, orders: Orders) -> None:
    other = "i-00000000000000001"
    provider_id = f"aws:///usw2-az2/sagemaker/cluster/hyperpod-abc123def456-{other}"

    with pytest.raises(ProviderError, match=f"{other} may not be the machine of {NODE.name}"):
        orders.reboot(a_node(name=NODE.name, provider_id=provider_id), "t/1")
    orders.reboot(a_node(provider_id=provider_id, addresses=("10.0.0.7",)), "t/1")

    assert [nodes for _, _, nodes in hyperpod.orders] == [[other]]


def test_a_node_that_is_being_replaced_is_not_ordered_again(
    hyperpod: HyperPod, orders: Orders
) -> None:
    hyperpod.failure = {"ErrorCode": "InstanceIdInUse", "Message": ACTIVE}

    orders.replace(NODE, "t/1")


def test_a_node_that_is_being_replaced_is_rebooted_later_if_at_all(
    hyperpod: HyperPod, orders: Orders
) -> None:
    hyperpod.failure = {"ErrorCode": "InstanceIdInUse", "Message": ACTIVE}

    with pytest.raises(RetryLater, match=f"SageMaker refused {INSTANCE} of ml-cluster: Inst"):
        orders.reboot(NODE, "t/1")


def test_a_node_in_other_hands_is_replaced_later(hyperpod: HyperPod, orders: Orders) -> None:
    hyperpod.failure = {"ErrorCode": "InstanceIdInUse", "Message": "Node has active reboot"}

    with pytest.raises(RetryLater, match="active reboot") as caught:
        orders.replace(NODE, "t/1")

    assert caught.value.after == timedelta(minutes=1)


def test_an_unknown_node_is_gone_for_a_reboot_and_done_with_for_a_replacement(
    hyperpod: HyperPod, orders: Orders
) -> None:
    hyperpod.failure = {"ErrorCode": "InstanceIdNotFound", "Message": "no such node"}

    with pytest.raises(NodeGone, match="InstanceIdNotFound: no such node"):
        orders.reboot(NODE, "t/1")
    orders.replace(NODE, "t/2")


@pytest.mark.parametrize("verb", ["reboot", "replace"])
@pytest.mark.parametrize(
    ("code", "expected"),
    [("InvalidInstanceStatus", RetryLater), ("InternalServerError", RetryLater)],
)
def test_what_may_pass_is_tried_again(
    hyperpod: HyperPod, orders: Orders, verb: str, code: str, expected: type[Exception]
) -> None:
    hyperpod.failure = {"ErrorCode": code, "Message": "cannot replace: SystemUpdating"}

    with pytest.raises(expected, match=f"{code}: cannot replace: SystemUpdating"):
        getattr(orders, verb)(NODE, "t/1")


def test_a_refusal_for_a_reason_of_the_future_is_reported(front: Front, orders: Orders) -> None:
    failed = [{"NodeId": INSTANCE, "ErrorCode": "NodeIsControllerNode", "Message": "no"}]
    front.always["BatchReplaceClusterNodes"] = (200, json.dumps({"Failed": failed}))

    with pytest.raises(ProviderError, match="NodeIsControllerNode: no") as caught:
        orders.replace(NODE, "t/1")

    assert type(caught.value) is ProviderError


def test_an_answer_about_another_node_is_none(front: Front, orders: Orders) -> None:
    front.always["BatchReplaceClusterNodes"] = (200, '{"Successful": ["i-00000000"]}')

    with pytest.raises(
        ProviderError, match=f"did not report whether it accepted the order for {INSTANCE}"
    ):
        orders.replace(NODE, "t/1")


def test_a_refusal_of_another_node_is_none(front: Front, orders: Orders) -> None:
    failed = [{"NodeId": "i-00000000", "ErrorCode": "InstanceIdNotFound", "Message": "no"}]
    front.always["BatchReplaceClusterNodes"] = (200, json.dumps({"Failed": failed}))

    with pytest.raises(ProviderError, match="did not report"):
        orders.replace(NODE, "t/1")


def test_an_unknown_cluster_is_reported_with_its_setting(front: Front, orders: Orders) -> None:
    error = {"__type": "ResourceNotFound", "Message": "Cluster ml-cluster not found"}
    front.always["BatchRebootClusterNodes"] = (400, json.dumps(error))

    with pytest.raises(ProviderError, match=r"not found; check provider\.sagemaker\.cluster"):
        orders.reboot(NODE, "t/1")


@pytest.mark.parametrize(
    ("error", "status", "kind", "expected"),
    [
        ("ThrottlingException", 400, RetryLater, "Rate exceeded"),
        ("AccessDeniedException", 400, ProviderError, "grant sagemaker:BatchRebootClusterNodes to"),
        ("ExpiredTokenException", 400, ProviderError, "credentials are expired or wrong"),
        ("ValidationException", 400, ProviderError, "ValidationException: Rate exceeded"),
        ("InternalFailure", 500, RetryLater, "InternalFailure"),
    ],
)
def test_refusals_of_the_whole_call_are_kept_apart(
    front: Front, orders: Orders, error: str, status: int, kind: type[Exception], expected: str
) -> None:
    reported = json.dumps({"__type": error, "message": "Rate exceeded"})
    front.always["BatchRebootClusterNodes"] = (status, reported)

    with pytest.raises(kind, match=expected) as caught:
        orders.reboot(NODE, "t/1")

    assert isinstance(caught.value, RetryLater) is (kind is RetryLater)
