"""Programs of Debian packages that some tests run; a test is skipped where one is missing."""

import shutil
from typing import Final

import pytest

_PACKAGES: Final = {
    "fi_pingpong": "libfabric-bin",
    "ip": "iproute2",
    "losetup": "mount",
    "mkfs.ext4": "e2fsprogs",
    "munge": "munge",
    "stress": "stress",
    "stress-ng": "stress-ng",
    "systemd-analyze": "systemd",
    "tc": "iproute2",
}


def require_tool(name: str) -> str:
    """Return the path of a program; skip the test if it is not installed."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is missing; on Debian: apt-get install {_PACKAGES[name]}")
    return found
