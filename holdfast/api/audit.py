"""Audit log of the API and the console: one entry for each requested change, refused ones, too."""

import hashlib
import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from threading import Lock
from typing import Any, Final, Protocol

from holdfast.api.identity import REQUIRED_ROLE, Principal, Role
from holdfast.kit.serial import to_plain
from holdfast.model.errors import BackendError, HoldfastError
from holdfast.ports.clock import Clock

REFUSALS: Final = 20
REFUSALS_WINDOW: Final = timedelta(minutes=1)
"""Refused requests that are recorded within that time. More are only counted, so that a client
without permissions cannot push the changes of others out of the log."""

_REQUEST_LIMIT: Final = 4096
"""Characters of a request that is recorded completely; of a longer one, its digest is."""

_TEXT_LIMIT: Final = 500


class Outcome(StrEnum):
    """Result of a requested change."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    FAILED = "failed"
    """A backend was unavailable, or a bug ended the request: it may have had an effect."""


class AuditLog(Protocol):
    """Store of audit entries. Thread-safe; every method may raise ``BackendError``."""

    def check(self) -> None:
        """Verify that an entry can be written."""
        ...

    def append(self, line: str) -> None:
        """Append a line."""
        ...

    def last(self, count: int) -> Sequence[str]:
        """Return the last lines, oldest first."""
        ...


@dataclass(slots=True, kw_only=True)
class AuditedRequest:
    """A request, completed while it is handled."""

    via: str
    """``api`` or ``console``."""

    address: str
    """IP address of the client."""

    operation: str
    person: str = ""
    """Authenticated requester; empty before authentication."""

    claimed_key: str = ""
    """ID of the key that the client named, without proof."""

    request: Mapping[str, object] = field(default_factory=dict)

    def is_from(self, principal: Principal) -> None:
        """Record the authenticated requester."""
        self.person = principal.person


class AuditTrail:
    """Writes the audit log."""

    def __init__(self, log: AuditLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._lock = Lock()
        self._refused: deque[datetime] = deque()
        self._omitted = 0

    @contextmanager
    def change(self, request: AuditedRequest) -> Iterator[AuditedRequest]:
        """Record the outcome of a requested change; reads are not recorded.

        Raises:
            BackendError: the log cannot be written; nothing was changed.

        """
        if REQUIRED_ROLE.get(request.operation) is Role.VIEW:
            yield request
            return
        self._log.check()
        outcome, message = Outcome.FAILED, "internal error"
        try:
            yield request
            outcome, message = Outcome.ACCEPTED, ""
        except HoldfastError as error:
            is_failure = isinstance(error, BackendError)
            outcome, message = Outcome.FAILED if is_failure else Outcome.REFUSED, str(error)
            raise
        finally:
            self._record(request, outcome, message)

    def recent(self, count: int) -> list[dict[str, Any]]:
        """Return the last entries, newest first.

        Raises:
            BackendError: the log cannot be read.

        """
        return [entry for line in reversed(self._log.last(count)) for entry in _entries(line)]

    def _record(self, request: AuditedRequest, outcome: Outcome, message: str) -> None:
        with self._lock:
            now = self._clock.now()
            if outcome is Outcome.REFUSED and not self._is_below_limit(now):
                self._omitted += 1
                return
            omitted, self._omitted = self._omitted, 0
        entry = {
            "at": to_plain(now),
            "person": request.person,
            "claimed_key": "" if request.person else request.claimed_key[:_TEXT_LIMIT],
            "address": request.address,
            "via": request.via,
            "operation": request.operation[:_TEXT_LIMIT],
            **_shown(request.request),
            "outcome": outcome,
            "message": message[:_TEXT_LIMIT],
            "omitted_refusals": omitted,
        }
        self._log.append(json.dumps({key: value for key, value in entry.items() if value}))

    def _is_below_limit(self, now: datetime) -> bool:
        while self._refused and now - self._refused[0] >= REFUSALS_WINDOW:
            self._refused.popleft()
        if len(self._refused) >= REFUSALS:
            return False
        self._refused.append(now)
        return True


def _entries(line: str) -> Iterator[dict[str, Any]]:
    """Yield the entry of a line, unless it is damaged."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return
    if isinstance(entry, dict):
        yield entry


def _shown(request: Mapping[str, object]) -> dict[str, Any]:
    """The request, or what identifies a long one."""
    plain = to_plain(request)
    text = json.dumps(plain)
    if len(text) <= _REQUEST_LIMIT:
        return {"request": plain}
    digest = hashlib.sha256(text.encode()).hexdigest()
    named = {"ClusterName": plain["ClusterName"]} if "ClusterName" in plain else {}
    return {"request": named, "request_sha256": digest, "request_characters": len(text)}
