"""``holdfast api`` as a process of its own."""

import contextlib
import http.client
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import boto3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials

from holdfast.apps.main import run
from tests.apps.botocore_files import read_once

read_once()

REGION = "us-east-1"
START_S = 120.0
KEYS = """
[[keys]]
access_key_id = "AKIAOPERATEOPERATE22"
secret_access_key = "operate-operate-operate"
role = "admin"
name = "operate"
[[keys]]
access_key_id = "AKIAVIEWVIEWVIEWVI22"
secret_access_key = "view-view-view-view"
role = "view"
name = "view"
"""


@dataclass
class Served:
    url: str
    config: Path
    process: subprocess.Popen[str]
    log: Path
    clients: list[Any] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def said(self) -> str:
        """All that the server has logged."""
        return self.log.read_text(encoding="utf-8")

    def key(self, number: int = 0) -> dict[str, str]:
        return tomllib.loads(self.config.read_text(encoding="utf-8"))["keys"][number]

    def client(self, number: int = 0, **options: Any) -> Any:
        """A client of boto3 with the key of that number."""
        key = self.key(number)
        client = boto3.client(
            "sagemaker",
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=key["access_key_id"],
            aws_secret_access_key=key["secret_access_key"],
            config=Config(retries={"total_max_attempts": 1}, max_pool_connections=200, **options),
        )
        self.clients.append(client)
        return client


def _url(process: subprocess.Popen[str], log: Path) -> str:
    """Where it serves; waits until it does."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if found := re.search(r"serving on (https?://\S+);", log.read_text(encoding="utf-8")):
            return found[1]
        if process.poll() is not None:
            break
        time.sleep(0.02)
    how = f"its exit code is {process.poll()}, its log {log.read_text(encoding='utf-8')!r}"
    raise AssertionError(f"the server does not serve: {how}")


def holdfast(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *argv],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@dataclass(frozen=True)
class Rejected:
    """Exit code and output of a command."""

    returncode: int
    stdout: str
    stderr: str


def rejected(*argv: str) -> Rejected:
    """Run a command whose input is invalid, in this process: a process of its own costs 0.5 s.

    A command that accepts its input, such as a server, ends after ``START_S`` with ``FAILED``.
    """
    out, err = io.StringIO(), io.StringIO()
    with _limited(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(argv)
    return Rejected(code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def end(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"the command is still running after {START_S:g} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, START_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def with_keys(config: Path, *more: str) -> Path:
    """A configuration with a key for everything and one to view, always the same."""
    return private(config, "\n".join((*more, KEYS)))


def private(path: Path, text: str) -> Path:
    """A file of that text, as the server takes it: for its owner alone."""
    path.touch(0o600)
    path.write_text(text, encoding="utf-8")
    return path


@contextlib.contextmanager
def serving(config: Path, *more: str, **environment: str) -> Iterator[Served]:
    """Serve on a port of its own until the end of the block."""
    argv = [sys.executable, "-m", "holdfast", "api", "--config", str(config), "--listen", "0"]
    with (
        tempfile.TemporaryDirectory() as home,
        tempfile.NamedTemporaryFile("w", suffix=".log") as log,
        subprocess.Popen(
            [*argv, *more],
            stderr=log,
            text=True,
            env={"HOLDFAST_HOME": home, **os.environ, **environment},
        ) as process,
    ):
        try:
            served = Served(_url(process, Path(log.name)), config, process, Path(log.name))
            yield served
            for client in served.clients:
                client.close()
        finally:
            process.kill()


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        return json.loads(self.body).get("__type", "")

    @property
    def message(self) -> str:
        return json.loads(self.body).get("message", "")


class Wire:
    """A connection that carries any bytes, signed as botocore signs."""

    def __init__(self, served: Served) -> None:
        self._key = served.key()
        self._url = served.url
        self._connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)

    def close(self) -> None:
        self._connection.close()

    def call(self, operation: str, body: bytes, **changed: str) -> Reply:
        """Send a request; ``changed`` are headers other than the usual ones."""
        headers = {
            "X-Amz-Target": f"SageMaker.{operation}",
            "Content-Type": "application/x-amz-json-1.1",
            **{name.replace("_", "-"): value for name, value in changed.items()},
        }
        request = AWSRequest(method="POST", url=f"{self._url}/", data=body, headers=headers)
        key = Credentials(self._key["access_key_id"], self._key["secret_access_key"])
        SigV4Auth(key, "sagemaker", REGION).add_auth(request)
        return self.send(body, dict(request.headers.items()))

    def send(self, body: bytes, headers: dict[str, str]) -> Reply:
        try:
            response = self._sent(body, headers)
        except ConnectionError:  # the server has closed it as it was idle; every client knows that
            self._connection.close()
            response = self._sent(body, headers)
        named = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, named, response.read())

    def _sent(self, body: bytes, headers: dict[str, str]) -> http.client.HTTPResponse:
        self._connection.request("POST", "/", body, headers)
        return self._connection.getresponse()
