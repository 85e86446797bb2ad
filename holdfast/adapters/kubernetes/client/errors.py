"""What a call of the Kubernetes API can end in.

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
"""An object of the API."""

_RBAC: Final = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)"'
    r' in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)"| at the cluster scope)'
)
"""How the RBAC authorizer words a refusal (``forbiddenMessage`` of k8s.io/apiserver)."""

_EXCERPT: Final = 300
"""Characters of an answer that is not the API server's own, for example that of a proxy."""


_TRANSIENT: Final = frozenset((500, 502, 503, 504))
_WEBHOOK: Final = "failed calling webhook"
"""How the API server words that it asked in vain whether an object may be written."""


class Unreachable(BackendError):
    """No usable answer came; whether a write was done is known only if ``sent`` is False."""

    def __init__(self, message: str, *, sent: bool = True, permanent: bool = False) -> None:
        super().__init__(message)
        self.sent = sent
        self.permanent = permanent
        """Another try would end the same, as with a certificate that is not trusted."""


class ApiError(BackendError):
    """The API server refused a call.

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
        """Whether another try may well end otherwise; hardly so where a webhook is down."""
        return self.status in _TRANSIENT and _WEBHOOK not in self.message


class Unauthorized(ApiError):
    """The API server does not accept the token or the certificate."""


class Forbidden(ApiError):
    """We may not do that; the text names the missing RBAC rule, if it is RBAC that forbids."""


class NotFound(ApiError):
    """There is no such object, or no such kind."""


class AlreadyExists(ApiError):
    """An object of that name is there already."""


class Conflict(ApiError):
    """The object is not as the call supposed: changed since, or another of the same name."""


class Gone(ApiError):
    """The API server has forgotten that resource version; list anew."""


class Throttled(ApiError):
    """Too many requests, or, to an eviction, a disruption budget without room."""

    @property
    def is_disruption_budget(self) -> bool:
        """A PodDisruptionBudget forbids the eviction for now."""
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
    """The error of an answer; ``call`` is the verb and the path, ``after`` its ``Retry-After``."""
    return status_error(call, status, _status_object(body), after)


def status_error(
    call: str, status: int, content: Mapping[str, Any], after: str | None = None
) -> ApiError:
    """The error of a ``Status`` object, from an answer or from an ERROR event of a watch."""
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
    wanted = {
        "apiGroups": [rule["group"]],
        "resources": [rule["resource"]],
        "verbs": [rule["verb"]],
    }
    return (
        f"{rule['user']} may not {rule['verb']} {rule['resource']} {where}; "
        f"give it {role} with the rule {json.dumps(wanted)}; if it has one, the API server has "
        "just started and not read its roles yet"
    )


def _status_object(body: bytes) -> Mapping[str, Any]:
    try:
        content = json.loads(body)
    except ValueError:
        content = None
    if isinstance(content, dict):
        return content
    return {"message": body[:_EXCERPT].decode("utf-8", "replace")}
