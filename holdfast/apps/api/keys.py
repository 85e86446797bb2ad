"""New keys for those who call the API."""

import secrets
import string
from typing import Final

from holdfast.api.identity import Key, Role

_LETTERS: Final = string.ascii_uppercase + "234567"


def new_key(role: Role, name: str) -> Key:
    """A key that nobody else has."""
    letters = (secrets.choice(_LETTERS) for _ in range(16))
    return Key(
        access_key_id=f"AKIA{''.join(letters)}",
        secret_access_key=secrets.token_urlsafe(30),
        role=role,
        name=name,
        token=secrets.token_urlsafe(30),
    )
