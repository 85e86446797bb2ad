"""The clusters that the API shows, as it sees them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from holdfast.model.clusters import ClusterEvent, DesiredCluster
from holdfast.model.incidents import Incident
from holdfast.model.names import DeepCheck
from holdfast.model.requests import Verb
from holdfast.model.sagemaker import InstanceStatus

_ID_CHARS: Final = 12
_INSTANCE_CHARS: Final = 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node of a cluster."""

    name: str
    instance_id: str
    """Of the form ``i-0123456789abcdef0``."""

    group: str
    instance_type: str
    launched_at: datetime
    status: InstanceStatus
    message: str = ""
    """Why the status is what it is; empty for a healthy node."""

    logical_id: str = ""
    """``NodeLogicalId``; the name if left out."""

    has_machine: bool = True
    """Whether there is a machine for it yet."""

    @property
    def known_as(self) -> str:
        """Its ``NodeLogicalId``."""
        return self.logical_id or self.name


class Cluster(Protocol):
    """One cluster that somebody looks after. Every method may raise ``BackendError``."""

    @property
    def name(self) -> str:
        """As SageMaker wants it: letters, digits and dashes, 63 at most."""
        ...

    @property
    def created_at(self) -> datetime:
        """Since when it is shown."""
        ...

    @property
    def id(self) -> str:
        """The last part of its ARN; another cluster of its name has another."""
        ...

    @property
    def is_listed(self) -> bool:
        """Whether it is a cluster; a plain run on this machine only answers to its name."""
        ...

    def nodes(self) -> Sequence[Node]:
        """All nodes, in no order."""
        ...

    def incidents(self) -> Sequence[Incident]:
        """All incidents that are remembered."""
        ...

    def wanted(self) -> DesiredCluster | None:
        """What was asked for through the API; None for a cluster that came to be otherwise."""
        ...

    def cluster_events(self) -> Sequence[ClusterEvent]:
        """What became of that, oldest first."""
        ...

    def submit(self, node: str, verb: Verb, person: str, checks: Sequence[DeepCheck] = ()) -> str:
        """Record what a person wants for a node; why that is in vain, or nothing.

        Args:
            node: its name.
            verb: what is wanted.
            person: who wants it.
            checks: of a deep health check, these kinds; all if there are none.

        """
        ...


def cluster_id(name: str) -> str:
    """The last part of the ARN of a cluster that has no unique ID: made of its name."""
    return hashlib.sha256(name.encode()).hexdigest()[:_ID_CHARS]


def instance_id(provider_id: str) -> str:
    """The EC2 id of a machine, or one of that form for a machine of somebody else."""
    last = provider_id.rpartition("/")[2]
    if last.startswith("i-") and len(last) in (10, 19):
        return last
    return f"i-{hashlib.sha256(provider_id.encode()).hexdigest()[:_INSTANCE_CHARS]}"
