"""Pods that wait for nodes, and the nodes that they could use, from objects of the API server."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.jobs.fitting import fits
from holdfast.adapters.kubernetes.jobs.node_types import TYPE_LABEL, quantity
from holdfast.adapters.kubernetes.nodes.cache import NODES
from holdfast.adapters.kubernetes.nodes.node import Conventions, NodeState, trimmed
from holdfast.adapters.kubernetes.nodes.pods import leaving_pods
from holdfast.model.names import PENDING_PATCH, SCALE_DOWN, Labels, PodReason
from holdfast.model.node_settings import KubernetesConfig, Taint
from holdfast.model.pod_demand import NodeLoad, NodeShape, PodDemand, WaitingPod
from holdfast.model.team_queues import CPU

_PODS: Final = "/api/v1/pods"
_ALIVE: Final = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
_POD_COUNT: Final = "pods"
"""Resource of a node: the number of pods that it may run."""

_HOSTNAME: Final = "kubernetes.io/hostname"
_TRANSIENT: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Prefixes of taints that follow the state of one node."""


class PodsAndNodes:
    """The ``PodScheduling`` of a cluster.

    Args:
        api: client; it needs ``list`` of nodes and of pods in all namespaces.
        machine_id: id of the machine with a provider ID.

    """

    def __init__(self, api: Api, machine_id: Callable[[str], str]) -> None:
        self._api = api
        self._machine_id = machine_id

    def demand(self, shapes: Mapping[str, NodeShape]) -> PodDemand:
        """See ``PodScheduling.demand``."""
        nodes = list(self._api.list(NODES))  # before the pods: none is missed on a node
        ids = [self._machine_id(trimmed(one, Conventions()).provider_id) for one in nodes]
        return demand_of(
            dict(zip(ids, nodes, strict=True)), list(self._api.list(_PODS, _ALIVE)), shapes
        )

    def close(self) -> None:
        """Close the connections."""
        self._api.close()


def demand_of(
    nodes: Mapping[str, Json], pods: Iterable[Json], shapes: Mapping[str, NodeShape]
) -> PodDemand:
    """Return the demand.

    Args:
        nodes: Node objects by the id of their machine.
        pods: Pod objects that have not ended.
        shapes: nodes that could be added.

    """
    placed, waiting = defaultdict(list), []
    for pod in pods:
        if node := (pod.get("spec") or {}).get("nodeName"):
            placed[node].append(pod)
        elif _waits(pod):
            waiting.append(pod)
    loads = {one: _load(node, placed[node["metadata"]["name"]]) for one, node in nodes.items()}
    idle = {key: one.shape for key, one in loads.items() if one.is_open and not one.pods}
    states = {key: _state(shape) for key, shape in {**idle, **shapes}.items()}
    return PodDemand(nodes=loads, waiting=tuple(_waiting(pod, states) for pod in waiting))


def _waits(pod: Json) -> bool:
    """Return whether the scheduler reported that no node can take a pod.

    A pod with a nominated node waits for pods that it preempts there, one of a DaemonSet for its
    own node.
    """
    owners = pod["metadata"].get("ownerReferences") or ()
    status = pod.get("status") or {}
    return (
        not pod["metadata"].get("deletionTimestamp")
        and not status.get("nominatedNodeName")
        and not any(one.get("controller") and one.get("kind") == "DaemonSet" for one in owners)
        and any(
            one.get("type") == "PodScheduled" and one.get("reason") == PodReason.UNSCHEDULABLE
            for one in status.get("conditions") or ()
        )
    )


def _waiting(pod: Json, states: Mapping[str, NodeState]) -> WaitingPod:
    about, spec = pod["metadata"], pod["spec"]
    return WaitingPod(
        name=f"{about['namespace']}/{about['name']}",
        resources=pod_requests(spec),
        fits=frozenset(key for key, state in states.items() if fits(spec, state, Labels())),
    )


def pod_requests(spec: Json) -> dict[str, int]:
    """Return the resources that the scheduler reserves for a pod, in units of ``NodeShape``.

    Init containers run one after the other before the others; those that restart always run
    beside them.
    """
    if own := (spec.get("resources") or {}).get("requests"):
        return _sum([_amounts(own), _amounts(spec.get("overhead")), {_POD_COUNT: 1}])
    lasting = [_requests(one) for one in spec.get("containers") or ()]
    peaks = []
    for one in spec.get("initContainers") or ():
        if one.get("restartPolicy") == "Always":
            lasting.append(_requests(one))
        else:
            peaks.append(_requests(one))
    total = _sum(lasting)
    for peak in peaks:
        total = {name: max(total.get(name, 0), peak.get(name, 0)) for name in {*total, *peak}}
    return _sum([total, _amounts(spec.get("overhead")), {_POD_COUNT: 1}])


def _requests(container: Json) -> dict[str, int]:
    return _amounts((container.get("resources") or {}).get("requests"))


def _amounts(given: Mapping[str, Any] | None) -> dict[str, int]:
    """Return amounts of resources: of CPUs in thousandths, of all others whole ones."""
    found = {}
    for name, text in (given or {}).items():
        amount = quantity(str(text))
        if amount is not None:
            found[name] = int(amount * 1000) if name == CPU else int(amount)
    return found


def _sum(amounts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in amounts:
        for name, amount in one.items():
            total[name] = total.get(name, 0) + amount
    return total


def _load(node: Json, pods: Sequence[Json]) -> NodeLoad:
    state = trimmed(node, Conventions())
    leaving = leaving_pods(pods)
    names = {(one.namespace, one.name) for one in leaving}
    lasting = [
        pod_requests(pod["spec"])
        for pod in pods
        if (pod["metadata"]["namespace"], pod["metadata"]["name"]) not in names
    ]
    used = _sum(lasting)
    there = _amounts((node.get("status") or {}).get("allocatable"))
    labels = Labels()
    own = (labels.node_health_status, labels.deep_health_check_status, labels.deep_health_check)
    taints = [
        Taint(key=one["key"], effect=one["effect"], value=one.get("value") or "")
        for one in (node.get("spec") or {}).get("taints") or ()
    ]
    kept = {key: value for key, value in state.labels.items() if key not in (_HOSTNAME, *own)}
    return NodeLoad(
        shape=NodeShape(
            config=KubernetesConfig(
                labels=kept,
                taints=tuple(
                    one
                    for one in taints
                    if one.key not in (PENDING_PATCH, SCALE_DOWN, *own)
                    and not one.key.startswith(_TRANSIENT)
                ),
            ),
            resources={name: amount - used.get(name, 0) for name, amount in there.items()},
        ),
        is_open=state.ready == "True" and not state.is_unschedulable,
        pods=tuple(map(str, leaving)),
    )


def _state(shape: NodeShape) -> NodeState:
    """Return a node of a shape; without its labels, those that its instance type implies."""
    implied = {"kubernetes.io/os": "linux"}
    if shape.instance_type:
        implied[TYPE_LABEL] = shape.instance_type.removeprefix("ml.")
    taints = [
        {"key": one.key, "effect": one.effect, "value": one.value} for one in shape.config.taints
    ]
    node = {
        "metadata": {"name": "", "labels": {**implied, **shape.config.labels}},
        "spec": {"taints": taints},
    }
    return trimmed(node, Conventions())
