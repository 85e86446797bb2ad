"""A call of an API operation, with its caller and the clusters that it may use."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from holdfast.api.clusters import Cluster, Node
from holdfast.api.identity import Principal
from holdfast.api.kubernetes_cluster import KubernetesCluster
from holdfast.api.problems import ResourceNotFound, ValidationException
from holdfast.api.sagemaker_model import Json
from holdfast.model.clusters import DesiredCluster
from holdfast.ports.cluster_records import ClusterRecords, RecordedRequest
from holdfast.ports.team_queues import PolicyRecords


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsLocation:
    """Partition, region and account of the clusters: part of every ARN."""

    region: str
    account: str

    def arn(self, cluster_id: str) -> str:
        """ARN of the cluster with an ID."""
        return f"arn:aws:sagemaker:{self.region}:{self.account}:cluster/{cluster_id}"

    def kubernetes_arn(self, name: str) -> str:
        """ARN of the Kubernetes cluster with a name, in the form of EKS."""
        return f"arn:aws:eks:{self.region}:{self.account}:cluster/{name}"

    def user_arn(self, person: str) -> str:
        """ARN of the owner of a key, in the form of IAM; different names never share one."""
        return f"arn:aws:iam::{self.account}:user/{quote(person, safe='+=,.@-_')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCreation:
    """Records of the requested clusters, and what this server supports of a request."""

    records: ClusterRecords
    rejections: Callable[[DesiredCluster], Sequence[str]]
    """Unsupported parts of a cluster: one message for each."""

    wake: Callable[[str], None]
    """Requests immediate reconciliation of a cluster."""

    node_limit: int
    """Maximum number of nodes of all clusters together."""

    has_alarms: bool
    """Whether alarms are supported."""

    mirror_problem: str = ""
    """Why checkpoints of jobs cannot be copied to a second location; empty if they can."""

    policies: PolicyRecords | None = None
    """Scheduler configurations and compute quotas; None without Kubernetes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request, its caller, and the clusters in its scope."""

    request: Json
    """Request, valid by the model of its operation."""

    principal: Principal
    clusters: Sequence[Cluster]
    """Clusters that the caller may use."""

    place: AwsLocation
    now: datetime
    kubernetes: KubernetesCluster | None = None
    """Kubernetes cluster of the nodes; None if none is configured."""

    creation: ClusterCreation | None = None
    """Records of created clusters; None if this server cannot create clusters."""

    def require_creation(self) -> ClusterCreation:
        """Records of created clusters.

        Raises:
            ValidationException: this server cannot create clusters.

        """
        if self.creation is None:
            raise ValidationException(
                "Clusters cannot be created, changed or deleted: this server only shows existing "
                "clusters"
            )
        return self.creation

    def requested(self, operation: str) -> RecordedRequest:
        """The request, for the record."""
        return RecordedRequest(
            at=self.now, person=self.principal.person, operation=operation, request=self.request
        )

    def cluster(self) -> Cluster:
        """Cluster that the request names, by its name or ARN.

        Raises:
            ResourceNotFound: no such resource exists.

        """
        named = self.request["ClusterName"]
        for one in self.clusters:
            if named in (one.name, self.place.arn(one.id)):
                return one
        raise ResourceNotFound(f"Cluster with name {named} not found")


def node_named(nodes: Sequence[Node], request: Json) -> Node:
    """Node that a request names, by its ID or its logical ID.

    Raises:
        ResourceNotFound: no such resource exists.

    """
    node_id = request.get("NodeId") or request.get("NodeLogicalId")
    for one in nodes:
        if node_id in (one.instance_id, one.known_as, one.name):
            return one
    raise ResourceNotFound(f"Instance with id {node_id} not found")
