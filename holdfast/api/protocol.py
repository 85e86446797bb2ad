"""AWS's JSON protocol 1.1: decodes requests, calls operations and encodes responses."""

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

from holdfast.api.call import AwsLocation, Call, Maker
from holdfast.api.clusters import Cluster
from holdfast.api.identity import Keyring, permit
from holdfast.api.operations import OPERATIONS
from holdfast.api.problems import (
    BODY_LIMIT,
    ApiProblem,
    NotAvailable,
    NotReadable,
    TooLarge,
    UnknownOperation,
)
from holdfast.api.sagemaker_model import SageMakerModel
from holdfast.api.signature import (
    InMemorySignatures,
    SignedRequest,
    UsedSignatures,
    mark_used,
    verified,
)
from holdfast.kit.bounded_files import MAX_DEPTH, is_nested_deeply
from holdfast.model.errors import BackendError
from holdfast.ports.clock import Clock

CONTENT_TYPE: Final = "application/x-amz-json-1.1"
SIGNING_NAME: Final = "sagemaker"
_TARGET: Final = "SageMaker."
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
        maker: Maker | None = None,
    ) -> None:
        self._keys = keys
        self._place = place
        self._clusters = clusters
        self._clock = clock
        self._maker = maker
        self._model = SageMakerModel()
        self._used: UsedSignatures = maker.records if maker is not None else InMemorySignatures()

    def answer(self, request: SignedRequest) -> ApiResponse:
        """Handle a request."""
        try:
            return _answer(200, self._carried_out(request))
        except ApiProblem as problem:
            return refusal(problem)
        except BackendError as error:
            return refusal(NotAvailable(str(error)))

    def _carried_out(self, request: SignedRequest) -> dict[str, Any]:
        if len(request.body) > BODY_LIMIT:
            raise TooLarge(f"The request has {len(request.body)} bytes; the limit is {BODY_LIMIT}")
        now = self._clock.now()
        signature = verified(request, self._keys.secrets, self._place.region, SIGNING_NAME, now)
        name = _operation(request.headers)
        if name not in OPERATIONS:
            raise UnknownOperation(
                f"{name[:_SHOWN]} is not supported; supported operations: "
                f"{', '.join(sorted(OPERATIONS))}"
            )
        wanted = self._model.read(name, _payload(request.body))
        operation, key = OPERATIONS[name], self._keys.owner(signature.key_id)
        permit(key, name, changes=operation.changes)
        once = mark_used(signature, self._used, now) if operation.changes else nullcontext()
        with once, self._clusters() as clusters:
            call = Call(
                request=wanted,
                key=key,
                clusters=clusters,
                place=self._place,
                now=now,
                maker=self._maker,
            )
            return self._model.write(name, operation.answer(call))


def refusal(problem: ApiProblem) -> ApiResponse:
    """Response to a refused call."""
    return _answer(problem.status, {"__type": problem.code, "message": str(problem)})


def _answer(status: int, content: dict[str, Any]) -> ApiResponse:
    return ApiResponse(
        status=status,
        headers={"content-type": CONTENT_TYPE, "x-amzn-requestid": str(uuid.uuid4())},
        body=json.dumps(content).encode(),
    )


def _operation(headers: Mapping[str, str]) -> str:
    target = headers.get("x-amz-target", "")
    if not target.startswith(_TARGET):
        raise UnknownOperation(
            f"The header X-Amz-Target is {target[:_SHOWN]!r}; expected {_TARGET} and the operation"
        )
    return target.removeprefix(_TARGET)


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")


def _payload(body: bytes) -> Any:
    try:
        if is_nested_deeply(body):
            raise NotReadable(f"The request is nested deeper than {MAX_DEPTH} levels")
        return json.loads(body or b"{}", parse_constant=_refuse_constant)
    except ValueError as error:
        raise NotReadable(f"The request is not valid JSON: {error}") from None
