"""Copies of checkpoints in a bucket of S3 or of a compatible server. Needs boto3 (``aws``)."""

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from holdfast.model.errors import BackendError

_CHUNK: Final = 1 << 20
_CALLS: Final = Config(
    connect_timeout=10, read_timeout=60, retries={"mode": "standard", "total_max_attempts": 5}
)
_ONE_BY_ONE: Final = TransferConfig(multipart_chunksize=64 << 20, use_threads=False)
"""S3 accepts 10,000 parts: 64 MiB each allow objects of 625 GiB."""


class S3Copies:
    """``CopyStore`` of the objects below ``s3://BUCKET/PREFIX``.

    Credentials, region and endpoint come from boto3's default chain (``AWS_ENDPOINT_URL_S3`` for a
    compatible server).
    """

    def __init__(self, url: str) -> None:
        """Use ``url``."""
        parts = urlsplit(url)
        self._bucket = parts.netloc
        self._prefix = f"{parts.path.strip('/')}/".removeprefix("/")
        self._url = url.rstrip("/")
        self._client: Any = boto3.client("s3", config=_CALLS)

    @property
    def url(self) -> str:
        """See ``CopyStore.url``."""
        return self._url

    def list_keys(self) -> Iterator[tuple[str, int]]:
        """See ``CopyStore.list_keys``."""
        with self._errors("list", ""):
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix):
                for one in page.get("Contents", ()):
                    yield one["Key"].removeprefix(self._prefix), one["Size"]

    def read(self, key: str) -> Iterator[bytes]:
        """See ``CopyStore.read``."""
        with self._errors("read", key):
            found = self._client.get_object(Bucket=self._bucket, Key=self._prefix + key)
            yield from found["Body"].iter_chunks(_CHUNK)

    def write(self, key: str, chunks: Iterable[bytes]) -> None:
        """See ``CopyStore.write``. S3 shows an object once all of its parts are there."""
        with self._errors("write", key):
            self._client.upload_fileobj(
                _Chunks(chunks), self._bucket, self._prefix + key, Config=_ONE_BY_ONE
            )

    def delete(self, key: str) -> None:
        """See ``CopyStore.delete``."""
        with self._errors("delete", key):
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + key)

    @contextmanager
    def _errors(self, verb: str, key: str) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError, boto3.exceptions.Boto3Error) as error:
            where = f"{self._url}/{key}".rstrip("/")
            raise BackendError(f"cannot {verb} {where}: {error}") from error


class _Chunks(io.RawIOBase):
    """File that is read from chunks, so that a file of any size takes little memory."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._left = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Return ``size`` bytes; fewer at the end only, as an upload expects."""
        parts, count = [self._left], len(self._left)
        while (size < 0 or count < size) and (chunk := next(self._chunks, None)) is not None:
            parts.append(chunk)
            count += len(chunk)
        data = b"".join(parts)
        end = len(data) if size < 0 else size
        self._left = data[end:]
        return data[:end]
