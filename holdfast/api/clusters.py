"""Port to the clusters that the API shows."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from holdfast.model.clusters import ClusterEvent, DesiredCluster
from holdfast.model.incidents import Incident
from holdfast.model.names import DeepCheck
from holdfast.model.node_settings import KubernetesConfig
from holdfast.model.requests import Verb
from holdfast.model.sagemaker import InstanceStatus

_ID_CHARS: Final = 12
_INSTANCE_CHARS: Final = 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Node of a cluster."""

    name: str
    instance_id: str
    """EC2 instance ID, such as ``i-0123456789abcdef0``."""

    group: str
    instance_type: str
    launched_at: datetime
    status: InstanceStatus
    message: str = ""
    """Reason for the status; empty for a healthy node."""

    logical_id: str = ""
    """``NodeLogicalId``; default: the name of the node."""

    image: str = ""
    """Image that its machine has booted; empty if it is not known."""

    addresses: tuple[str, ...] = ()
    """Its private host names and IP addresses, as far as they are known."""

    has_machine: bool = True
    """Whether the node has a machine yet."""

    settings: KubernetesConfig = field(default_factory=KubernetesConfig)
    """Its labels and taints that its group requests or has requested."""

    @property
    def known_as(self) -> str:
        """``NodeLogicalId`` of the node."""
        return self.logical_id or self.name


class Cluster(Protocol):
    """A managed cluster. Every method may raise ``BackendError``."""

    @property
    def name(self) -> str:
        """Name, valid for SageMaker: at most 63 letters, digits and dashes."""
        ...

    @property
    def created_at(self) -> datetime:
        """Creation time of the cluster."""
        ...

    @property
    def id(self) -> str:
        """Last part of the ARN; a later cluster of the same name has another ID."""
        ...

    @property
    def is_listed(self) -> bool:
        """Whether lists include it; a run on this machine is found only by its name."""
        ...

    def nodes(self) -> Sequence[Node]:
        """All nodes, in no particular order."""
        ...

    def incidents(self) -> Sequence[Incident]:
        """All stored incidents."""
        ...

    def desired(self) -> DesiredCluster | None:
        """Cluster requested through the API; None for a cluster created otherwise."""
        ...

    def cluster_events(self) -> Sequence[ClusterEvent]:
        """Events of the requested cluster, oldest first."""
        ...

    def submit(self, node: str, verb: Verb, person: str, checks: Sequence[DeepCheck] = ()) -> str:
        """Record a person's request for a node; returns why it has no effect, or nothing.

        Args:
            node: name of the node.
            verb: requested action.
            person: requester.
            checks: kinds of deep health checks to run; all if empty.

        """
        ...


def cluster_id(name: str) -> str:
    """Last part of the ARN of a cluster without a unique ID, derived from its name."""
    return hashlib.sha256(name.encode()).hexdigest()[:_ID_CHARS]


def instance_id(provider_id: str) -> str:
    """EC2 instance ID of a machine, or a derived ID of that form outside EC2."""
    last = provider_id.rpartition("/")[2]
    if last.startswith("i-") and len(last) in (10, 19):
        return last
    return f"i-{hashlib.sha256(provider_id.encode()).hexdigest()[:_INSTANCE_CHARS]}"
