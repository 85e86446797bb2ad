"""The operation of AWS STS that clients use to verify their keys."""

import uuid
from typing import Final
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from holdfast.api.call import AwsLocation
from holdfast.api.identity import Keyring
from holdfast.api.problems import (
    AccessDenied,
    ApiProblem,
    BadSignature,
    ExpiredKey,
    IncompleteSignature,
    MissingToken,
    UnknownKey,
    UnknownOperation,
)
from holdfast.api.protocol import ApiResponse
from holdfast.api.signature import SignedRequest, verified
from holdfast.ports.clock import Clock

SIGNING_NAME: Final = "sts"
OPERATION: Final = "GetCallerIdentity"
VERSION: Final = "2011-06-15"
_NAMESPACE: Final = "https://sts.amazonaws.com/doc/2011-06-15/"
_FIELDS_LIMIT: Final = 10
_SHOWN: Final = 200

_CODES: Final[dict[type[ApiProblem], str]] = {
    AccessDenied: "AccessDenied",
    BadSignature: "SignatureDoesNotMatch",
    ExpiredKey: "ExpiredToken",
    IncompleteSignature: "IncompleteSignature",
    MissingToken: "MissingAuthenticationToken",
    UnknownKey: "InvalidClientTokenId",
    UnknownOperation: "InvalidAction",
}
"""Error codes that differ from those of the JSON services."""


class StsProtocol:
    """Handles requests in AWS's query protocol; thread-safe."""

    def __init__(self, keys: Keyring, place: AwsLocation, clock: Clock) -> None:
        self._keys = keys
        self._place = place
        self._clock = clock

    def answer(self, request: SignedRequest) -> ApiResponse:
        """Handle a request."""
        try:
            return _response(200, self._identity(request))
        except ApiProblem as problem:
            return _refusal(problem)

    def _identity(self, request: SignedRequest) -> str:
        now = self._clock.now()
        found = verified(request, self._keys.secrets, self._place.region, SIGNING_NAME, now)
        action = _action(request.body)
        if action != OPERATION:
            raise UnknownOperation(f"{action[:_SHOWN]!r} is not supported; supported: {OPERATION}")
        person = self._keys.owner(found.key_id, now).person
        return (
            f'<{OPERATION}Response xmlns="{_NAMESPACE}"><{OPERATION}Result>'
            f"<Arn>{escape(self._place.user_arn(person))}</Arn><UserId>{found.key_id}</UserId>"
            f"<Account>{self._place.account}</Account></{OPERATION}Result>"
            f"<ResponseMetadata><RequestId>{uuid.uuid4()}</RequestId></ResponseMetadata>"
            f"</{OPERATION}Response>"
        )


def _action(body: bytes) -> str:
    try:
        fields = parse_qs(body.decode("ascii"), max_num_fields=_FIELDS_LIMIT)
    except ValueError:
        return ""
    return "".join(fields.get("Action", ()))


def _refusal(problem: ApiProblem) -> ApiResponse:
    code = _CODES.get(type(problem), problem.code)
    return _response(
        403 if code in _CODES.values() else problem.status,
        f'<ErrorResponse xmlns="{_NAMESPACE}"><Error><Type>Sender</Type><Code>{code}</Code>'
        f"<Message>{escape(str(problem))}</Message></Error>"
        f"<RequestId>{uuid.uuid4()}</RequestId></ErrorResponse>",
    )


def _response(status: int, text: str) -> ApiResponse:
    body = "".join(one for one in text if one.isprintable()).encode()  # XML has no other characters
    return ApiResponse(status=status, headers={"content-type": "text/xml"}, body=body)
