"""Second locations by URL."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from holdfast.adapters.copies.directory import DirectoryCopies
from holdfast.model.errors import ConfigError
from holdfast.ports.checkpoint_copies import CopyStore


def open_copies(url: str) -> CopyStore:
    """Return the location of a path, ``file://`` or ``s3://`` URL, or URL supported by fsspec.

    Raises:
        ConfigError: the URL is invalid, or a package for it is missing.

    """
    parts = urlsplit(url)
    if "://" not in url:
        return DirectoryCopies(Path(url))
    if parts.scheme == "file":
        return DirectoryCopies(Path(unquote(parts.path)))
    if parts.scheme == "s3":
        return _open_s3(url, parts.netloc)
    try:
        from holdfast.adapters.copies.fsspec_url import FsspecCopies  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(f"{url}: fsspec is not installed; pip install fsspec") from error
    return FsspecCopies(url)


def _open_s3(url: str, bucket: str) -> CopyStore:
    if not bucket:
        raise ConfigError(f"{url}: no bucket; expected s3://BUCKET/PREFIX")
    try:
        from holdfast.adapters.copies.s3 import S3Copies  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(f"{url}: boto3 is not installed; pip install 'holdfast[aws]'") from error
    return S3Copies(url)
