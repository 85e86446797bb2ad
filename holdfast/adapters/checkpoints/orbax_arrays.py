"""Checks the metadata of arrays that Orbax saves as JSON: the schema, and consistency of the files.

``_METADATA`` has the tree of the state. Orbax fails on an entry of another form. ``_sharding`` has
the devices of each array, by which Orbax loads it unless the script states others.
``array_metadatas`` has its shape, and the kind of a random key, which is a plain array without it.

Source: ``orbax.checkpoint._src.metadata`` of 0.12.8, ``tree.py``, ``value_metadata_entry.py``,
``sharding.py``, ``array_metadata_store.py``, ``empty_values.py``.
"""

import base64
import binascii
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.adapters.checkpoints.dcp_consistency import flipped
from holdfast.kit.bounded_files import parse_json

_EMPTY: Final = frozenset(("None", "Dict", "List", "Tuple", "NamedTuple"))
"""Types of values of which nothing is saved but the type."""

_UNKNOWN: Final = "Unknown"
_ARRAY: Final = "jax.Array"
_SEQUENCE, _DICT = 1, 2
_AXIS_TYPE: Final = re.compile(r"AxisTypes?\.\w{1,40}")
_TRIED: Final = 20
"""Maximum number of names that are compared with all others."""

_AXES: Final = 32
"""Maximum number of axes of a mesh; JAX's are a few."""

_ROW: Final = ("param_name", "write_shape", "chunk_shape")


@dataclass(slots=True)
class Arrays:
    """Names of the arrays of an item by the file that names them."""

    leaves: set[str] = field(default_factory=set)
    """All leaves of the tree."""

    arrays: set[str] = field(default_factory=set)
    """Those that are arrays of JAX."""

    random_keys: set[str] = field(default_factory=set)

    stated: dict[str, set[str]] = field(default_factory=dict)
    """Arrays with a sharding or a shape, by the name of their file."""


def tree_problems(found: Arrays, value: Mapping[str, object]) -> Iterator[str]:
    """Yield the problems of the tree in ``_METADATA``, and add its leaves to ``found``."""
    rows = value.get("tree_metadata")
    if not isinstance(rows, dict) or not rows:
        yield "has no entry in tree_metadata"
        return
    for key in ("use_ocdbt", "use_zarr3"):
        if value.get(key) not in (True, False, None):
            yield f"has an invalid value of {key}"
    paths = {}
    for path, row in rows.items():
        keys = _keys(row)
        if keys is None or not _is_value(row["value_metadata"]):
            yield f"has an invalid entry {path[:80]}"
            continue
        paths[path] = str(keys)
        name = ".".join(keys)
        found.leaves.add(name)
        if row["value_metadata"]["value_type"] == _ARRAY:
            found.arrays.add(name)
    wrong = [path for path, stated in paths.items() if path != stated]
    is_other = len(wrong) == len(paths)  # another way to write paths
    for path in wrong:
        if not is_other or flipped(path, (paths[path],)) is not None:
            yield f"has the keys {paths[path][:80]} under {path[:80]}"


def sharding_problems(found: Arrays, file: str, value: Mapping[str, object]) -> Iterator[str]:
    """Yield the problems of ``_sharding``, and add its arrays to ``found``.

    A kind of sharding that is not known is not judged.
    """
    names = found.stated.setdefault(file, set())
    for key, text in value.items():
        name = _decoded(key)
        if name is None:
            yield f"has the invalid name {key[:80]}"
        elif not _is_sharding(text):
            yield f"has an invalid sharding of {name[:80]}"
        if name is not None:
            names.add(name)


def row_problems(found: Arrays, file: str, value: Mapping[str, object]) -> Iterator[str]:
    """Yield the problems of a file of ``array_metadatas``, and add its arrays to ``found``."""
    names = found.stated.setdefault(file, set())
    rows = value.get("array_metadatas")
    if not isinstance(rows, list):
        yield "has no list array_metadatas"
        return
    for row in rows:
        fields = row.get("array_metadata") if isinstance(row, dict) else None
        fields = fields if isinstance(fields, dict) else {}
        missing = [key for key in _ROW if key not in fields]
        if missing:
            yield f"has an array without {missing[0]}"
        elif not _is_row(fields):
            yield f"has an invalid row of {str(fields['param_name'])[:80]}"
        else:
            names.add(fields["param_name"])
            if (fields.get("ext_metadata") or {}).get("random_key_impl") is not None:
                found.random_keys.add(fields["param_name"])


