"""Errors that a call of the Kubernetes API can raise.

BackendError
├── Unreachable          no answer: connection, name, certificate, timeout
└── ApiError             the API server answered with an error
    ├── Unauthorized     401: it does not know us
    ├── Forbidden        403: names the RBAC rule that is missing
    ├── NotFound         404
    ├── AlreadyExists    409 to a create
    ├── Conflict         409: the object has changed, or its uid is another
    ├── Gone             410: a resource version or a page too old; list again
    └── Throttled        429: too many requests, or a PodDisruptionBudget
"""

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from holdfast.model.errors import BackendError

Json = dict[str, Any]
"""Object of the API."""

_RBAC: Final = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)"'
    r' in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)"| at the cluster scope)'
)
"""Pattern of an RBAC refusal (``forbiddenMessage`` of k8s.io/apiserver)."""

_EXCERPT: Final = 300
"""Characters quoted of a response that is not from the API server, such as that of a proxy."""


_TRANSIENT: Final = frozenset((500, 502, 503, 504))
_LASTING: Final = ("failed calling webhook", "more than one PodDisruptionBudget")
"""Texts of internal errors of the API server that last: an admission webhook could not be called,
and an eviction of a pod that several disruption budgets select."""


class Unreachable(BackendError):
    """No usable response; whether a write was applied is known only if ``sent`` is False."""

    def __init__(self, message: str, *, sent: bool = True, permanent: bool = False) -> None:
        super().__init__(message)
        self.sent = sent
        self.permanent = permanent
        """Whether a retry would fail the same way, as with an untrusted certificate."""


class ApiError(BackendError):
    """Error response of the API server.

    ``status`` is that of HTTP, ``reason`` the word of the API such as ``Invalid`` (may be empty),
    ``message`` its sentence, ``after`` how long it asked to wait, None if it did not.
    """

    def __init__(
        self, text: str, *, status: int, reason: str, message: str, after: timedelta | None
    ) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.message = message
        self.after = after

    @property
    def is_transient(self) -> bool:
        """Whether a retry within seconds may succeed."""
        return self.status in _TRANSIENT and not any(text in self.message for text in _LASTING)


class Unauthorized(ApiError):
    """The API server rejected the token or the certificate."""


class Forbidden(ApiError):
    """The request is not allowed; the message names the missing RBAC rule if RBAC denied it."""


class NotFound(ApiError):
    """The object or its kind does not exist."""


class AlreadyExists(ApiError):
    """An object of that name exists already."""


class Conflict(ApiError):
    """The object has changed since it was read, or has another UID."""


class Gone(ApiError):
    """The resource version has expired; list again."""


class Throttled(ApiError):
    """Too many requests or, for an eviction, an exhausted disruption budget."""

    @property
    def is_disruption_budget(self) -> bool:
        """Whether a PodDisruptionBudget currently forbids the eviction."""
        return self.reason == DISRUPTION_BUDGET


DISRUPTION_BUDGET: Final = "DisruptionBudget"
"""Cause of a refused eviction (``policyv1.DisruptionBudgetCause``)."""

_KINDS: Final[Mapping[int, type[ApiError]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    429: Throttled,
}


def api_error(call: str, status: int, body: bytes, after: str | None) -> ApiError:
    """Return the error of a response; ``call`` is verb and path, ``after`` its ``Retry-After``."""
    return status_error(call, status, _status_object(body), after)


def status_error(
    call: str, status: int, content: Mapping[str, Any], after: str | None = None
) -> ApiError:
    """Return the error of a ``Status`` object, from a response or an ERROR event of a watch."""
    reason = str(content.get("reason") or "")
    message = str(content.get("message") or "").strip()
    if _is_disruption_budget(content.get("details")):
        reason = DISRUPTION_BUDGET
    kind = _KINDS.get(status, ApiError)
    if reason == "AlreadyExists":
        kind = AlreadyExists
    seconds = after if after is not None and after.isdecimal() else None
    return kind(
        _text(call, status, reason, message),
        status=status,
        reason=reason,
        message=message,
        after=None if seconds is None else timedelta(seconds=int(seconds)),
    )


def _is_disruption_budget(details: Any) -> bool:
    causes = details.get("causes") if isinstance(details, dict) else None
    return isinstance(causes, list) and any(
        isinstance(cause, dict) and cause.get("reason") == DISRUPTION_BUDGET for cause in causes
    )


def _text(call: str, status: int, reason: str, message: str) -> str:
    rule = _RBAC.search(message)
    if status == 403 and rule is not None:
        return f"{call}: {_missing_rule(rule)}"
    return f"{call}: {status} {reason}: {message}" if message else f"{call}: {status} {reason}"


def _missing_rule(rule: re.Match[str]) -> str:
    namespace = rule["namespace"]
    where = f"in namespace {namespace}" if namespace else "in the whole cluster"
    role = f"a Role in {namespace}" if namespace else "a ClusterRole"
    missing = {
        "apiGroups": [rule["group"]],
        "resources": [rule["resource"]],
        "verbs": [rule["verb"]],
    }
    return (
        f"{rule['user']} may not {rule['verb']} {rule['resource']} {where}; "
        f"give it {role} with the rule {json.dumps(missing)}; if it has one, the API server has "
        "just started and not read its roles yet"
    )


def _status_object(body: bytes) -> Mapping[str, Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        content = None
    if isinstance(content, dict):
        return content
    return {"message": body[:_EXCERPT].decode("utf-8", "replace")}
