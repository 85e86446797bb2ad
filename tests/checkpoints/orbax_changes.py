"""Changes to the JSON files with which Orbax describes an item, one place of a file at a time."""

import copy
import json
from collections.abc import Iterator
from typing import Any

FILES = ("_METADATA", "_sharding", "array_metadatas/process_0")

VALUES: dict[str, Any] = {"null": None, "number": 7, "text": "x", "list": [], "object": {}}
"""Change to the value that a place then has."""


def changes(file: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield what was changed, and the content of the file with it."""
    whole = json.loads(text)
    if file == "_sharding":  # each value is JSON in a string
        whole = {key: json.loads(value) for key, value in whole.items()}
    for at in places(whole):
        for name, value in changed(whole, at):
            packed = value
            if file == "_sharding":
                packed = {
                    key: json.dumps(one) if isinstance(one, dict) else one
                    for key, one in value.items()
                }
            yield f"{file} {'/'.join(map(str, at))} {name}", json.dumps(packed)


def places(value: Any, at: tuple = ()) -> Iterator[tuple]:
    """Yield the keys and indices that lead to each value in a JSON value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in pairs:
        yield (*at, key)
        if isinstance(one, dict | list):
            yield from places(one, (*at, key))


def changed(whole: Any, at: tuple) -> Iterator[tuple[str, Any]]:
    """Yield each change of a place, and the JSON value with it."""
    for name in ("gone", "renamed", "other", *VALUES):
        value = copy.deepcopy(whole)
        around = value
        for key in at[:-1]:
            around = around[key]
        last = at[-1]
        if name == "gone":
            del around[last]
        elif name in VALUES:
            around[last] = VALUES[name]
        elif name == "other" and isinstance(around[last], bool):
            around[last] = not around[last]
        elif name == "renamed" and isinstance(around, dict):
            pairs = [(f"x{key[1:]}" if key == last else key, one) for key, one in around.items()]
            around.clear()
            around.update(pairs)
        else:
            continue
        yield name, value
