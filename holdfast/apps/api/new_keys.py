"""Creates API keys: ``holdfast api --new-key``."""

import json
import os
import secrets
import string
from pathlib import Path
from typing import Final

import click

from holdfast.api.identity import AccessKey, Role, token_digest
from holdfast.kit.files import is_private
from holdfast.model.errors import ConfigError

_LETTERS: Final = string.ascii_uppercase + "234567"
"""Characters of AWS access key IDs."""

_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_PRIVATE: Final = 0o600


def create_key(role: Role, name: str, out: Path | None) -> None:
    """Create a key with random credentials, and print it or append it to a file.

    Args:
        role: role of the key.
        name: owner of the key; may be empty.
        out: configuration file of the API; created if missing. The console token is written to
            ``OUT.KEY_ID.token``. If None, the key goes to standard output and the token to
            standard error.

    Raises:
        ConfigError: the name is invalid, or a file cannot be written or is not private.

    """
    token = secrets.token_urlsafe(30)
    try:
        key = AccessKey(
            access_key_id=f"AKIA{''.join(secrets.choice(_LETTERS) for _ in range(16))}",
            secret_access_key=secrets.token_urlsafe(30),
            role=role,
            name=name,
            token_sha256=token_digest(token),
        )
    except ValueError as error:
        raise ConfigError(f"--name: {error}") from error
    if out is None:
        click.echo(_table(key), nl=False)
        click.echo(f"holdfast api: console token, shown only once: {token}", err=True)
        return
    token_file = out.with_name(f"{out.name}.{key.access_key_id}.token")
    _append(out, "\n" + _table(key))
    _append(token_file, f"{token}\n")
    click.echo(f"{out}: key {key.access_key_id} added; start the API again to use it")
    click.echo(
        f"{token_file}: console token of {key.principal.person}; hand it over and delete the file"
    )


def _table(key: AccessKey) -> str:
    lines = [
        "[[keys]]",
        f'access_key_id = "{key.access_key_id}"',
        f'secret_access_key = "{key.secret_access_key}"',
        f'token_sha256 = "{key.token_sha256}"',
        f'role = "{key.role}"',
    ]
    if key.name:
        name = json.dumps(key.name, ensure_ascii=False)  # a JSON string is a valid TOML string
        lines.append(f"name = {name}")
    return "\n".join(lines) + "\n"


def _append(path: Path, text: str) -> None:
    """Append to a private file; a file that others may read is refused."""
    try:
        handle = os.open(path, _FLAGS | os.O_APPEND, _PRIVATE)
    except OSError as error:
        raise ConfigError(f"--out: cannot write {path}: {error.strerror}") from error
    with open(handle, "ab") as file:
        status = os.fstat(file.fileno())
        if not is_private(status):
            raise ConfigError(
                f"--out: {path} is not a regular file that only this user may access; choose "
                f"another file, or run: chown {os.geteuid()} {path}; chmod 600 {path}"
            )
        try:
            file.write(text.encode() if status.st_size else text.lstrip("\n").encode())
            file.flush()
            os.fsync(file.fileno())
        except OSError as error:
            raise ConfigError(f"--out: cannot write {path}: {error.strerror}") from error
