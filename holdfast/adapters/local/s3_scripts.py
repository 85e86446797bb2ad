"""Downloads lifecycle scripts from S3. Needs boto3 (extra ``aws``)."""

from pathlib import Path
from typing import Final
from urllib.parse import urlparse

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

_CALLS: Final = Config(
    connect_timeout=5,
    read_timeout=60,
    retries={"mode": "standard", "total_max_attempts": 3},
)
"""Limits for boto3, which by default retries for five minutes and more if S3 is unreachable."""


def download(source: str, directory: Path) -> None:
    """Download all objects below ``s3://bucket/prefix`` to a directory.

    boto3 finds credentials and region in its usual places.

    Raises:
        OSError: the download failed, or there are no objects.

    """
    place = urlparse(source)
    prefix = place.path.strip("/")
    prefix = f"{prefix}/" if prefix else ""
    try:
        client = boto3.client("s3", config=_CALLS)
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=place.netloc, Prefix=prefix)
        keys = [one["Key"] for page in pages for one in page.get("Contents", ())]
        for key in keys:
            target = (directory / key.removeprefix(prefix)).resolve()
            if key.endswith("/") or not target.is_relative_to(directory.resolve()):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            client.download_file(place.netloc, key, str(target))
    except (BotoCoreError, ClientError) as error:
        raise OSError(str(error)) from error
    if not keys:
        raise OSError(f"no files below {source}")
