"""No answer of AWS or of a Kubernetes cluster with Machines ends the controller."""

import itertools
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import hypothesis
import pytest
from effort import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.adapters.providers.kubernetes_api import Json, ObjectKind
from holdfast.adapters.providers.settings import (
    AwsSettings,
    ProviderConfig,
    ProviderName,
    SageMakerSettings,
)
from holdfast.adapters.providers.table import build_provider
from holdfast.model.errors import NodeGone, ProviderError, RetryLater
from holdfast.model.nodes import NodeView, Phase
from holdfast.ports.provider import NodeProvider
from tests.ports.builders import a_node
from tests.ports.fakes import FakeClock

INSTANCE = "i-0123456789abcdef0"
NODE = a_node(
    Phase.REPLACING,
    provider_id=f"aws:///us-west-2a/{INSTANCE}",
    addresses=("10.0.0.7", "ip-10-0-0-7.ec2.internal"),
)
EC2 = f"""<DescribeInstancesResponse><reservationSet><item><instancesSet><item>
<instanceId>{INSTANCE}</instanceId><instanceState><code>16</code><name>running</name></instanceState>
<privateIpAddress>10.0.0.7</privateIpAddress><tagSet><item><key>k</key><value>v</value></item></tagSet>
<networkInterfaceSet><item><privateIpAddressesSet><item><privateIpAddress>10.0.0.7</privateIpAddress>
</item></privateIpAddressesSet></item></networkInterfaceSet>
</item></instancesSet></item></reservationSet></DescribeInstancesResponse>""".replace("\n", "")
GROUPS = f"""<R><DescribeAutoScalingInstancesResult><AutoScalingInstances><member>
<AutoScalingGroupName>g</AutoScalingGroupName><LifecycleState>InService</LifecycleState>
<HealthStatus>HEALTHY</HealthStatus><InstanceId>{INSTANCE}</InstanceId></member>
</AutoScalingInstances></DescribeAutoScalingInstancesResult><DescribeAutoScalingGroupsResult>
<AutoScalingGroups><member><AutoScalingGroupName>g</AutoScalingGroupName></member>
</AutoScalingGroups></DescribeAutoScalingGroupsResult></R>""".replace("\n", "")
SAGEMAKER = json.dumps(
    {
        "NodeDetails": {"InstanceId": INSTANCE, "PrivatePrimaryIp": "10.0.0.7"},
        "Successful": [INSTANCE],
        "Failed": [{"NodeId": INSTANCE, "ErrorCode": "InstanceIdInUse", "Message": "replace"}],
    }
)
REFUSAL = "<Response><Errors><Error><Code>Bad</Code><Message>no</Message></Error></Errors>"
SEEDS = {
    ProviderName.EC2: (EC2, REFUSAL, "<R/>", ""),
    ProviderName.EC2_AUTOSCALING: (GROUPS, EC2, REFUSAL, "<R/>"),
    ProviderName.SAGEMAKER: (SAGEMAKER, '{"__type": "ResourceNotFound"}', "{}", "[]"),
}
TOKENS = [
    "", "\0", "<", ">", "</item>", "<item/>", "&a;", "<!DOCTYPE a [<!ENTITY a 'b'>]>", "null", "[]",
    "{", "}", '"', "\\ud800", "\udc80", "9" * 5000, "a" * 8000, "[" * 2000, "<a>" * 2000,
    "\x1b[0m\n",
]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn, seeds: Sequence[str]) -> bytes:
    """An answer with some parts removed or replaced."""
    text = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.sampled_from([0, 1, 8, 60])))
        text = text[:start] + draw(st.sampled_from(TOKENS) | st.text(max_size=6)) + text[end:]
    return text.encode("utf-8", "surrogateescape" if "\udc80" in text else "replace")


