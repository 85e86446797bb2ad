"""Skips tests whose programs need a package, which pytest itself does not import.

``pytest.importorskip`` imports it: PyTorch with a framework takes seconds, and stays in the process
for all later tests.
"""

from importlib.util import find_spec

import pytest


def skip_without(*packages: str) -> None:
    """Skip the test if one of the packages is not installed."""
    for package in packages:
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed: make frameworks")
