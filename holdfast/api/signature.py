"""Verification of AWS Signature Version 4."""

import hashlib
import hmac
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol
from urllib.parse import quote

from holdfast.api.problems import (
    BadSignature,
    IncompleteSignature,
    MissingToken,
    ReplayedSignature,
    UnknownKey,
)
from holdfast.model.errors import BackendError

WINDOW: Final = timedelta(minutes=5)
"""Validity of a signature, before and after its timestamp, as in AWS."""

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_FIELD: Final = re.compile(r"(Credential|SignedHeaders|Signature)=([^,\s]+)")
_STAMP: Final = "%Y%m%dT%H%M%SZ"
_SESSION: Final = "x-amz-security-token"
_INVALID: Final = "The security token included in the request is invalid."
_WRONG: Final = (
    "The request signature we calculated does not match the signature you provided. Check your "
    "AWS Secret Access Key and signing method."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRequest:
    """Received request."""

    headers: Mapping[str, str]
    """Headers by lower-case name."""

    body: bytes
    query: str = ""
    """Raw query string."""

    method: str = "POST"
    path: str = "/"
    """Path as sent, with its percent-encoding."""

    address: str = ""
    """IP address of the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Signature and its parameters in a request."""

    key_id: str
    scope: tuple[str, ...]
    """Credential scope: day, region, service and ``aws4_request``."""

    signed_headers: tuple[str, ...]
    text: str
    stamp: str
    """Timestamp, as sent."""

    signed_at: datetime


def verified(
    request: SignedRequest, secrets: Mapping[str, str], region: str, service: str, now: datetime
) -> Signature:
    """Verify the signature of a request; returns its parts.

    Args:
        request: received request.
        secrets: ``access key id -> secret access key``.
        region: region of the server.
        service: signing name of the service.
        now: current time.

    Raises:
        MissingToken: it is not signed, or only in its query string.
        IncompleteSignature: a part of the signature is missing or malformed.
        UnknownKey: it is signed with an unknown key, or with a session token.
        BadSignature: the signature is invalid for any other reason.

    """
    headers = request.headers
    found = _read(headers)
    scope = (found.stamp[:8], region, service, "aws4_request")
    if found.scope != scope:
        raise BadSignature(
            f"Credential should be scoped to {'/'.join(scope)}, not {'/'.join(found.scope)}"
        )
    _refuse_outside_window(found, now)
    if missing := {"host", *(name for name in headers if name.startswith("x-amz-"))}.difference(
        found.signed_headers
    ):
        raise BadSignature(f"{', '.join(sorted(missing))} must be among the signed headers")
    if _SESSION in headers:
        raise UnknownKey(
            f"{_INVALID} Keys of this server have no session token: unset AWS_SESSION_TOKEN."
        )
    if found.key_id not in secrets:
        raise UnknownKey(_INVALID)
    require_match(request, found, secrets[found.key_id])
    return found


def require_match(request: SignedRequest, found: Signature, secret: str) -> None:
    """Verify that a signature is that of a request.

    Raises:
        BadSignature: it is not.

    """
    expected = _signature(request, found, secret)
    if not hmac.compare_digest(expected.encode(), found.text.encode()):
        raise BadSignature(_WRONG)


def claimed_key(headers: Mapping[str, str]) -> str:
    """ID of the key that a request names, without verification; may be empty."""
    fields = dict(_FIELD.findall(headers.get("authorization", "")))
    return str(fields.get("Credential", "")).partition("/")[0]


def claimed_service(headers: Mapping[str, str]) -> str:
    """Service in the credential scope of a request, without verification; may be empty."""
    fields = dict(_FIELD.findall(headers.get("authorization", "")))
    scope = str(fields.get("Credential", "")).split("/")
    return scope[3] if len(scope) == 5 else ""


def _read(headers: Mapping[str, str]) -> Signature:
    scheme, _, rest = headers.get("authorization", "").partition(" ")
    if scheme != _ALGORITHM:
        raise MissingToken("Missing Authentication Token")
    fields = dict(_FIELD.findall(rest))
    lacking = [name for name in ("Credential", "SignedHeaders", "Signature") if name not in fields]
    if lacking:
        raise IncompleteSignature(f"Authorization header requires {', '.join(lacking)}")
    stamp = headers.get("x-amz-date", "")
    return signature_of(fields["Credential"], fields["SignedHeaders"], fields["Signature"], stamp)


def signature_of(credential: str, signed_headers: str, text: str, stamp: str) -> Signature:
    """Signature from its parameters, not verified.

    Raises:
        IncompleteSignature: the credential or the timestamp is malformed.

    """
    key_id, *scope = credential.split("/")
    if len(scope) != 4:
        raise IncompleteSignature(
            f"Credential must be keyid/date/region/service/aws4_request, got {credential!r}"
        )
    try:
        signed_at = datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC)
    except ValueError:
        raise IncompleteSignature(
            f"X-Amz-Date must be a time such as 20260131T235959Z, got {stamp!r}"
        ) from None
    return Signature(
        key_id=key_id,
        scope=tuple(scope),
        signed_headers=tuple(signed_headers.split(";")),
        text=text,
        stamp=stamp,
        signed_at=signed_at,
    )


