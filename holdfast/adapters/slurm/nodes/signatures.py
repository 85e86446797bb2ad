"""Signatures of agents' reports: a file is accepted only from the agent of its node.

A signed file has two lines: the content, and a credential of munge with the digest of the content.
The content names the node, its boot and its machine; munge adds the user and the time.
"""

import hashlib
import os
import stat
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

from holdfast.kit.units import format_duration
from holdfast.model.errors import BackendError

SIGN_EVERY: Final = timedelta(minutes=5)
"""Interval at which an agent signs an unchanged report again; for 1,000 nodes, the controller
verifies three signatures each second."""

VALID_FOR: Final = 3 * SIGN_EVERY
"""Maximum age of a signature; an older one is a replay, or its agent is dead."""

SKEW: Final = timedelta(minutes=5)
"""How far a clock may be ahead; munge itself allows no more."""

_PURPOSE: Final = b"holdfast-report:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A genuine credential; its age is for the caller to judge."""

    payload: bytes
    uid: int
    """User that encoded it."""

    encoded_at: datetime


class CredentialsUnavailable(BackendError):
    """The service that encodes and decodes credentials does not respond."""


class Credentials(Protocol):
    """Signs for this process' user, and verifies signatures of all nodes."""

    def encode(self, payload: bytes) -> str:
        """Return a credential, one line of text.

        Raises:
            CredentialsUnavailable: the service does not respond.

        """
        ...

    def decode(self, credential: str) -> Credential:
        """Return a credential that was encoded on a node of this cluster, of any age.

        Raises:
            ValueError: it is not genuine.
            CredentialsUnavailable: the service does not respond.

        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Whose reports are accepted."""

    credentials: Credentials
    users: frozenset[int]
    """Users that agents run as: root, SlurmUser and that of the controller."""


def signed(content: str, credentials: Credentials) -> str:
    """Return the text of a file with ``content``, one line, signed by this process' user.

    Raises:
        CredentialsUnavailable: it cannot be signed now.

    """
    return f"{content}\n{credentials.encode(_payload(content.encode()))}\n"


def split(data: bytes) -> tuple[bytes, str]:
    """Return the content and the credential of a file; the latter is empty if missing."""
    content, _, credential = data.partition(b"\n")
    return content, credential.strip().decode("ascii", "replace")


def signed_at(content: bytes, credential: str, trust: Trust) -> datetime:
    """Return when ``content`` was signed by an agent.

    Raises:
        ValueError: no agent has signed it.
        CredentialsUnavailable: the signature cannot be verified now.

    """
    if not credential:
        raise ValueError("not signed; the agent of that node must be of this release")
    found = trust.credentials.decode(credential)
    if found.payload != _payload(content):
        raise ValueError("the signature does not match the content")
    if found.uid not in trust.users:
        allowed = ", ".join(map(str, sorted(trust.users)))
        raise ValueError(f"signed by user {found.uid}, expected one of {allowed}")
    return found.encoded_at


def check_age(signed_at: datetime, now: datetime) -> None:
    """Check that a signature is current.

    Raises:
        ValueError: it is too old, or from the future.

    """
    age = now - signed_at
    if age > VALID_FOR:
        raise ValueError(
            f"signed {format_duration(age)} ago, more than {format_duration(VALID_FOR)}: the agent"
            " has stopped, or clocks differ"
        )
    if age < -SKEW:
        raise ValueError(f"signed {format_duration(-age)} in the future: clocks differ")


def directory_problem(folder: Path, users: frozenset[int]) -> str:
    """Return who else may change files in a directory of reports; empty if nobody.

    The parents are those of its path and, where a link leads elsewhere, those of its target.

    Raises:
        OSError: it cannot be read.

    """
    for one in dict.fromkeys((folder, *folder.absolute().parents, *folder.resolve().parents)):
        status = os.stat(one)
        is_open = bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
        if is_open and (one == folder or not status.st_mode & stat.S_ISVTX):
            mode = stat.S_IMODE(status.st_mode)
            return f"{one}: mode {mode:04o} lets other users change reports; run: chmod go-w {one}"
        if status.st_uid not in users:
            return (
                f"{one}: its owner, user {status.st_uid}, can change reports; run: chown root {one}"
            )
    return ""


def _payload(content: bytes) -> bytes:
    return _PURPOSE + hashlib.sha256(content).hexdigest().encode()
