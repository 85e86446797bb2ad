"""Labels and taints of the nodes of created clusters: where they are supported."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from importlib import import_module
from typing import Final

from holdfast.adapters.kubernetes.settings import KubernetesSettings
from holdfast.api.clusters import instance_id
from holdfast.apps.target import TargetPlatform, Where
from holdfast.model.clusters import DesiredCluster
from holdfast.ports.kubernetes_nodes import KubernetesNodes

_CONNECTION: Final = "holdfast.apps.kubernetes.labeled_nodes"

Rejections = Callable[[DesiredCluster], Sequence[str]]


def labeled_nodes(where: Where, opened: ExitStack) -> KubernetesNodes | None:
    """Labels and taints of the nodes of a platform; None if it is not Kubernetes.

    Raises:
        ConfigError: the cluster cannot be found.

    """
    if where.place is not TargetPlatform.KUBERNETES:
        return None
    connect = import_module(_CONNECTION).connect_labeled_nodes
    found: KubernetesNodes = opened.enter_context(
        closing(connect(where.kubeconfig, where.context, instance_id))
    )
    return found


def with_settings(where: Where, rejections: Rejections) -> Rejections:
    """Add what a platform does not support of ``KubernetesConfig`` to the rejections of a cluster.

    Args:
        where: platform of the nodes.
        rejections: other rejections.

    """

    def all_rejections(cluster: DesiredCluster) -> Sequence[str]:
        return [*rejections(cluster), *_rejections(where, cluster)]

    return all_rejections


def _rejections(where: Where, cluster: DesiredCluster) -> Iterator[str]:
    for group in cluster.groups:
        config = group.made_of.kubernetes
        key = f"InstanceGroups: {group.name}: KubernetesConfig"
        if config.is_empty or group.is_going:
            continue
        if where.place is not TargetPlatform.KUBERNETES:
            yield (
                f"{key}: labels and taints need nodes of Kubernetes, and --platform of the server "
                f"is {where.place}; omit it"
            )
        for one in sorted(config.labels.keys() & set(KubernetesSettings().group_labels)):
            yield f"{key}.Labels: {one} assigns nodes to instance groups; use another key"
