"""Calls to AWS with timeouts; errors are mapped to those of ``NodeProvider``."""

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004 - botocore's own: an endpoint could not be reached
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)
from botocore.parsers import ResponseParserError

from holdfast.adapters.providers.identity import require_machine_of
from holdfast.adapters.providers.orders import OwnerUnreachable
from holdfast.adapters.providers.settings import AwsSettings
from holdfast.model.errors import ConfigError, ProviderError, RetryLater
from holdfast.model.nodes import NodeView

UNREACHABLE_PAUSE: Final = timedelta(seconds=30)
"""Delay of the next order after a failed connection or an internal error of AWS."""

THROTTLE_PAUSE: Final = timedelta(seconds=5)
"""Delay of the next order after throttling. EC2's buckets refill by 2 to 20 requests a second."""

CAPACITY_PAUSE: Final = timedelta(minutes=10)
"""Delay while there is no capacity; HyperPod also retries about every 10 minutes."""

_TRIES: Final = 2  # of boto3 for one call; the engine repeats orders by itself

_NOT_SENT: Final = (ConnectTimeoutError, EndpointConnectionError)

_EXCERPT: Final = 300  # characters; EC2 appends an encoded message of up to 10 KB to a refusal

_INSTANCE_ID: Final = re.compile(r"(?:^|[/-])(i-[0-9a-f]{8}(?:[0-9a-f]{9})?)$")
_ZONE: Final = re.compile(r"/([a-z]{2}(?:-[a-z]+)+-\d+)[a-z]/")  # not a zone id such as usw2-az1

_THROTTLED: Final = frozenset(
    (
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
        "LimitExceededException",
        "PriorRequestNotComplete",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    )
)
_NO_CAPACITY: Final = frozenset(
    (
        "InsufficientCapacity",
        "InsufficientCapacityOnHost",
        "InsufficientHostCapacity",
        "InsufficientInstanceCapacity",
        "InsufficientReservedInstanceCapacity",
        "MaxSpotInstanceCountExceeded",
        "ResourceLimitExceeded",
        "SpotMaxPriceTooLow",
        "InstanceLimitExceeded",
        "VcpuLimitExceeded",
    )
)
_NOT_PERMITTED: Final = frozenset(
    ("AccessDenied", "AccessDeniedException", "NotAuthorized", "UnauthorizedOperation")
)
_BAD_CREDENTIALS: Final = frozenset(
    (
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "IncompleteSignature",
        "MissingAuthenticationToken",
        "OptInRequired",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    )
)


class AwsRefusal(ProviderError):
    """AWS refused a call for a reason that its caller may handle; ``code`` is the error code."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class Aws:
    """Client of an AWS service."""

    def __init__(self, service: str, settings: AwsSettings) -> None:
        """Create the client of ``service``, such as ``ec2``.

        Raises:
            ConfigError: no region is known, or boto3 cannot use the settings.

        """
        self._service = service
        try:
            self._client = boto3.Session().client(
                service,
                region_name=settings.region,
                endpoint_url=settings.endpoint_url,
                config=Config(
                    connect_timeout=settings.connect_timeout.total_seconds(),
                    read_timeout=settings.read_timeout.total_seconds(),
                    retries={"mode": "standard", "total_max_attempts": _TRIES},
                ),
            )
        except (BotoCoreError, ValueError) as error:
            raise ConfigError(f"provider.aws: {error}") from error

    @property
    def region(self) -> str:
        """Region of the calls."""
        return str(self._client.meta.region_name)

    def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Call an operation by its boto3 name, such as ``reboot_instances``.

        Raises:
            OwnerUnreachable: throttled, unreachable, or an internal error of AWS.
            RetryLater: no capacity.
            AwsRefusal: refused for another reason.
            ProviderError: there are no credentials, or boto3 cannot make the call.

        """
        is_order = not operation.startswith("describe_")
        action = f"{self._service}:{self._client.meta.method_to_api_mapping[operation]}"
        try:
            answer: dict[str, Any] = getattr(self._client, operation)(**arguments)
        except ClientError as error:
            raise _refusal(error, action, is_order=is_order) from error
        except (ConnectionError, HTTPClientError, ResponseParserError) as error:
            why = f"{action}: AWS does not respond: {_excerpt(str(error))}"
            unknown = is_order and not isinstance(error, _NOT_SENT)
            raise OwnerUnreachable(
                why, after=UNREACHABLE_PAUSE, is_outcome_unknown=unknown
            ) from error
        except (
            NoCredentialsError,
            PartialCredentialsError,
            CredentialRetrievalError,
            TokenRetrievalError,
            UnauthorizedSSOTokenError,
        ) as error:
            raise ProviderError(f"{action}: no usable AWS credentials: {error}") from error
        except BotoCoreError as error:
            raise ProviderError(f"{action}: {error}") from error
        return answer


def instance_id(node: NodeView, region: str) -> str:
    """EC2 instance ID of a node, from its provider ID or, as on HyperPod, from its name.

    Raises:
        ProviderError: not an EC2 instance, or one in another region than ``region``.

    """
    zone = _ZONE.search(node.provider_id)
    if zone is not None and zone[1] != region:
        raise ProviderError(
            f"{node.name} is in {zone[1]}, but orders go to {region}: set provider.aws.region"
        )
    for name in (node.provider_id, node.name):
        if found := _INSTANCE_ID.search(name):
            return found[1]
    raise ProviderError(
        f"{node.name} is not an EC2 instance: neither its provider id {node.provider_id!r} nor its"
        " name ends in one such as i-0123456789abcdef0"
    )


def is_named(node: NodeView, instance: str) -> bool:
    """Whether the name of a node ends with the instance ID, as on HyperPod."""
    found = _INSTANCE_ID.search(node.name)
    return found is not None and found[1] == instance


def require_instance_of(node: NodeView, instance: str, names: Sequence[str]) -> None:
    """Raise unless an instance with these names and IP addresses is the one behind ``node``.

    Raises:
        ProviderError: see ``require_machine_of``.

    """
    if not is_named(node, instance):
        require_machine_of(node, instance, [instance, *names])


def _excerpt(text: str) -> str:
    return text if len(text) <= _EXCERPT else text[:_EXCERPT] + "..."


def _refusal(error: ClientError, action: str, *, is_order: bool) -> ProviderError:
    code = str(error.response["Error"].get("Code", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    reported = _excerpt(f"{code}: {error.response['Error'].get('Message', '')}")
    message = f"{action}: {reported}"
    if code in _THROTTLED:
        return OwnerUnreachable(message, after=THROTTLE_PAUSE)
    if code in _NO_CAPACITY:
        return RetryLater(message, after=CAPACITY_PAUSE)
    if code in _NOT_PERMITTED:
        return AwsRefusal(
            f"not permitted: grant {action} to Holdfast's role ({reported})", code=code
        )
    if code in _BAD_CREDENTIALS:
        return AwsRefusal(f"the AWS credentials are expired or wrong: {message}", code=code)
    if status >= 500:
        return OwnerUnreachable(message, after=UNREACHABLE_PAUSE, is_outcome_unknown=is_order)
    return AwsRefusal(message, code=code)
