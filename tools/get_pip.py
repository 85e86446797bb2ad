"""Puts pip into this virtual environment, for a Python that came without ``ensurepip``."""

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urljoin
from urllib.request import urlopen

INDEX = "https://pypi.org/pypi/pip/json"


def main() -> int:
    """Download pip's wheel, check its digest, and let it install itself."""
    try:
        index = json.loads(_read(INDEX))
        wheel = next(file for file in index["urls"] if file["url"].endswith(".whl"))
        content = _read(urljoin(INDEX, wheel["url"]))
    except OSError as error:
        sys.exit(f"pip could not be downloaded: {error}")
    if hashlib.sha256(content).hexdigest() != wheel["digests"]["sha256"]:
        sys.exit("pip could not be downloaded: the SHA-256 of its wheel is not the published one")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, wheel["filename"])
        path.write_bytes(content)
        install = ["install", "--quiet", "--no-index", str(path)]
        return subprocess.call([sys.executable, str(path / "pip"), *install])


def _read(url: str) -> bytes:
    with urlopen(url, timeout=60) as response:  # noqa: S310 - https only, see INDEX
        content: bytes = response.read()
    return content


if __name__ == "__main__":
    sys.exit(main())
