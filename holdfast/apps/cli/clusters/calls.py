"""Signed calls of a cluster API, for the commands of ``holdfast clusters``."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
from botocore.session import Session

from holdfast.api.desired_groups import rejections
from holdfast.api.identity import AccessKey, Role
from holdfast.api.problems import ApiProblem, refuse
from holdfast.api.request_fields import unsupported
from holdfast.api.sagemaker_model import SageMakerModel
from holdfast.apps.api.config import DEFAULT_URL, ApiConfig, load_api_config
from holdfast.apps.views.not_found import NotFound, no_such
from holdfast.model.errors import BackendError, ConfigError

_DEFAULT_REGION: Final = "us-east-1"

_ADVICE: Final[Mapping[str, str]] = {
    "UnrecognizedClientException": (
        "the API rejected the key; pass its configuration file with --config"
    ),
    "InvalidSignatureException": (
        "check the secret of the key, the region (AWS_REGION) and the clock of this machine"
    ),
}
"""``error code -> remedy``, for errors whose message names none."""

_NO_SUCH: Final = "ResourceNotFound"
_CHOICES: Final = re.compile(
    r"Value '([^']*)' at '([^']*)' failed to satisfy constraint: "
    r"Member must satisfy enum value set: \[([^\]]*)\]"
)
_FEW: Final = 10
"""Maximum number of allowed values in a message; there are more than 200 instance types."""


@dataclass(frozen=True, slots=True)
class SignedCalls:
    """``ClusterCalls`` with AWS's own library."""

    url: str
    client: Any

    @classmethod
    def of(
        cls, config_file: Path | None, endpoint_url: str | None, timeout_s: float | None = None
    ) -> "SignedCalls":
        """Return the calls of the API at ``endpoint_url``, or else of the configuration file.

        Args:
            config_file: configuration file of the API with a key; None for AWS's settings.
            endpoint_url: URL of the API; None for that of the file.
            timeout_s: maximum time for the connection and for the response; None for AWS's own.

        Raises:
            ConfigError: the file, the URL or the AWS settings are invalid.

        """
        options: dict[str, Any] = {}
        url = endpoint_url or DEFAULT_URL
        if config_file is not None:
            config = load_api_config(config_file)
            key = _key(config)
            url = endpoint_url or config.url
            options = {
                "region_name": config.region,
                "aws_access_key_id": key.access_key_id,
                "aws_secret_access_key": key.secret_access_key,
            }
        return cls(url, _client(url, options, timeout_s))

    def call(self, operation: str, **request: Any) -> dict[str, Any]:
        """See ``ClusterCalls.call``."""
        try:
            answer: dict[str, Any] = getattr(self.client, operation)(**request)
        except ClientError as error:
            if error.response["Error"]["Code"] == _NO_SUCH and "ClusterName" in request:
                self._require_cluster(request["ClusterName"])
            raise BackendError(self._message(error.response)) from error
        except NoCredentialsError as error:
            raise ConfigError(
                "no API key to sign with: pass the configuration file of the API with --config, "
                "or set "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            ) from error
        except BotoCoreError as error:
            raise BackendError(
                f"{error}; is the API served there? Start it with: holdfast api --config FILE"
            ) from error
        answer.pop("ResponseMetadata", None)
        return answer

    def pages(self, operation: str, member: str, **request: Any) -> Iterator[Mapping[str, Any]]:
        """See ``ClusterCalls.pages``."""
        token: dict[str, Any] = {}
        while True:
            answer = self.call(operation, **request, **token)
            yield from answer[member]
            if not answer.get("NextToken"):
                return
            token = {"NextToken": answer["NextToken"]}

    def names(self) -> list[str]:
        """Return the names of all clusters."""
        return [one["ClusterName"] for one in self.pages("list_clusters", "ClusterSummaries")]

    def _require_cluster(self, name: str) -> None:
        """Raise ``NotFound`` with the nearest names, if no cluster has this name."""
        names = self.names()
        if name not in names and not name.startswith("arn:"):
            raise NotFound(no_such("cluster", name, names))

    def _message(self, response: Mapping[str, Any]) -> str:
        code = response["Error"]["Code"]
        if code.isdecimal():  # botocore's code for a response that is not from an AWS API
            return f"{self.url} returned HTTP status {code}; is a cluster API served there?"
        advice = f"; {_ADVICE[code]}" if code in _ADVICE else ""
        return f"{shortened(response['Error']['Message'])} ({code}){advice}"


def _client(url: str, options: dict[str, Any], timeout_s: float | None) -> Any:
    timeouts = (
        {} if timeout_s is None else {"connect_timeout": timeout_s, "read_timeout": timeout_s}
    )
    wire = Config(retries={"total_max_attempts": 1}, parameter_validation=False, **timeouts)
    session = Session()
    try:
        given = os.environ.get("AWS_REGION") or session.get_config_variable("region")
        options = {"region_name": given or _DEFAULT_REGION, **options}
        return session.create_client("sagemaker", endpoint_url=url, config=wire, **options)
    except BotoCoreError as error:
        raise ConfigError(f"AWS settings: {error}") from error
    except ValueError as error:
        raise ConfigError(
            f"--endpoint-url: {url!r} is not a URL; expected one such as {DEFAULT_URL}"
        ) from error


def shortened(message: str) -> str:
    """Return a message of AWS with the nearest allowed values only, if it lists many."""

    def nearest(found: re.Match[str]) -> str:
        value, path, choices = found[1], found[2], found[3].split(", ")
        if len(choices) <= _FEW:
            return found[0]
        near = get_close_matches(value, choices) or choices[:3]
        return f"'{value}' at '{path}' is none of {len(choices)} values such as {', '.join(near)}"

    return _CHOICES.sub(nearest, message)


def _key(config: ApiConfig) -> AccessKey:
    """Return the first of the keys with the most permissions."""
    return max(config.keys, key=lambda key: list(Role).index(key.role))


def checked_request(source: Path, operation: str) -> dict[str, Any]:
    """Return the request in a file, validated against the API model.

    Raises:
        ConfigError: the file is not a valid request, or has an unknown member, which the API would
            ignore.

    """
    model = SageMakerModel()
    try:
        request = json.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{source} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{source}: not JSON: {error}") from error
    if unknown_members := [
        _unknown_member(*one) for one in model.unknown_members(operation, request)
    ]:
        raise ConfigError(f"{source}: {one}" for one in unknown_members)
    try:
        parsed = model.read(operation, request)
        refuse([*unsupported(operation, parsed), *rejections(parsed)])
    except ApiProblem as error:
        raise ConfigError(f"{source}: {shortened(str(error))}") from error
    return dict(request)


def _unknown_member(path: str, name: str, known: Sequence[str]) -> str:
    where = f"at '{path}', " if path else ""
    return where + no_such("member", name, known)
