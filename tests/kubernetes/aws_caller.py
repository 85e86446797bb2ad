"""Calls of the AWS CLI to a server of the API."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.apps.served_api import REGION, Served


@dataclass(frozen=True)
class AwsCaller:
    """``aws sagemaker`` with the first key of a server."""

    served: Served

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        key = self.served.key()
        kept = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
        return subprocess.run(
            [Path(sys.executable).with_name("aws"), "sagemaker", *argv, "--output", "json"],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            env={
                **kept,
                "AWS_ACCESS_KEY_ID": key["access_key_id"],
                "AWS_SECRET_ACCESS_KEY": key["secret_access_key"],
                "AWS_REGION": REGION,
                "AWS_DEFAULT_REGION": REGION,
                "AWS_ENDPOINT_URL_SAGEMAKER": self.served.url,
                "AWS_MAX_ATTEMPTS": "1",
                "AWS_CONFIG_FILE": os.devnull,
                "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            },
        )

    def __call__(self, *argv: str) -> Any:
        """The response of a call that succeeds."""
        done = self.run(*argv)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout or "{}")

    def refused(self, *argv: str) -> str:
        """The message of a call that fails."""
        done = self.run(*argv)
        assert done.returncode != 0, done.stdout
        return done.stderr
