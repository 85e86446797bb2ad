"""Calls of a cluster API as the commands of ``holdfast clusters`` make them, signed."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
from botocore.session import Session

from holdfast.api.identity import Key, Role
from holdfast.api.problems import ApiProblem
from holdfast.api.sagemaker_model import SageMakerModel
from holdfast.api.wishes import objections, refuse
from holdfast.apps.api.config import ApiConfig
from holdfast.apps.cli.cluster_options import DEFAULT_URL
from holdfast.kit.config import load_config
from holdfast.model.errors import BackendError, ConfigError


@dataclass(frozen=True, slots=True)
class SignedCalls:
    """``Calls`` with AWS's own library."""

    url: str
    client: Any

    @classmethod
    def of(cls, config_file: Path | None, endpoint_url: str | None) -> "SignedCalls":
        """The API that is meant.

        Raises:
            ConfigError: the file cannot be used.

        """
        options: dict[str, Any] = {"region_name": os.environ.get("AWS_REGION", "us-east-1")}
        url = endpoint_url or DEFAULT_URL
        if config_file is not None:
            config = load_config(config_file, ApiConfig)
            key = _key(config)
            url = endpoint_url or f"http://{config.listen}"
            options = {
                "region_name": config.region,
                "aws_access_key_id": key.access_key_id,
                "aws_secret_access_key": key.secret_access_key,
            }
        wire = Config(retries={"total_max_attempts": 1}, parameter_validation=False)
        client = Session().create_client("sagemaker", endpoint_url=url, config=wire, **options)
        return cls(url, client)

    def call(self, operation: str, **request: Any) -> dict[str, Any]:
        """See ``Calls.call``."""
        try:
            answer: dict[str, Any] = getattr(self.client, operation)(**request)
        except ClientError as error:
            said = error.response["Error"]
            raise BackendError(f"{said['Message']} ({said['Code']})") from error
        except NoCredentialsError as error:
            raise ConfigError(
                "no key to sign with: name the file of the API with --config, or set "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            ) from error
        except BotoCoreError as error:
            raise BackendError(
                f"{error}; is the API served there? Start it with: holdfast api --config FILE"
            ) from error
        answer.pop("ResponseMetadata", None)
        return answer

    def pages(self, operation: str, member: str, **request: Any) -> Iterator[Mapping[str, Any]]:
        """See ``Calls.pages``."""
        token: dict[str, Any] = {}
        while True:
            answer = self.call(operation, **request, **token)
            yield from answer[member]
            if not answer.get("NextToken"):
                return
            token = {"NextToken": answer["NextToken"]}


def _key(config: ApiConfig) -> Key:
    """The first that may change something, or else the first."""
    return next((key for key in config.keys if key.role is Role.OPERATE), config.keys[0])


def checked_request(source: Path) -> dict[str, Any]:
    """A file with a ``CreateCluster`` request that the API will take, as far as that is known.

    Raises:
        ConfigError: it is none.

    """
    try:
        request = json.loads(source.read_text(encoding="utf-8"))
        refuse(list(objections(SageMakerModel().read("CreateCluster", request))))
    except OSError as error:
        raise ConfigError(f"{source} cannot be read: {error.strerror}") from error
    except (ValueError, ApiProblem) as error:
        raise ConfigError(f"{source}: {error}") from error
    return dict(request)
