"""Errors in the format of AWS's JSON services.

Signature errors also have status 400, as in SageMaker.
"""

from collections.abc import Sequence
from typing import Final

from holdfast.model.errors import HoldfastError


class ApiProblem(HoldfastError):
    """The call is refused; the message is returned to the client."""

    code: str = "InternalFailure"
    """Error code for clients."""

    status: int = 400
    """Status of the HTTP response."""


class ValidationException(ApiProblem):
    """The request violates the model of its operation, or cannot be fulfilled as it is."""

    code = "ValidationException"


def refuse(problems: Sequence[str]) -> None:
    """Refuse a request that has problems; the error names all at once.

    Raises:
        ValidationException: there is a problem.

    """
    if problems:
        raise ValidationException("; ".join(problems))


class ResourceNotFound(ApiProblem):
    """No such cluster, node or event exists."""

    code = "ResourceNotFound"


class ResourceInUse(ApiProblem):
    """A cluster of that name already exists."""

    code = "ResourceInUse"


class ResourceLimitExceeded(ApiProblem):
    """The request exceeds a limit."""

    code = "ResourceLimitExceeded"


class Conflict(ApiProblem):
    """Another operation on the cluster must end first."""

    code = "ConflictException"


class AccessDenied(ApiProblem):
    """The key lacks the permission."""

    code = "AccessDeniedException"


class ExpiredKey(ApiProblem):
    """The key is no longer valid."""

    code = "ExpiredTokenException"


class NotReadable(ApiProblem):
    """The request is not valid JSON, or a member has the wrong type: it cannot be validated."""

    code = "SerializationException"


class MissingToken(ApiProblem):
    """The request is not signed."""

    code = "MissingAuthenticationTokenException"


class IncompleteSignature(ApiProblem):
    """A part of the signature is missing."""

    code = "IncompleteSignatureException"


class UnknownKey(ApiProblem):
    """The key is unknown."""

    code = "UnrecognizedClientException"


class BadSignature(ApiProblem):
    """The signature is wrong or too old."""

    code = "InvalidSignatureException"


class ReplayedSignature(ApiProblem):
    """The signature was already used for a change.

    Identical requests within a second have the same signature; all AWS clients retry on this
    code, with another signature.
    """

    code = "ThrottlingException"


class UnknownOperation(ApiProblem):
    """The operation does not exist in SageMaker, or is not supported."""

    code = "UnknownOperationException"


class TooSlow(ApiProblem):
    """The request was not received within the timeout."""

    code = "RequestTimeoutException"
    status = 408


class TooLarge(ApiProblem):
    """The body exceeds the size limit."""

    code = "RequestEntityTooLargeException"
    status = 413


class NotAvailable(ApiProblem):
    """The cluster cannot be read or written at present; clients retry."""

    code = "ServiceUnavailable"
    status = 503


class InternalFailure(ApiProblem):
    """Bug in the server; its log has the stack trace."""

    status = 500


BODY_TIMEOUT_S: Final = 10.0
"""Timeout for the body of a request: ``BODY_LIMIT`` at 1 Mbit/s."""

BODY_LIMIT: Final = 1_000_000
"""Limit in bytes. The longest request of the model names 3,000 nodes of 19 bytes."""
