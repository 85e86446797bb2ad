"""Archives of recordings."""

import tarfile
from pathlib import Path


def opened(path: Path) -> tarfile.TarFile:
    """Extracts nothing outside of a folder; before Python 3.11.4, there is no such filter."""
    archive = tarfile.open(path)  # noqa: SIM115 - the caller closes it
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    return archive
