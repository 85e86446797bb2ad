"""The data files of botocore, read once for all sessions."""

import functools

from botocore.loaders import JSONFileLoader


def read_once() -> None:
    """Let all sessions of this process share the data that they read.

    Each session would read the description of its service again: 0.1 s of CPU.
    """
    read = functools.cache(JSONFileLoader().load_file)
    JSONFileLoader.load_file = lambda _, path: read(path)
