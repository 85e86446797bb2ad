"""Who may call the API, and for what."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from holdfast.api.problems import AccessDenied


class Role(StrEnum):
    """What the owner of a key may do."""

    VIEW = "view"
    """Read."""

    OPERATE = "operate"
    """Read, and ask for reboots, replacements and checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessKey:
    """An access key, in the form that AWS's clients know."""

    access_key_id: str
    secret_access_key: str
    role: Role = Role.VIEW
    name: str = ""
    """Whose it is; requests are made in this name. The key's id if left out."""

    token: str = ""
    """With it its owner logs in to the console; without one nobody does in this name. Unlike the
    secret it travels, so it is another."""

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
        """Who asks, for the record."""
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
        """The key of that id, which is known to be there."""
        return self._keys[key_id]


def permit(key: AccessKey, operation: str, *, changes: bool) -> None:
    """Let the owner of a key do something.

    Raises:
        AccessDenied: the key is only for reading.

    """
    if changes and key.role is not Role.OPERATE:
        raise AccessDenied(
            f"{key.person} is not authorized to perform: sagemaker:{operation}; its key has the "
            f"role {key.role}, and {Role.OPERATE} is needed"
        )
