"""Verifies the JSON files with which Orbax describes the arrays of an item.

They have no checksum, and Orbax fails on a key or a kind of sharding that it does not know. Names
in them are those of the checkpoint before: one that differs from such a name in one bit is damage.

Source: ``orbax.checkpoint._src.metadata`` of 0.12.8, ``array_metadata_store.py``, ``sharding.py``.
"""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.contract import damaged
from holdfast.adapters.checkpoints.dcp_consistency import renamed
from holdfast.adapters.checkpoints.plain_files import JSON_LIMIT, listed, read_bytes, read_object
from holdfast.kit.bounded_files import parse_json
from holdfast.model.checkpoints import Problem

TREE: Final = "_METADATA"
SHARDING: Final = "_sharding"
ARRAYS: Final = "array_metadatas"
_ROW: Final = ("param_name", "write_shape", "chunk_shape")
_NAMES: Final = ("param_name", "sharding_type", "key", "key_type", "value_type", "device_str")
"""Keys whose values are names as well. Numbers of devices may change from save to save."""

_NUMBER: Final = re.compile(r"\d+")
_OWN: Final = "custom_metadata"
"""Key for values of the user, who may name them by the step."""


def settings_problems(item: Path) -> Iterator[Problem]:
    """Yield the problems of the JSON files of an item that are visible without another checkpoint.

    Raises:
        OSError: a file cannot be read.

    """
    for path, name in _files(item):
        if path.stat().st_size == 0:
            continue  # reported as incomplete
        head = read_bytes(path, JSON_LIMIT + 1)
        if len(head) > JSON_LIMIT:
            continue
        if not head.startswith(b"{"):
            yield damaged(f"{name} is not a JSON object")
        with suppress(ValueError):  # reported
            if name.startswith(f"{ARRAYS}/"):
                yield from _row_problems(name, parse_json(head))
            elif name == SHARDING:
                yield from _sharding_problems(parse_json(head))


def changed_settings(item: Path, older: Path) -> Iterator[Problem]:
    """Yield names that differ in one bit from those in the same item of the older checkpoint.

    Raises:
        OSError: a file cannot be read.

    """
    others = {name: path for path, name in _files(older)}
    for path, name in _files(item):
        if name in others:
            with suppress(ValueError):  # reported, or of the older checkpoint
                own, before = _names(read_object(path)), _names(read_object(others[name]))
                lost = {one for one, count in before.items() if own[one] < count}
                for why in renamed(own.keys() - before.keys(), lost):
                    yield damaged(f"{name} {why}")


def _files(item: Path) -> Iterator[tuple[Path, str]]:
    for name in (TREE, SHARDING):
        if (item / name).is_file():
            yield item / name, name
    for name, entry in listed(item / ARRAYS).items() if (item / ARRAYS).is_dir() else ():
        if entry.is_file and name.startswith("process_"):
            yield entry.path, f"{ARRAYS}/{name}"


def _row_problems(name: str, value: object) -> Iterator[Problem]:
    """Check that each row of arrays has the keys that Orbax reads."""
    rows = value.get(ARRAYS) if isinstance(value, dict) else None
    if not isinstance(rows, list):
        yield damaged(f"{name} has no list {ARRAYS}")
        return
    for row in rows:
        fields = row.get("array_metadata") if isinstance(row, dict) else None
        for key in _ROW:
            if not isinstance(fields, dict) or key not in fields:
                yield damaged(f"{name} has an array without {key}")
                return


def _sharding_problems(value: object) -> Iterator[Problem]:
    """Check that the sharding of each array is a JSON object in a string."""
    for text in value.values() if isinstance(value, dict) else ():
        with suppress(ValueError):
            if isinstance(text, str) and isinstance(parse_json(text), dict):
                continue
        yield damaged(f"{SHARDING} has an invalid sharding")
        return


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