class Endpoint(ThreadingHTTPServer):
    """Answers all requests in the same way."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.body = 200, b""
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    one = Endpoint()
    yield one
    one.shutdown()
    one.server_close()


TOKENS_OF_ORDERS = itertools.count()


def ends_as_documented(order: Callable[[NodeView, str], None]) -> None:
    try:
        order(NODE, f"token-{next(TOKENS_OF_ORDERS)}")
    except ProviderError as error:  # NodeGone and RetryLater, too
        failure = error
    else:
        return
    assert len(str(failure)) < 1000
    after = failure.after if isinstance(failure, RetryLater) else timedelta(0)
    assert timedelta(0) <= after <= timedelta(hours=1)


@pytest.mark.parametrize("name", SEEDS)
def test_an_order_ends_as_documented_whatever_aws_answers(
    endpoint: Endpoint, name: ProviderName, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "testing")
    url = f"http://127.0.0.1:{endpoint.server_address[1]}"
    aws = AwsSettings(region="us-west-2", endpoint_url=url)
    config = ProviderConfig(replace=name, aws=aws, sagemaker=SageMakerSettings(cluster="c"))
    clock = FakeClock()
    provider = build_provider(config, clock)

    phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]

    @settings(max_examples=examples(200), deadline=None, phases=phases)
    @given(body=mutated(SEEDS[name]), status=st.sampled_from([200, 200, 200, 400]))
    @example(body=b"[" * 6000, status=200)
    def ends(body: bytes, status: int) -> None:
        endpoint.body, endpoint.status = body, status
        for order in (provider.reboot, provider.replace):
            clock.time += timedelta(hours=1)  # no answer before makes it wait
            ends_as_documented(order)

    ends()


CLAIM = {
    "metadata": {"name": "claim", "labels": {"karpenter.sh/nodepool": "p"}},
    "status": {"nodeName": NODE.name, "providerID": NODE.provider_id},
}
NODE_OBJECT = {
    "metadata": {
        "name": NODE.name,
        "annotations": {
            "cluster.x-k8s.io/cluster-namespace": "ns",
            "cluster.x-k8s.io/machine": "m",
        },
    }
}
MACHINE = {
    "metadata": {"name": "m", "annotations": {}},
    "spec": {"providerID": NODE.provider_id},
    "status": {"nodeRef": {"name": NODE.name}, "addresses": [{"address": "10.0.0.7"}]},
}
LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.just([]) | st.just({})


@st.composite
def damaged(draw: st.DrawFn, value: Any) -> Any:
    """An object with some values replaced or removed."""
    if draw(st.integers(0, 7)) == 0:
        return draw(LEAVES)
    if isinstance(value, dict):
        kept = {key: one for key, one in value.items() if draw(st.integers(0, 7))}
        return {key: draw(damaged(one)) for key, one in kept.items()}
    if isinstance(value, list):
        return [draw(damaged(one)) for one in value]
    return value


class HostileCluster:
    """A ``KubernetesApi`` with damaged objects."""

    def __init__(self, data: st.DataObject) -> None:
        self.orders: list[str] = []
        self._data = data

    def find(self, kind: ObjectKind, name: str, namespace: str = "") -> Json | None:
        seed = NODE_OBJECT if kind.plural == "nodes" else MACHINE
        found: Json | None = self._data.draw(damaged(seed))
        return found

    def list(self, kind: ObjectKind, namespace: str = "") -> Sequence[Json]:
        found: Sequence[Json] = [self._data.draw(damaged(CLAIM))]
        return found

    def patch(self, kind: ObjectKind, name: str, namespace: str, body: Json) -> None:
        self.orders.append(name)

    def delete(self, kind: ObjectKind, name: str) -> None:
        self.orders.append(name)


@pytest.mark.parametrize("name", [ProviderName.KARPENTER, ProviderName.CLUSTER_API])
@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_an_order_ends_as_documented_whatever_a_cluster_answers(
    name: ProviderName, data: st.DataObject
) -> None:
    cluster = HostileCluster(data)
    provider: NodeProvider = build_provider(
        ProviderConfig(replace=name), FakeClock(), lambda *_: cluster
    )
    ends_as_documented(provider.replace)


def test_an_answer_without_a_field_says_so_and_leaves_the_outcome_open() -> None:
    class Empty(HostileCluster):
        def list(self, kind: ObjectKind, namespace: str = "") -> Sequence[Json]:
            return [{"status": {"providerID": NODE.provider_id}}]

    provider = build_provider(
        ProviderConfig(replace=ProviderName.KARPENTER), FakeClock(), lambda *_: Empty(None)
    )
    with pytest.raises(RetryLater, match=r"unexpected response.*KeyError: 'metadata'") as raised:
        provider.replace(NODE, "token")
    assert raised.value.is_outcome_unknown
    assert not isinstance(raised.value, NodeGone)