def _refuse_outside_window(found: Signature, now: datetime) -> None:
    minutes = WINDOW.seconds // 60
    if found.signed_at < now - WINDOW:
        raise BadSignature(
            f"Signature expired: {found.stamp} is now earlier than {_stamp(now - WINDOW)} "
            f"({_stamp(now)} - {minutes} min.)"
        )
    if found.signed_at > now + WINDOW:
        raise BadSignature(
            f"Signature not yet current: {found.stamp} is still later than "
            f"{_stamp(now + WINDOW)} ({_stamp(now)} + {minutes} min.)"
        )


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime(_STAMP)


def _signature(request: SignedRequest, found: Signature, secret: str) -> str:
    names = found.signed_headers
    headers = [f"{name}:{' '.join(request.headers.get(name, '').split())}\n" for name in names]
    query = "&".join(sorted(request.query.split("&")))
    path = quote(request.path, safe="/~")  # encoded twice, as by all clients except those of S3
    canonical = "\n".join(
        (request.method, path, query, "".join(headers), ";".join(names), _sha256(request.body))
    )
    text = "\n".join((_ALGORITHM, found.stamp, "/".join(found.scope), _sha256(canonical.encode())))
    key = f"AWS4{secret}".encode()
    for part in (*found.scope, text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key.hex()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class UsedSignatures(Protocol):
    """See ``ClusterRecords``. Every method may raise ``BackendError``."""

    def use_nonce(self, nonce: str, at: datetime, since: datetime) -> bool:
        """Record the use of a nonce; returns whether it was unused before."""
        ...

    def release_nonce(self, nonce: str) -> None:
        """Release a nonce, so that it can be used once more."""
        ...


@contextmanager
def mark_used(signature: Signature, words: UsedSignatures, now: datetime) -> Iterator[None]:
    """Apply a change at most once per signature.

    If the change fails because a backend is unavailable, the signature is valid once more: a
    retry within a second has the same signature.

    Raises:
        ReplayedSignature: it was used before.

    """
    if not words.use_nonce(signature.text, now, now - 2 * WINDOW):
        raise ReplayedSignature("The signature was already used; sign the request again")
    try:
        yield
    except BackendError:
        words.release_nonce(signature.text)
        raise


class InMemorySignatures:
    """Used nonces of a server without a database, in memory; thread-safe."""

    def __init__(self) -> None:
        self._used: dict[str, datetime] = {}
        self._lock = threading.Lock()

    def use_nonce(self, nonce: str, at: datetime, since: datetime) -> bool:
        """See ``UsedSignatures.use_nonce``."""
        with self._lock:
            self._used = {one: then for one, then in self._used.items() if then >= since}
            is_new = nonce not in self._used
            self._used[nonce] = at
        return is_new

    def release_nonce(self, nonce: str) -> None:
        """See ``UsedSignatures.release_nonce``."""
        with self._lock:
            self._used.pop(nonce, None)
