"""The AWS command line itself, calling a really running API."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from served_api import REGION, Served

COMMANDS = Path(__file__).with_name("aws_commands.py")
AWS = Path(sys.executable).with_name("aws")
REFUSED = 255
"""Its exit code for an error that the service tells."""


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


class AwsCommandLine:
    """What ``aws sagemaker`` does, in the environment that the guide tells people to set."""

    def __init__(self, served: Served) -> None:
        key = served.key()
        self.environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith("AWS_")},
            "AWS_ACCESS_KEY_ID": key["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": key["secret_access_key"],
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ENDPOINT_URL_SAGEMAKER": served.url,
            "AWS_MAX_ATTEMPTS": "1",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }
        self._process = subprocess.Popen(
            [sys.executable, str(COMMANDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self.environment,
        )

    def __call__(self, *argv: str) -> Ended:
        self._process.stdin.write(json.dumps(["sagemaker", *argv]) + "\n")
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate(timeout=20)
