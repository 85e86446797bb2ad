"""Amazon EC2 instance metadata service (IMDSv2)."""

import http.client
import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

from holdfast.adapters.host.identity import INSTANCE_ID

METADATA_TIMEOUT: Final = timedelta(seconds=1)
"""Timeout of each network operation; the service is on the machine's own hypervisor."""

_ENDPOINT: Final = "http://169.254.169.254"
_TOKEN_TTL_S: Final = 60
_LONGEST_ANSWER: Final = 1024


def metadata_instance_id(endpoint: str | None = None, timeout: timedelta = METADATA_TIMEOUT) -> str:
    """Return the instance ID from the metadata service (IMDSv2); empty if it does not respond.

    Args:
        endpoint: address of the service; if None, AWS_EC2_METADATA_SERVICE_ENDPOINT or the default
           of EC2. AWS_EC2_METADATA_DISABLED=true disables the request, as in the AWS tools.
        timeout: timeout of each network operation.

    """
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return ""
    address = urlsplit(endpoint or os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or _ENDPOINT)
    connection = http.client.HTTPConnection(address.netloc, timeout=timeout.total_seconds())
    ttl = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_TTL_S)}
    try:
        token = _answer(connection, "PUT", "/latest/api/token", ttl)
        headers = {"X-aws-ec2-metadata-token": token}
        found = _answer(connection, "GET", "/latest/meta-data/instance-id", headers)
    except (OSError, http.client.HTTPException, ValueError):
        return ""
    finally:
        connection.close()
    return found if INSTANCE_ID.fullmatch(found) else ""


def _answer(
    connection: http.client.HTTPConnection, method: str, path: str, headers: Mapping[str, str]
) -> str:
    connection.request(method, path, headers=dict(headers))
    response = connection.getresponse()
    text = response.read(_LONGEST_ANSWER).decode("ascii", errors="replace").strip()
    if response.status != http.client.OK:
        raise http.client.HTTPException(f"{method} {path}: {response.status}")
    return text
