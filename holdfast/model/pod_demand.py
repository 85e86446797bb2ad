"""Pods that wait for nodes, and the nodes that they could use."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.model.node_settings import KubernetesConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """What a node of a group offers to pods."""

    config: KubernetesConfig = field(default_factory=KubernetesConfig)
    """Labels and taints, without those of one single node."""

    instance_type: str = ""
    """SageMaker's instance type; empty if it is not known."""

    resources: Mapping[str, int] | None = None
    """Resources for pods: CPUs in thousandths, memory in bytes, counts of extended resources. Those
    that DaemonSets use are not included. None before the group has had a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLoad:
    """A node of the Kubernetes cluster, and the pods on it."""

    shape: NodeShape
    is_open: bool
    """Whether it is ready and not cordoned."""

    pods: tuple[str, ...] = ()
    """Pods that a drain would evict, as ``namespace/name``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPod:
    """A pod that the scheduler reported as unschedulable."""

    name: str
    """``namespace/name``."""

    resources: Mapping[str, int]
    """Requested resources, in the units of ``NodeShape.resources``."""

    fits: frozenset[str]
    """Keys of the shapes, and ids of the idle machines, whose labels and taints it accepts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDemand:
    """Pods that wait, and the nodes of all groups, at one time."""

    nodes: Mapping[str, NodeLoad] = field(default_factory=dict)
    """Nodes by the id of their machine; a machine is missing if it has not joined."""

    waiting: tuple[WaitingPod, ...] = ()
    failure: str = ""
    """Why they cannot be read; empty if they can."""
