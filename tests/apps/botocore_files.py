"""The data files of botocore, read once for all sessions."""

import functools
from typing import Any

from botocore.loaders import JSONFileLoader, Loader


def read_once() -> None:
    """Let all sessions of this process share the data that they read.

    Each session would read the description of its service again, 0.1 s of CPU, and look for the
    services that there are in hundreds of directories: a third of a command of the AWS command
    line.
    """
    read = functools.cache(JSONFileLoader().load_file)
    JSONFileLoader.load_file = lambda _, path: read(path)
    for name in ("list_available_services", "list_api_versions"):
        setattr(Loader, name, _shared(getattr(Loader, name)))


def _shared(find: Any) -> Any:
    """A search of ``Loader`` that is made once for all loaders of the same directories."""
    found: dict[object, list[str]] = {}

    def look_up(loader: Any, *names: str, **options: str) -> list[str]:
        key = (*loader.search_paths, *names, *options.items())
        if key not in found:
            found[key] = find(loader, *names, **options)
        return found[key]

    return look_up
