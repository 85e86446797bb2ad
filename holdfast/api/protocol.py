"""AWS's JSON protocol 1.1: decodes requests, calls operations and encodes responses."""

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from holdfast.api.audit import AuditedRequest, AuditTrail
from holdfast.api.call import AwsLocation, ClusterCreation
from holdfast.api.clusters import Cluster
from holdfast.api.identity import REQUIRED_ROLE, Keyring, Role
from holdfast.api.kubernetes_cluster import KubernetesCluster
from holdfast.api.operation_calls import OperationCalls
from holdfast.api.operations import OPERATIONS, UNSUPPORTED_OPERATIONS
from holdfast.api.problems import (
    BODY_LIMIT,
    ApiProblem,
    NotAvailable,
    NotReadable,
    TooLarge,
    UnknownOperation,
)
from holdfast.api.signature import (
    InMemorySignatures,
    Signature,
    SignedRequest,
    UsedSignatures,
    claimed_key,
    mark_used,
    verified,
)
from holdfast.kit.bounded_files import MAX_DEPTH, is_nested_deeply
from holdfast.model.errors import BackendError
from holdfast.ports.clock import Clock

CONTENT_TYPE: Final = "application/x-amz-json-1.1"
SIGNING_NAME: Final = "sagemaker"
_SERVICE: Final = "SageMaker"
_SHOWN: Final = 200
"""Maximum characters of an invalid target that the response repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResponse:
    """An HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Protocol:
    """Handles requests; thread-safe."""

    def __init__(
        self,
        keys: Keyring,
        place: AwsLocation,
        clusters: Callable[[], AbstractContextManager[Sequence[Cluster]]],
        clock: Clock,
        audit: AuditTrail,
        creation: ClusterCreation | None = None,
        kubernetes: KubernetesCluster | None = None,
    ) -> None:
        self._keys = keys
        self._place = place
        self._clock = clock
        self._audit = audit
        self.operations = OperationCalls(place, clusters, clock, creation, kubernetes)
        self._used: UsedSignatures = (
            creation.records if creation is not None else InMemorySignatures()
        )

    def answer(self, request: SignedRequest) -> ApiResponse:
        """Handle a request."""
        try:
            return _answer(200, self._carried_out(request))
        except ApiProblem as problem:
            return refusal(problem)
        except BackendError as error:
            return refusal(NotAvailable(str(error)))

    def _carried_out(self, request: SignedRequest) -> dict[str, Any]:
        service, _, name = request.headers.get("x-amz-target", "").partition(".")
        if service != _SERVICE or name not in OPERATIONS:
            self._verified(request)
            raise _unknown(request.headers)
        audited = AuditedRequest(
            via="api",
            address=request.address,
            operation=name,
            claimed_key=claimed_key(request.headers),
        )
        with self._audit.change(audited):
            now = self._clock.now()
            signature = self._verified(request)
            principal = self._keys.owner(signature.key_id, now)
            audited.is_from(principal)
            changes = REQUIRED_ROLE[name] is not Role.VIEW
            once = mark_used(signature, self._used, now) if changes else None
            return self.operations.call(name, _payload(request.body), principal, audited, once)

    def _verified(self, request: SignedRequest) -> Signature:
        if len(request.body) > BODY_LIMIT:
            raise TooLarge(f"The request has {len(request.body)} bytes; the limit is {BODY_LIMIT}")
        now = self._clock.now()
        return verified(request, self._keys.secrets, self._place.region, SIGNING_NAME, now)


def refusal(problem: ApiProblem) -> ApiResponse:
    """Response to a refused call."""
    return _answer(problem.status, {"__type": problem.code, "message": str(problem)})


def _answer(status: int, content: dict[str, Any]) -> ApiResponse:
    return ApiResponse(
        status=status,
        headers={"content-type": CONTENT_TYPE, "x-amzn-requestid": str(uuid.uuid4())},
        body=json.dumps(content).encode(),
    )


def _unknown(headers: Mapping[str, str]) -> UnknownOperation:
    target = headers.get("x-amz-target", "")
    service, _, name = target.partition(".")
    if service != _SERVICE:
        return UnknownOperation(
            f"The header X-Amz-Target is {target[:_SHOWN]!r}; expected {_SERVICE}. and the "
            "operation"
        )
    why = UNSUPPORTED_OPERATIONS.get(name)
    return UnknownOperation(
        f"{name[:_SHOWN]} is not supported{f': {why}' if why else ''}; "
        f"supported operations: {', '.join(sorted(OPERATIONS))}"
    )


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")


def _payload(body: bytes) -> Any:
    try:
        if is_nested_deeply(body):
            raise NotReadable(f"The request is nested deeper than {MAX_DEPTH} levels")
        return json.loads(body or b"{}", parse_constant=_refuse_constant)
    except ValueError as error:
        raise NotReadable(f"The request is not valid JSON: {error}") from None
