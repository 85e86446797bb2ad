"""Verifies the JSON files with which Orbax describes the arrays of an item.

They have no checksum, and Orbax fails on a key or a kind of sharding that it does not know. Names
in them are those of the checkpoint before: one that differs from such a name in one bit is damage.

Source: ``orbax.checkpoint._src.metadata`` of 0.12.8, ``array_metadata_store.py``, ``sharding.py``.
"""

import re
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.contract import damaged
from holdfast.adapters.checkpoints.dcp_consistency import renamed
from holdfast.adapters.checkpoints.orbax_arrays import (
    Arrays,
    disagreements,
    lost,
    row_problems,
    sharding_problems,
    tree_problems,
)
from holdfast.adapters.checkpoints.plain_files import JSON_LIMIT, listed, read_bytes, read_object
from holdfast.kit.bounded_files import parse_json
from holdfast.model.checkpoints import Problem

TREE: Final = "_METADATA"
SHARDING: Final = "_sharding"
ARRAYS: Final = "array_metadatas"
_NAMES: Final = ("param_name", "sharding_type", "key", "key_type", "value_type", "device_str")
"""Keys whose values are names as well. Numbers of devices may change from save to save."""

_LISTED: Final = 5
"""Problems that are named of a file."""

_NUMBER: Final = re.compile(r"\d+")
_OWN: Final = "custom_metadata"
"""Key for values of the user, who may name them by the step."""


def settings_problems(item: Path) -> Iterator[Problem]:
    """Yield the problems of the JSON files of an item that are visible without another checkpoint.

    Raises:
        OSError: a file cannot be read.

    """
    found = Arrays()
    for path, name in _files(item):
        if path.stat().st_size == 0:
            continue  # reported as incomplete
        head = read_bytes(path, JSON_LIMIT + 1)
        if len(head) > JSON_LIMIT:
            continue
        if not head.startswith(b"{"):
            yield damaged(f"{name} is not a JSON object")
        with suppress(ValueError):  # reported
            for why in islice(_problems(found, name, parse_json(head)), _LISTED):
                yield damaged(f"{name} {why}")
    for name, why in islice(disagreements(found), _LISTED):
        yield damaged(f"{name} {why}")


def changed_settings(item: Path, older: Path) -> Iterator[Problem]:
    """Yield names that are not as in the same item of the older checkpoint.

    One that differs from a name there in one bit is damage, and an array without a sharding or a
    shape that it has there.

    Raises:
        OSError: a file cannot be read.

    """
    others = {name: path for path, name in _files(older)}
    own_arrays, older_arrays = Arrays(), Arrays()
    for path, name in _files(item):
        if name in others:
            with suppress(ValueError):  # reported, or of the older checkpoint
                value, other = read_object(path), read_object(others[name])
                own, before = _names(value), _names(other)
                missing = {one for one, count in before.items() if own[one] < count}
                for why in renamed(own.keys() - before.keys(), missing):
                    yield damaged(f"{name} {why}")
                for arrays, content in ((own_arrays, value), (older_arrays, other)):
                    deque(_problems(arrays, name, content), maxlen=0)  # reported
    for name, why in islice(lost(own_arrays, older_arrays), _LISTED):
        yield damaged(f"{name} {why}")


def _problems(found: Arrays, name: str, value: object) -> Iterator[str]:
    """Yield what is wrong with the form of a file; adds the arrays that it names to ``found``."""
    if isinstance(value, dict):
        if name == TREE:
            yield from tree_problems(found, value)
        elif name == SHARDING:
            yield from sharding_problems(found, name, value)
        else:
            yield from row_problems(found, name, value)


def _files(item: Path) -> Iterator[tuple[Path, str]]:
    for name in (TREE, SHARDING):
        if (item / name).is_file():
            yield item / name, name
    for name, entry in listed(item / ARRAYS).items() if (item / ARRAYS).is_dir() else ():
        if entry.is_file and name.startswith("process_"):
            yield entry.path, f"{ARRAYS}/{name}"


def _names(value: object) -> Counter[str]:
    """Return how often each key or name is in a JSON value, also in JSON that is a string in it."""
    found: Counter[str] = Counter()
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            found.update(one.keys())
            for key in _NAMES:
                text = str(one.get(key, ""))
                found[_NUMBER.sub("N", text) if key == "device_str" else f"{key} {text}"] += 1
            pending += [each for key, each in one.items() if key != _OWN]
        elif isinstance(one, list):
            pending += one
        elif isinstance(one, str) and one.startswith("{"):
            with suppress(ValueError):
                pending.append(parse_json(one))
    return found
