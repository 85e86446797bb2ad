"""Puts pip into this virtual environment, for a Python that came without ``ensurepip``."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import urllib.request

INDEX = "https://pypi.org/pypi/pip/json"


def main() -> None:
    """Download pip's wheel, check its digest, and let it install itself."""
    with urllib.request.urlopen(INDEX, timeout=60) as response:
        wheel = next(file for file in json.load(response)["urls"] if file["url"].endswith(".whl"))
    with urllib.request.urlopen(wheel["url"], timeout=60) as response:  # noqa: S310
        content = response.read()
    if hashlib.sha256(content).hexdigest() != wheel["digests"]["sha256"]:
        sys.exit(f"{wheel['url']} is damaged: its SHA-256 is not the published one")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, wheel["filename"])
        with open(path, "wb") as file:
            file.write(content)
        install = [sys.executable, f"{path}/pip", "install", "--quiet", "--no-index", path]
        sys.exit(subprocess.call(install))


if __name__ == "__main__":
    main()
