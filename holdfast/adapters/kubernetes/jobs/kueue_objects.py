"""Kueue's objects for the queues of teams. Names are those of HyperPod's task governance."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.jobs.node_types import TYPE_LABEL
from holdfast.model.names import MANAGED_NAMESPACE, OWN_PREFIX
from holdfast.model.team_queues import CPU, FlavorQuota, TeamQueue

GROUP: Final = "kueue.x-k8s.io"

OWNER: Final = f"{OWN_PREFIX}/policy"
"""Label: ID of the policy that an object belongs to."""

FLAVORS: Final = "flavors"
"""Owner of resource flavors, which queues share."""


def namespace_of(team: str) -> str:
    """Namespace of a team."""
    return f"{MANAGED_NAMESPACE}{team}"


def namespace(team: str) -> Json:
    """Namespace of a team, which stays when its queue is removed."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace_of(team)}}


def priority_class(owner: str, name: str, weight: int) -> Json:
    """Priority class; jobs name it in ``kueue.x-k8s.io/priority-class``."""
    return {**_object("WorkloadPriorityClass", f"{name}-priority", owner), "value": weight}


def flavors(queue: TeamQueue) -> list[Json]:
    """Resource flavors of a queue: one for each instance type."""
    return [
        {
            **_object("ResourceFlavor", one.instance_type, FLAVORS),
            "spec": {"nodeLabels": {TYPE_LABEL: one.label}},
        }
        for one in queue.flavors
    ]


def cluster_queue(owner: str, queue: TeamQueue) -> Json:
    """``ClusterQueue`` of a team, which serves its namespace alone."""
    home = {"matchLabels": {"kubernetes.io/metadata.name": namespace_of(queue.team)}}
    lower = "LowerPriority" if queue.preempts else "Never"
    spec: Json = {
        "namespaceSelector": home,
        "resourceGroups": resource_groups(queue.flavors),
        "preemption": {
            "withinClusterQueue": lower,
            "reclaimWithinCohort": "Any" if queue.cohort else "Never",
        },
        "stopPolicy": "None" if queue.is_enabled else "Hold",
    }
    if queue.cohort:
        spec["cohort"] = queue.cohort
    if queue.weight is not None:
        spec["fairSharing"] = {"weight": str(queue.weight)}
    name = f"{namespace_of(queue.team)}-clusterqueue"
    return {**_object("ClusterQueue", name, owner), "spec": spec}


def local_queue(owner: str, queue: TeamQueue) -> Json:
    """``LocalQueue`` of a team; jobs name it in ``kueue.x-k8s.io/queue-name``."""
    home = namespace_of(queue.team)
    found = _object("LocalQueue", f"{home}-localqueue", owner)
    found["metadata"]["namespace"] = home
    return {**found, "spec": {"clusterQueue": f"{home}-clusterqueue"}}


def cohort(owner: str, name: str, quotas: Sequence[FlavorQuota]) -> Json:
    """``Cohort`` with the compute that no queue has."""
    return {**_object("Cohort", name, owner), "spec": {"resourceGroups": resource_groups(quotas)}}


def resource_groups(quotas: Sequence[FlavorQuota]) -> list[Json]:
    """Quotas of flavors, all of which have the same resources."""
    if not quotas:
        return []
    names = list(quotas[0].nominal)
    return [
        {
            "coveredResources": names,
            "flavors": [
                {"name": one.instance_type, "resources": [_quota(one, name) for name in names]}
                for one in quotas
            ],
        }
    ]


def _quota(flavor: FlavorQuota, name: str) -> Json:
    found = {"name": name, "nominalQuota": _text(name, flavor.nominal[name])}
    if flavor.borrowing is not None:
        found["borrowingLimit"] = _text(name, flavor.borrowing[name])
    return found


def _text(resource: str, amount: int) -> str:
    return f"{amount}m" if resource == CPU else str(amount)


def _object(kind: str, name: str, owner: str) -> dict[str, Any]:
    labels: Mapping[str, str] = {OWNER: owner}
    metadata = {"name": name, "labels": dict(labels)}
    return {"apiVersion": f"{GROUP}/v1beta1", "kind": kind, "metadata": metadata}
