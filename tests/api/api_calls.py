"""Calls of the API as AWS's own library makes them, without a network."""

import contextlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.parsers import create_parser

from holdfast.api.audit import AuditTrail
from holdfast.api.call import AwsLocation
from holdfast.api.identity import AccessKey, Keyring, Role
from holdfast.api.protocol import Protocol
from holdfast.api.signature import SignedRequest
from holdfast.model.errors import BackendError
from tests.engines.fake_clusters import ShownCluster
from tests.ports.fakes import FakeClock

REGION = "eu-north-1"
PLACE = AwsLocation(region=REGION, account="123456789012")
ADA = AccessKey(
    access_key_id="AKIAAAAAAAAAAAAAAAAA", secret_access_key="a" * 40, role=Role.ADMIN, name="ada"
)
BOB = AccessKey(access_key_id="AKIABBBBBBBBBBBBBBBB", secret_access_key="b" * 40, role=Role.VIEW)
MODEL = ServiceModel(Loader().load_service_model("sagemaker", "service-2"))
PARSER = create_parser("json")


def signed(
    key: AccessKey, target: str, body: bytes, *, region: str = REGION, ago: timedelta = timedelta(0)
) -> dict[str, str]:
    """The headers of a request that botocore signs now, by their names in lower case."""
    request = AWSRequest(
        method="POST",
        url="http://holdfast.example/",
        data=body,
        headers={"X-Amz-Target": target, "Content-Type": "application/x-amz-json-1.1"},
    )
    credentials = Credentials(key.access_key_id, key.secret_access_key)
    SigV4Auth(credentials, "sagemaker", region).add_auth(request)
    headers = {name.lower(): str(value) for name, value in request.headers.items()}
    return {"host": "holdfast.example", **headers}


@dataclass
class AuditLines:
    """An ``AuditLog`` in memory."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    trouble: str = ""

    def check(self) -> None:
        if self.trouble:
            raise BackendError(self.trouble)

    def append(self, line: str) -> None:
        self.lines.append(json.loads(line))

    def last(self, count: int) -> list[str]:
        return [json.dumps(line) for line in self.lines[-count:]]


@dataclass
class Api:
    """An API, and those who call it."""

    clusters: list[ShownCluster] = field(default_factory=list)
    clock: FakeClock = field(default_factory=lambda: FakeClock(datetime.now(UTC)))

    audit: AuditLines = field(default_factory=AuditLines)
    keys: tuple[AccessKey, ...] = (ADA, BOB)

    def __post_init__(self) -> None:
        self.protocol = Protocol(
            Keyring(self.keys),
            PLACE,
            lambda: contextlib.nullcontext(self.clusters),
            self.clock,
            AuditTrail(self.audit, self.clock),
        )

    def send(self, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, Any]]:
        return self.answered(SignedRequest(headers=headers, body=body))

    def answered(self, request: SignedRequest) -> tuple[int, dict[str, Any]]:
        answer = self.protocol.answer(request)
        return answer.status, json.loads(answer.body)

    def call(self, operation: str, key: AccessKey = ADA, **request: Any) -> dict[str, Any]:
        """What botocore's parser makes of the answer."""
        self.clock.time = datetime.now(UTC)
        body = json.dumps(request).encode()
        headers = signed(key, f"SageMaker.{operation}", body)
        answer = self.protocol.answer(SignedRequest(headers=headers, body=body))
        found = {
            "status_code": answer.status, "headers": dict(answer.headers), "body": answer.body,
        }  # fmt: skip
        shape = MODEL.operation_model(operation).output_shape
        return PARSER.parse(found, shape)

    def refused(self, operation: str, key: AccessKey = ADA, **request: Any) -> tuple[str, str]:
        """Code and message of the error that a call is answered with."""
        answer = self.call(operation, key, **request)
        assert "Error" in answer, answer
        return answer["Error"]["Code"], answer["Error"]["Message"]
