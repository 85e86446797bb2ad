"""Access keys of the API and their roles."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from holdfast.api.problems import AccessDenied


class Role(StrEnum):
    """Permissions of the owner of a key."""

    VIEW = "view"
    """Read only."""

    OPERATE = "operate"
    """Read, and request reboots, replacements and checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessKey:
    """Access key in the form that AWS clients use."""

    access_key_id: str
    secret_access_key: str
    role: Role = Role.VIEW
    name: str = ""
    """Owner of the key, recorded as requester. Default: the key's ID."""

    token: str = ""
    """Token for the console login; without one the owner cannot log in. It is sent over the
    network, unlike the secret, so the two must differ."""

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
        if self.token and len(self.token) < 16:
            raise ValueError(f"token must have 16 characters or more, got {len(self.token)}")

    def __repr__(self) -> str:
        return f"Key({self.access_key_id}, {self.role})"

    @property
    def person(self) -> str:
        """Requester, for the record."""
        return self.name or self.access_key_id


class Keyring:
    """All keys."""

    def __init__(self, keys: tuple[AccessKey, ...]) -> None:
        self._keys = {key.access_key_id: key for key in keys}

    @property
    def secrets(self) -> Mapping[str, str]:
        """``access key id -> secret access key``."""
        return {key.access_key_id: key.secret_access_key for key in self._keys.values()}

    def owner(self, key_id: str) -> AccessKey:
        """Key with that ID, which must exist."""
        return self._keys[key_id]


def permit(key: AccessKey, operation: str, *, changes: bool) -> None:
    """Authorize the owner of a key to call an operation.

    Raises:
        AccessDenied: the key is read-only.

    """
    if changes and key.role is not Role.OPERATE:
        raise AccessDenied(
            f"{key.person} is not authorized to perform: sagemaker:{operation}; its key has the "
            f"role {key.role}, and {Role.OPERATE} is needed"
        )