def disagreements(found: Arrays) -> Iterator[tuple[str, str]]:
    """Yield files with an array that the tree does not have, and what is wrong."""
    if not found.leaves:
        return
    for file, names in found.stated.items():
        is_other = not names & found.leaves  # another way to make names of paths
        for name in sorted(names - found.leaves)[:_TRIED]:
            if not is_other or flipped(name, found.leaves) is not None:
                yield file, f"names {name[:80]}, which is not in _METADATA"


def lost(found: Arrays, older: Arrays) -> Iterator[tuple[str, str]]:
    """Yield files in which an array is missing, but was not in the older checkpoint.

    Orbax writes no sharding for some arrays, of kinds that it does not know.
    """
    for file, names in found.stated.items():
        before = older.stated.get(file, set())
        for name in sorted(before & found.arrays - names):
            yield file, f"does not have {name[:80]} as the checkpoint before does"
        for name in sorted(before & names & older.random_keys - found.random_keys):
            yield file, f"does not have the kind of the random key {name[:80]}"


def _keys(row: object) -> tuple[str, ...] | None:
    """Return the keys of an entry of the tree; None if it has another form."""
    if not isinstance(row, dict) or not isinstance(row.get("value_metadata"), dict):
        return None
    steps = row.get("key_metadata")
    if not isinstance(steps, list):
        return None
    keys = []
    for step in steps:
        key, kind = (step.get("key"), step.get("key_type")) if isinstance(step, dict) else (0, 0)
        is_index = isinstance(key, str) and key.isdecimal()
        if not isinstance(key, str) or not (kind == _DICT or (kind == _SEQUENCE and is_index)):
            return None
        keys.append(key)
    return tuple(keys)


def _is_value(value: Mapping[str, object]) -> bool:
    kind, is_skipped = value.get("value_type"), value.get("skip_deserialize")
    return (
        isinstance(kind, str)
        and isinstance(is_skipped, bool)
        and (is_skipped == (kind in _EMPTY) or kind == _UNKNOWN)
        and ("write_shape" not in value or _is_shape(value["write_shape"]))
    )


def _is_row(row: Mapping[str, object]) -> bool:
    more = row.get("ext_metadata")
    return (
        isinstance(row["param_name"], str)
        and _is_shape(row["write_shape"])
        and _is_shape(row["chunk_shape"])
        and (more is None or (isinstance(more, dict) and _is_key(more)))
    )


def _is_key(more: Mapping[str, object]) -> bool:
    """Return whether the kind of a random key is a string or absent."""
    return isinstance(more.get("random_key_impl", ""), str)


def _is_shape(value: object) -> bool:
    return isinstance(value, list) and all(_is_count(one) for one in value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _decoded(key: str) -> str | None:
    try:
        return base64.b64decode(key, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def _is_sharding(text: object) -> bool:
    try:
        value = parse_json(text) if isinstance(text, str) else None
    except ValueError:
        return False
    if not isinstance(value, dict) or not isinstance(value.get("sharding_type"), str):
        return False
    if value["sharding_type"] == "SingleDeviceSharding":
        return isinstance(value.get("device_str"), str)
    return value["sharding_type"] != "NamedSharding" or _is_named(value)


def _is_named(value: Mapping[str, object]) -> bool:
    """Return whether a mesh has as many axes as names, and a partition names those."""
    shape, axes, spec = (value.get(key) for key in ("shape", "axis_names", "partition_spec"))
    if not (_is_shape(shape) and isinstance(axes, list) and isinstance(spec, list)):
        return False
    assert isinstance(shape, list)  # noqa: S101 - of _is_shape, for the type checker
    groups = (part if isinstance(part, list) else [part] for part in spec if part is not None)
    used = [axis for group in groups for axis in group]
    kinds = value.get("axis_types")
    return (
        len(shape) == len(axes) <= _AXES
        and all(isinstance(axis, str) for axis in axes)
        and all(isinstance(axis, str) and axis in axes for axis in used)
        and len(set(used)) == len(used)
        and (kinds is None or (isinstance(kinds, list) and _are_kinds(kinds, len(axes))))
        and _is_mesh(value.get("device_mesh"), math.prod(shape))
    )


def _are_kinds(kinds: Iterable[object], count: int) -> bool:
    found = [isinstance(kind, str) and _AXIS_TYPE.fullmatch(kind) is not None for kind in kinds]
    return all(found) and len(found) in (0, count)


def _is_mesh(value: object, count: int) -> bool:
    """Return whether a mesh has the number of devices; without one, those of the machine count."""
    if value is None:
        return True
    pending = [value.get("mesh")] if isinstance(value, dict) else [value]
    devices: list[object] = []
    while pending:
        one = pending.pop()
        if isinstance(one, list):
            pending += one
        else:
            devices.append(one.get("id") if isinstance(one, dict) else None)
    return len(devices) == count and all(_is_count(one) for one in devices)
