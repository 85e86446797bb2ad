"""Access keys of the API and the console, their roles, and what each may do."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from enum import StrEnum
from typing import Final

from holdfast.api.problems import AccessDenied, ExpiredKey

_SHA256: Final = re.compile("[0-9a-f]{64}")
_NAME_LIMIT: Final = 128


class Role(StrEnum):
    """Permissions of the owner of a key; each role includes those before it."""

    VIEW = "view"
    """Read only."""

    OPERATE = "operate"
    """Request reboots, replacements and checks, and pause repairs."""

    ADMIN = "admin"
    """Create, change and delete clusters, including their lifecycle scripts."""

    def includes(self, other: "Role") -> bool:
        """Whether this role has all permissions of another one."""
        order = list(Role)
        return order.index(self) >= order.index(other)


CONSOLE: Final = "ReadConsole"
"""Operation of reading the pages of the console."""

KUBERNETES: Final = "eks:AccessKubernetesApi"
"""Operation of logging in to the Kubernetes cluster with a key."""

REQUIRED_ROLE: Final[Mapping[str, Role]] = {
    "ListClusters": Role.VIEW,
    "DescribeCluster": Role.VIEW,
    "ListClusterNodes": Role.VIEW,
    "DescribeClusterNode": Role.VIEW,
    "ListClusterEvents": Role.VIEW,
    "DescribeClusterEvent": Role.VIEW,
    "ListTags": Role.VIEW,
    "DescribeClusterSchedulerConfig": Role.VIEW,
    "ListClusterSchedulerConfigs": Role.VIEW,
    "DescribeComputeQuota": Role.VIEW,
    "ListComputeQuotas": Role.VIEW,
    "eks:ListClusters": Role.VIEW,
    "eks:DescribeCluster": Role.VIEW,
    "eks:ListAccessEntries": Role.VIEW,
    "eks:DescribeAccessEntry": Role.VIEW,
    KUBERNETES: Role.VIEW,
    CONSOLE: Role.VIEW,
    "ReadJobLogs": Role.VIEW,
    "BatchRebootClusterNodes": Role.OPERATE,
    "BatchReplaceClusterNodes": Role.OPERATE,
    "StartClusterHealthCheck": Role.OPERATE,
    "HoldNode": Role.OPERATE,
    "UnholdNode": Role.OPERATE,
    "ReleaseNode": Role.OPERATE,
    "ResetBreaker": Role.OPERATE,
    "CancelJob": Role.OPERATE,
    "ReadAuditLog": Role.ADMIN,
    "CreateCluster": Role.ADMIN,
    "UpdateCluster": Role.ADMIN,
    "DeleteCluster": Role.ADMIN,
    "UpdateClusterSoftware": Role.ADMIN,
    "BatchAddClusterNodes": Role.ADMIN,
    "BatchDeleteClusterNodes": Role.ADMIN,
    "AddTags": Role.ADMIN,
    "DeleteTags": Role.ADMIN,
    "CreateClusterSchedulerConfig": Role.ADMIN,
    "UpdateClusterSchedulerConfig": Role.ADMIN,
    "DeleteClusterSchedulerConfig": Role.ADMIN,
    "CreateComputeQuota": Role.ADMIN,
    "UpdateComputeQuota": Role.ADMIN,
    "DeleteComputeQuota": Role.ADMIN,
}
"""``operation -> least role``, of the API and of the console's own actions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Authenticated caller of the API or the console."""

    person: str
    """Name, recorded as requester."""

    role: Role
    operations: frozenset[str] | None = None
    """Permitted operations; None for all of the role."""

    clusters: frozenset[str] | None = None
    """Names of the permitted clusters; None for all."""

    def rejection(self, operation: str) -> str:
        """Why the caller may not use an operation; empty if it may."""
        action = operation if ":" in operation else f"sagemaker:{operation}"
        denied = f"{self.person} is not authorized to perform: {action}; "
        required = REQUIRED_ROLE[operation]
        if not self.role.includes(required):
            return f"{denied}the role is {self.role}, and {required} is needed"
        if self.operations is not None and operation not in self.operations:
            return f"{denied}the operations of the key do not include it"
        return ""

    def permit(self, operation: str) -> None:
        """Authorize the use of an operation.

        Raises:
            AccessDenied: the role or the operations of the caller do not include it.

        """
        if why := self.rejection(operation):
            raise AccessDenied(why)

    def may_use(self, cluster: str) -> bool:
        """Whether the caller may see and change a cluster."""
        return self.clusters is None or cluster in self.clusters


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Permissions of a key, or of a group of an identity provider."""

    role: Role
    operations: tuple[str, ...] | None = None
    """Permitted operations. Default: all operations of the role."""

    clusters: tuple[str, ...] | None = None
    """Names of the permitted clusters. Default: all clusters."""

    def __post_init__(self) -> None:
        for name in ("operations", "clusters"):
            if getattr(self, name) == ():
                raise ValueError(
                    f"{name} is an empty list, which permits nothing; name the permitted {name}, "
                    "or remove the line to permit all"
                )
        for operation in self.operations or ():
            self._refuse_useless(operation)

    def _refuse_useless(self, operation: str) -> None:
        required = REQUIRED_ROLE.get(operation)
        if required is None:
            near = get_close_matches(operation, REQUIRED_ROLE, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(REQUIRED_ROLE)}"
            raise ValueError(f"operations: {operation!r} is not an operation; {hint}")
        if not self.role.includes(required):
            raise ValueError(
                f"operations: {operation} requires the role {required}, and the role is {self.role}"
            )

    def principal(self, person: str) -> Principal:
        """A caller with these permissions."""
        return Principal(
            person=person,
            role=self.role,
            operations=None if self.operations is None else frozenset(self.operations),
            clusters=None if self.clusters is None else frozenset(self.clusters),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessKey:
    """Access key in the form that AWS clients use."""

    access_key_id: str
    secret_access_key: str
    """Secret that signs requests. Verifying a signature requires the secret itself, so it cannot
    be stored as a hash."""

    role: Role = Role.VIEW
    name: str = ""
    """Owner of the key, recorded as requester. Default: the key's ID."""

    token_sha256: str = ""
    """SHA-256 digest, in hexadecimal, of the token for the console login. Without one, the owner
    cannot log in with a token."""

    expires_at: datetime | None = None
    """Time from which the key and its sessions are rejected. Default: never."""

    operations: tuple[str, ...] | None = None
    """Permitted operations. Default: all operations of the role."""

    clusters: tuple[str, ...] | None = None
    """Names of the permitted clusters. Default: all clusters."""

    def __post_init__(self) -> None:
        if not 16 <= len(self.access_key_id) <= 128 or not self.access_key_id.isalnum():
            raise ValueError(
                "access_key_id must be 16 to 128 letters and digits, got "
                f"{len(self.access_key_id)} characters"
            )
        if len(self.secret_access_key) < 16:
            raise ValueError(
                "secret_access_key must have 16 characters or more, got "
                f"{len(self.secret_access_key)}"
            )
        if len(self.name) > _NAME_LIMIT or not self.name.isprintable():
            raise ValueError(
                f"name must be at most {_NAME_LIMIT} printable characters, got {self.name!r}"
            )
        if self.token_sha256 and not _SHA256.fullmatch(self.token_sha256):
            raise ValueError(
                "token_sha256 must be the SHA-256 digest of the token: 64 hexadecimal digits in "
                f"lower case, got {len(self.token_sha256)} characters"
            )
        self._grant()  # refuses permissions that make no sense

    def __repr__(self) -> str:
        return f"Key({self.access_key_id}, {self.role})"

    def _grant(self) -> Grant:
        return Grant(role=self.role, operations=self.operations, clusters=self.clusters)

    @property
    def principal(self) -> Principal:
        """The owner of the key."""
        return self._grant().principal(self.name or self.access_key_id)

    def is_expired(self, now: datetime) -> bool:
        """Whether the key is no longer valid."""
        return self.expires_at is not None and self.expires_at <= now


def token_digest(token: str) -> str:
    """SHA-256 digest of a console token, in hexadecimal.

    Tokens are random, with more than 128 bits: a salt and a slow function would add nothing.
    """
    return hashlib.sha256(token.encode()).hexdigest()


class Keyring:
    """All keys."""

    def __init__(self, keys: tuple[AccessKey, ...]) -> None:
        self._keys = {key.access_key_id: key for key in keys}

    @property
    def principals(self) -> Sequence[Principal]:
        """Owners of all keys, including those that have expired."""
        return [key.principal for key in self._keys.values()]

    @property
    def secrets(self) -> Mapping[str, str]:
        """``access key id -> secret access key``."""
        return {key.access_key_id: key.secret_access_key for key in self._keys.values()}

    def owner(self, key_id: str, now: datetime) -> Principal:
        """Owner of the key with that ID, which must exist.

        Raises:
            ExpiredKey: the key is no longer valid.

        """
        key = self._keys[key_id]
        if key.is_expired(now):
            raise ExpiredKey(
                f"The key {key_id} of {key.principal.person} expired at {key.expires_at}; create "
                "another one with: holdfast api --new-key"
            )
        return key.principal
