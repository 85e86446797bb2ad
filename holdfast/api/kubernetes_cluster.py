"""The Kubernetes cluster of the nodes, and the groups of callers in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from holdfast.api.identity import Principal, Role
from holdfast.model.names import OWN_PREFIX

GROUP_PREFIX: Final = f"{OWN_PREFIX}:"
"""Prefix of the Kubernetes groups, which are named after roles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesCluster:
    """Kubernetes cluster, as clients of EKS see it."""

    name: str
    endpoint: str
    """URL of its API server."""

    certificate_authority: str
    """Certificates that clients trust, in PEM format."""

    created_at: datetime
    """Start of the server; EKS requires a time."""


def groups_of(principal: Principal) -> Sequence[str]:
    """Kubernetes groups of a caller: one for its role and one for each role that it includes."""
    return [f"{GROUP_PREFIX}{role}" for role in Role if principal.role.includes(role)]
