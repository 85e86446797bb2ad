"""The AWS services of a server, assembled from its configuration."""

from holdfast.api.audit import AuditTrail
from holdfast.api.aws_services import AwsServices
from holdfast.api.call import AwsLocation, ClusterCreation
from holdfast.api.eks import EksProtocol
from holdfast.api.identity import Keyring
from holdfast.api.kubernetes_cluster import KubernetesCluster
from holdfast.api.kubernetes_tokens import TokenReviews
from holdfast.api.protocol import Protocol
from holdfast.api.sts import StsProtocol
from holdfast.apps.api.adopted import Opener, proper_name
from holdfast.apps.api.config import ApiConfig
from holdfast.apps.clock import SystemClock
from holdfast.apps.target import TargetPlatform, Where
from holdfast.model.errors import ConfigError


def services_of(
    config: ApiConfig,
    where: Where,
    clusters: Opener,
    audit: AuditTrail,
    creation: ClusterCreation | None,
) -> AwsServices:
    """Services of a server.

    Raises:
        ConfigError: the Kubernetes cluster does not fit the platform, or its file cannot be read.

    """
    keys, clock = Keyring(config.keys), SystemClock()
    place = AwsLocation(region=config.region, account=config.account)
    kubernetes = _kubernetes(config, where)
    sagemaker = Protocol(keys, place, clusters, clock, audit, creation, kubernetes)
    return AwsServices(
        sagemaker=sagemaker,
        operations=sagemaker.operations,
        sts=StsProtocol(keys, place, clock),
        eks=EksProtocol(keys, place, kubernetes, clock),
        tokens=None if kubernetes is None else TokenReviews(keys, place, kubernetes, clock),
    )


def _kubernetes(config: ApiConfig, where: Where) -> KubernetesCluster | None:
    settings = config.kubernetes
    if settings is None:
        return None
    if where.place is not TargetPlatform.KUBERNETES:
        raise ConfigError(
            f"kubernetes: describes the cluster of --platform kubernetes, and --platform is "
            f"{where.place}; remove the table"
        )
    return KubernetesCluster(
        name=proper_name(config.name),
        endpoint=settings.endpoint,
        certificate_authority=settings.read_authority(),
        created_at=SystemClock().now(),
    )
