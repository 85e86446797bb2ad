"""Errors as AWS's JSON services tell them.

Those of signatures have the status 400, too: SageMaker's do.
"""

from typing import Final

from holdfast.model.errors import HoldfastError


class ApiProblem(HoldfastError):
    """A call is refused; the message goes to whoever made it."""

    code: str = "InternalFailure"
    """What clients call the error."""

    status: int = 400
    """Of the HTTP response."""


class ValidationException(ApiProblem):
    """The request does not fit the model of its operation, or cannot be carried out as it is."""

    code = "ValidationException"


class ResourceNotFound(ApiProblem):
    """There is no such cluster, node or event."""

    code = "ResourceNotFound"


class ResourceInUse(ApiProblem):
    """There is one of that name."""

    code = "ResourceInUse"


class ResourceLimitExceeded(ApiProblem):
    """That would be more than may be had."""

    code = "ResourceLimitExceeded"


class Conflict(ApiProblem):
    """The cluster is busy with something that has to end first."""

    code = "ConflictException"


class AccessDenied(ApiProblem):
    """The key may not do that."""

    code = "AccessDeniedException"


class NotReadable(ApiProblem):
    """The request is no JSON, or a member of it has the wrong type: it cannot be judged at all."""

    code = "SerializationException"


class MissingToken(ApiProblem):
    """The request is not signed."""

    code = "MissingAuthenticationTokenException"


class IncompleteSignature(ApiProblem):
    """A part of the signature is missing."""

    code = "IncompleteSignatureException"


class UnknownKey(ApiProblem):
    """There is no such key."""

    code = "UnrecognizedClientException"


class BadSignature(ApiProblem):
    """The signature is wrong or too old."""

    code = "InvalidSignatureException"


class ReplayedSignature(ApiProblem):
    """The signature has changed something already.

    Clients that ask for the same within a second sign the same; all of AWS's come again by
    themselves for this code, with another signature.
    """

    code = "ThrottlingException"


class UnknownOperation(ApiProblem):
    """SageMaker has no such operation, or it is not supported."""

    code = "UnknownOperationException"


class TooSlow(ApiProblem):
    """The request did not arrive in time."""

    code = "RequestTimeoutException"
    status = 408


class TooLarge(ApiProblem):
    """The body is longer than any request can be."""

    code = "RequestEntityTooLargeException"
    status = 413


class NotAvailable(ApiProblem):
    """The cluster cannot be read or written just now; clients come again by themselves."""

    code = "ServiceUnavailable"
    status = 503


class InternalFailure(ApiProblem):
    """A bug; the log of the server has the trace."""

    status = 500


BODY_LIMIT: Final = 1_000_000
"""Bytes. The longest request of the model names 3,000 nodes of 19 bytes."""
