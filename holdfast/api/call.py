"""One call of an operation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from holdfast.api.clusters import Cluster, Node
from holdfast.api.identity import AccessKey
from holdfast.api.problems import ResourceNotFound, ValidationException
from holdfast.api.sagemaker_model import Json
from holdfast.model.clusters import DesiredCluster
from holdfast.ports.cluster_records import ClusterRecords, RecordedRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsLocation:
    """Where the clusters are, in the words of AWS: part of every ARN."""

    region: str
    account: str

    def arn(self, cluster_id: str) -> str:
        """Of a cluster by its ID."""
        return f"arn:aws:sagemaker:{self.region}:{self.account}:cluster/{cluster_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """Where it is written what people want, and what of it can be had."""

    records: ClusterRecords
    objections: Callable[[DesiredCluster], Sequence[str]]
    """What of a cluster cannot be had here, a sentence for each."""

    wake: Callable[[str], None]
    """Has whoever brings clusters about look at one of them at once."""

    node_limit: int
    """How many nodes all clusters together may have."""

    has_alarms: bool
    """Whether alarms can be heard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is asked, by whom, and of which clusters."""

    request: Json
    """It fits the model of its operation."""

    key: AccessKey
    clusters: Sequence[Cluster]
    place: AwsLocation
    now: datetime
    maker: Maker | None = None
    """Where new clusters are written down; None where none can be made."""

    def made(self) -> Maker:
        """Where new clusters are written down.

        Raises:
            ValidationException: none can be made here.

        """
        if self.maker is None:
            raise ValidationException(
                "Clusters cannot be created, changed or deleted: this server only shows existing "
                "clusters"
            )
        return self.maker

    def requested(self, operation: str) -> RecordedRequest:
        """The request, for the record."""
        return RecordedRequest(
            at=self.now, person=self.key.person, operation=operation, request=self.request
        )

    def cluster(self) -> Cluster:
        """The one that the request names, by its name or ARN.

        Raises:
            ResourceNotFound: there is none.

        """
        named = self.request["ClusterName"]
        for one in self.clusters:
            if named in (one.name, self.place.arn(one.id)):
                return one
        raise ResourceNotFound(f"Cluster with name {named} not found")


def node_named(nodes: Sequence[Node], request: Json) -> Node:
    """The node that a request names, by its id or its logical id.

    Raises:
        ResourceNotFound: there is none.

    """
    wanted = request.get("NodeId") or request.get("NodeLogicalId")
    for one in nodes:
        if wanted in (one.instance_id, one.known_as, one.name):
            return one
    raise ResourceNotFound(f"Instance with id {wanted} not found")
