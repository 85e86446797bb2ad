"""SageMaker HyperPod: requests the reboot or replacement of a cluster node."""

from datetime import timedelta
from typing import Final

from holdfast.adapters.providers.aws_calls import (
    UNREACHABLE_PAUSE,
    Aws,
    AwsRefusal,
    instance_id,
    is_named,
    require_instance_of,
)
from holdfast.adapters.providers.settings import ProviderConfig, SageMakerSettings
from holdfast.model.errors import ConfigError, NodeGone, ProviderError, RetryLater
from holdfast.model.nodes import NodeView

_BUSY_PAUSE: Final = timedelta(minutes=1)
"""Delay while HyperPod has another operation on the node; its reboots take 1 to 3 minutes."""


class SageMaker:
    """Provider for the nodes of one HyperPod cluster."""

    def __init__(self, sagemaker: Aws, cluster: str) -> None:
        self._sagemaker = sagemaker
        self._cluster = cluster

    def reboot(self, node: NodeView, token: str) -> None:  # noqa: ARG002
        """Call ``BatchRebootClusterNodes``; a repeated call gets ``InstanceIdInUse``."""
        instance = instance_id(node, self._sagemaker.region)
        self._require(node, instance)
        failure = self._order("batch_reboot_cluster_nodes", instance)
        if failure is not None:
            raise _refusal(failure, instance, self._cluster)

    def replace(self, node: NodeView, token: str) -> None:  # noqa: ARG002
        """Call ``BatchReplaceClusterNodes``, unless the node is being replaced or gone."""
        instance = instance_id(node, self._sagemaker.region)
        self._require(node, instance)
        failure = self._order("batch_replace_cluster_nodes", instance)
        if failure is None or _is_being_replaced(failure):
            return
        refusal = _refusal(failure, instance, self._cluster)
        if not isinstance(refusal, NodeGone):
            raise refusal

    def _require(self, node: NodeView, instance: str) -> None:
        """Refuse an instance that is not the node's; one that is gone is left to the order."""
        if is_named(node, instance):
            return
        try:
            answer = self._sagemaker.call(
                "describe_cluster_node", ClusterName=self._cluster, NodeId=instance
            )
        except AwsRefusal as error:
            if _is_unknown(error) or error.code == "ValidationException":
                return
            raise
        found = answer["NodeDetails"]
        keys = ("PrivateDnsHostname", "PrivatePrimaryIp", "PrivatePrimaryIpv6")
        require_instance_of(node, instance, [found.get(key) or "" for key in keys])

    def _order(self, operation: str, instance: str) -> dict[str, str] | None:
        """Submit one order; returns the failure of the node if it was refused."""
        try:
            answer = self._sagemaker.call(operation, ClusterName=self._cluster, NodeIds=[instance])
        except AwsRefusal as error:
            if _is_unknown(error):
                raise ProviderError(f"{error}; check provider.sagemaker.cluster") from error
            raise
        entries = [
            one for reported in answer.values() if isinstance(reported, list) for one in reported
        ]
        if instance in entries:
            return None
        refused = [one for one in entries if isinstance(one, dict)]
        failure = next((one for one in refused if one["NodeId"] == instance), None)
        if failure is None:
            raise RetryLater(
                f"SageMaker did not report whether it accepted the order for {instance}",
                after=UNREACHABLE_PAUSE,
                is_outcome_unknown=True,
            )
        return {key: str(value) for key, value in failure.items()}


def _is_unknown(error: AwsRefusal) -> bool:
    """Whether the cluster or the node does not exist."""
    return error.code in ("ResourceNotFound", "ResourceNotFoundException")


def _is_being_replaced(failure: dict[str, str]) -> bool:
    return failure["ErrorCode"] == "InstanceIdInUse" and "replace" in failure["Message"].lower()


def _refusal(failure: dict[str, str], instance: str, cluster: str) -> ProviderError:
    code = failure["ErrorCode"]
    message = f"SageMaker refused {instance} of {cluster}: {code}: {failure['Message']}"
    match code:
        case "InstanceIdNotFound":
            return NodeGone(message)
        case "InstanceIdInUse" | "InvalidInstanceStatus":
            return RetryLater(message, after=_BUSY_PAUSE)
        case "InternalServerError":
            return RetryLater(message, after=UNREACHABLE_PAUSE, is_outcome_unknown=True)
    return ProviderError(message)


def build(config: ProviderConfig) -> SageMaker:
    """Build the provider."""
    settings = config.sagemaker
    if not isinstance(settings, SageMakerSettings):
        raise ConfigError("provider.sagemaker: missing, expected a table with cluster")
    return SageMaker(Aws("sagemaker", config.aws), settings.cluster)
