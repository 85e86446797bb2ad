"""``KubernetesConfig``: labels and taints of the nodes of an instance group."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from holdfast.api.clusters import Node
from holdfast.api.sagemaker_model import Json
from holdfast.decisions.node_settings import shared
from holdfast.model.names import LABEL_PREFIX, OWN_PREFIX
from holdfast.model.node_settings import KubernetesConfig, Taint

RESERVED: Final = (
    "kubernetes.io",
    "k8s.io",
    LABEL_PREFIX,
    "eks.amazonaws.com",
    "k8s.aws",
    "karpenter.sh",
    OWN_PREFIX,
)
"""Prefixes of keys of others, with their subdomains: those that HyperPod reserves, and our own."""

_PREFIX_LIMIT: Final = 253
_NAME_LIMIT: Final = 63
"""Maximum number of characters before and after the slash of a key, as in Kubernetes."""


def config_rejections(config: Json) -> Iterator[str]:
    """Problems of a ``KubernetesConfig`` that the model does not detect."""
    for key in config.get("Labels", {}):
        yield from _key_rejections(f"KubernetesConfig.Labels: {key}", key)
    taints = [(one["Key"], one["Effect"]) for one in config.get("Taints", ())]
    for key, effect in dict.fromkeys(taints):
        yield from _key_rejections(f"KubernetesConfig.Taints: {key}", key)
        if taints.count((key, effect)) > 1:
            yield (
                f"KubernetesConfig.Taints: {key}:{effect} is duplicated; a node has one taint of a "
                "key and an effect"
            )


def requested_config(config: Json) -> KubernetesConfig:
    """Labels and taints of a valid ``KubernetesConfig``."""
    return KubernetesConfig(
        labels=dict(config.get("Labels", {})),
        taints=tuple(
            Taint(key=one["Key"], effect=one["Effect"], value=one.get("Value", ""))
            for one in config.get("Taints", ())
        ),
    )


def group_config(desired: KubernetesConfig, nodes: Sequence[Node]) -> Json | None:
    """``KubernetesConfig`` of ``DescribeCluster``; current is what all nodes have."""
    return described_config(desired, shared([one.settings for one in nodes if one.has_machine]))


def described_config(desired: KubernetesConfig, current: KubernetesConfig) -> Json | None:
    """Desired and current labels and taints; None if there are none."""
    if desired.is_empty and current.is_empty:
        return None
    return {
        "CurrentLabels": dict(current.labels),
        "DesiredLabels": dict(desired.labels),
        "CurrentTaints": _taints(current),
        "DesiredTaints": _taints(desired),
    }


def _taints(config: KubernetesConfig) -> list[dict[str, Any]]:
    return [
        {"Key": one.key, "Effect": one.effect, **({"Value": one.value} if one.value else {})}
        for one in config.taints
    ]


def _key_rejections(where: str, key: str) -> Iterator[str]:
    prefix, _, name = key.rpartition("/")
    if len(prefix) > _PREFIX_LIMIT or len(name) > _NAME_LIMIT:
        yield (
            f"{where}: expected at most {_PREFIX_LIMIT} characters before the slash and "
            f"{_NAME_LIMIT} after it, got {len(prefix)} and {len(name)}"
        )
    for reserved in RESERVED:
        if prefix == reserved or prefix.endswith(f".{reserved}"):
            yield f"{where}: the prefix {reserved}/ is reserved; use a prefix of your own"
