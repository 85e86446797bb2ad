"""Compares the parts of a DCP index with each other, as the index has no checksum.

A flipped bit often leaves a valid pickle that torch cannot load, or loads as another tensor. What
may be a newer form of the index is no problem: a name counts as changed if it differs from a known
one in a single bit.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from typing import Final

from holdfast.adapters.checkpoints.pickles import Built, Global, Pairs

_WIDTHS: Final = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "complex128": 16, "complex64": 8,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1, "uint16": 2,
    "uint32": 4, "uint64": 8, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
}  # fmt: skip
"""Bytes per element of a dtype of torch."""

_CLASSES: Final = {
    "torch.distributed.checkpoint.metadata": (
        "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta",
        "TensorProperties", "TensorStorageMetadata", "_MEM_FORMAT_ENCODING",
    ),
    "torch.distributed.checkpoint.filesystem": ("_StorageInfo",),
    "torch.distributed.checkpoint.planner": (
        "SavePlan", "TensorWriteData", "WriteItem", "WriteItemType",
    ),
    "torch.distributed._shard.sharded_tensor.metadata": ("MEM_FORMAT_ENCODING", "TensorProperties"),
    "torch.serialization": ("_get_layout",),
    "torch": ("Size", *_WIDTHS),
    "pathlib": ("PosixPath",),
    "builtins": ("getattr",),
    "collections": ("OrderedDict",),
}  # fmt: skip
_KNOWN: Final = frozenset(
    f"{module} {name}" for module, names in _CLASSES.items() for name in names
)

_FIELDS: Final = {
    "TensorStorageMetadata": ("properties", "size", "chunks"),
    "ChunkStorageMetadata": ("offsets", "sizes"),
    "MetadataIndex": ("fqn", "offset", "index"),
}
_LAYOUTS: Final = ("torch.strided",)
_MEMORY_FORMATS: Final = 3
"""Highest number of a memory format in torch's encoding."""

_MEMORY_FORMAT_NAMES: Final = (
    "TORCH_CONTIGUOUS_FORMAT", "TORCH_CHANNELS_LAST", "TORCH_PRESERVE_FORMAT",
)  # fmt: skip


_Item = tuple[str, tuple[int, ...] | None]
"""Name and offset of one chunk of a tensor; None instead of an offset if it is no tensor."""


@dataclass(slots=True)
class Contents:
    """What the indexes of a checkpoint state."""

    is_known: bool = True
    """Whether they have no class that a later release of torch may have added."""

    sizes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    chunks: dict[_Item, int] = field(default_factory=dict)
    """Elements of each chunk."""

    widths: dict[str, int] = field(default_factory=dict)
    """Bytes per element, of tensors whose dtype is known."""

    stored: dict[_Item, int] = field(default_factory=dict)
    """Bytes in a file."""

    paths: dict[str, tuple[object, ...]] = field(default_factory=dict)
    """Keys in nested dicts, by the name that was made of them."""

    @property
    def names(self) -> Set[str]:
        """Names of all items."""
        return {name for name, _ in self.chunks}


class _Unknown(Exception):
    """A part of the index has a form that is not known, or was changed; the message names it."""


def changed_names(found: Iterable[Global]) -> Iterator[str]:
    """Yield the names of classes that differ from a known one in a single bit."""
    for one in found:
        if (known := flipped(f"{one.module} {one.name}", _KNOWN)) is not None:
            yield f"names the class {one.module}.{one.name} instead of {known.replace(' ', '.')}"


def has_new_classes(found: Iterable[Global]) -> bool:
    """Return whether an index names a class of DCP that is not known."""
    return any(
        one.module.startswith("torch.distributed.checkpoint")
        and f"{one.module} {one.name}" not in _KNOWN
        for one in found
    )


def flipped(name: str, known: Iterable[str]) -> str | None:
    """Return the known name from which ``name`` differs in a single bit; None if there is none."""
    if name in (known := frozenset(known)):
        return None
    return next((one for one in known if _is_one_bit(name, one)), None)


def add_contents(contents: Contents, state: Pairs) -> str | None:
    """Add what an index states; returns why it is not consistent, or None."""
    if not contents.is_known:
        return None
    try:
        rows = state.get("state_dict_metadata")
        for name, value in rows if isinstance(rows, Pairs) else ():
            if isinstance(name, str) and isinstance(value, Built):
                _add_item(contents, name, value)
        stored = state.get("storage_data")
        for key, value in stored if isinstance(stored, Pairs) else ():
            _add_stored(contents, key, value)
        paths = state.get("planner_data")
        for name, path in paths if isinstance(paths, Pairs) else ():
            if isinstance(name, str) and isinstance(path, tuple):
                contents.paths[name] = path
    except _Unknown as why:
        return str(why)
    return None


def missing_chunks(contents: Contents) -> Iterator[str]:
    """Yield tensors of which a part is missing, as if the index of a rank is."""
    counts = _counts(contents)
    for name, size in contents.sizes.items():
        if contents.is_known and counts[name] < math.prod(size):
            yield f"has chunks of {counts[name]} of {math.prod(size)} elements of {name}"


def inconsistencies(contents: Contents) -> Iterator[str]:
    """Yield where the statements of an index contradict each other."""
    if not contents.is_known:
        return
    counts = _counts(contents)
    for name, size in contents.sizes.items():
        if counts[name] > math.prod(size):
            yield f"has chunks of {counts[name]} of {math.prod(size)} elements of {name}"
    for item, count in contents.chunks.items():
        name, at = item
        length = contents.stored.get(item)
        if length is None:
            yield f"names no file for {name}" + (f" at {list(at)}" if at else "")
        elif count * contents.widths.get(name, 0) > length:
            yield f"has {length} bytes for {count} elements of {name}"
    unknown = sorted(item[0] for item in contents.stored if item not in contents.chunks)
    if unknown:
        yield f"has no description of {unknown[0]}"
    joined = {name: ".".join(map(str, path)) for name, path in contents.paths.items()}
    wrong = [name for name, path in joined.items() if path != name]
    is_other = len(wrong) == len(joined)  # another way to make names of paths
    if wrong and (not is_other or any(_is_one_bit(name, joined[name]) for name in wrong)):
        yield f"has a path of {wrong[0]} that is not its name"
    yield from renamed(contents.paths.keys(), contents.names)


def _counts(contents: Contents) -> Counter[str]:
    """Return the number of elements in the chunks of each tensor."""
    counts: Counter[str] = Counter()
    for (name, _), count in contents.chunks.items():
        counts[name] += count
    return counts


def renamed(names: Set[str], others: Set[str]) -> Iterator[str]:
    """Yield names without a counterpart that differ from one without a counterpart in one bit."""
    lost = others - names
    for name in sorted(names - others):
        if lost and (other := flipped(name, lost)) is not None:
            yield f"has {name} instead of {other}"


def _add_item(contents: Contents, name: str, value: Built) -> None:
    if value.name == "BytesStorageMetadata":
        contents.chunks[name, None] = 0
        return
    if value.name != "TensorStorageMetadata":
        return
    properties, size, chunks = _fields(value)
    own = _numbers(size)
    _check_properties(name, properties)
    if contents.sizes.setdefault(name, own) != own:
        raise _Unknown(f"has two sizes of {name}")
    state = properties.state if isinstance(properties, Built) else None
    dtype = state[0] if isinstance(state, tuple) and state else None
    if isinstance(dtype, Global) and dtype.name in _WIDTHS:
        contents.widths[name] = _WIDTHS[dtype.name]
    for chunk in chunks if isinstance(chunks, list) else ():
        if not isinstance(chunk, Built) or chunk.name != "ChunkStorageMetadata":
            raise _Unknown(f"has an invalid chunk of {name}")
        offsets, sizes = map(_numbers, _fields(chunk))
        if not len(offsets) == len(sizes) == len(own) or any(
            begin < 0 or count < 0 or begin + count > limit
            for begin, count, limit in zip(offsets, sizes, own, strict=True)
        ):
            raise _Unknown(f"has a chunk of {name} outside of its size")
        contents.chunks[name, offsets] = math.prod(sizes)


def _check_properties(name: str, properties: object) -> None:
    """Check the types of dtype, layout, requires_grad, memory format and pin_memory."""
    state = properties.state if isinstance(properties, Built) else None
    if not isinstance(properties, Built) or properties.name != "TensorProperties":
        raise _Unknown(f"has no properties of {name}")
    if not isinstance(state, tuple) or len(state) < 5:
        return
    dtype, layout, grad, memory, pin = state[:5]
    layouts = _argument(layout, "_get_layout")
    if (
        not (isinstance(dtype, Global) and dtype.module == "torch")
        or not isinstance(layouts, str)
        or flipped(layouts, _LAYOUTS) is not None
        or not _is_memory_format(memory)
        or not (isinstance(grad, bool) and isinstance(pin, bool))
    ):
        raise _Unknown(f"has properties of {name} that are not valid")


def _is_memory_format(value: object) -> bool:
    """Return whether a value is a valid memory format of torch, which is an enumeration.

    Python pickles its members by number, Python 3.11.2 (Debian 12) by name.
    """
    number = _argument(value, "MEM_FORMAT_ENCODING")
    if isinstance(number, int):
        return 0 <= number <= _MEMORY_FORMATS
    if not isinstance(value, Built) or value.name != "getattr":
        return False
    name = value.args[-1] if isinstance(value.args, tuple) and len(value.args) == 2 else None
    return isinstance(name, str) and flipped(name, _MEMORY_FORMAT_NAMES) is None


def _argument(value: object, name: str) -> object:
    """Return the only argument of a call of a function; None if it is another call."""
    if not isinstance(value, Built):
        return None
    if value.name != name and value.name.strip("_") != name.strip("_"):
        return None
    args = value.args
    return args[0] if isinstance(args, tuple) and len(args) == 1 else None


def _add_stored(contents: Contents, key: object, value: object) -> None:
    if not isinstance(key, Built) or key.name != "MetadataIndex":
        raise _Unknown("has a file of an item without a name")
    own = key.state
    state = value.state if isinstance(value, Built) else None
    if not isinstance(own, Pairs) or not isinstance(state, Pairs):
        return
    known = _FIELDS["MetadataIndex"]
    for each, _ in own:
        if each not in known and flipped(str(each), known) is not None:
            raise _Unknown(f"has the field {each} in an item")
    name, offset, length = own.get("fqn"), own.get("offset"), state.get("length")
    at = None if offset is None else _numbers(offset)
    contents.stored[str(name), at] = length if isinstance(length, int) else 0


def _fields(value: Built) -> list[object]:
    state = value.state
    expected = _FIELDS.get(value.name, ())
    if not isinstance(state, Pairs):
        raise _Unknown(f"has a {value.name or 'part'} without fields")
    found = {key: each for key, each in state if isinstance(key, str)}
    if missing := [one for one in expected if one not in found]:
        raise _Unknown(f"has a {value.name} without {missing[0]}")
    return [found[one] for one in expected]


def _numbers(value: object) -> tuple[int, ...]:
    """Return the numbers of a ``torch.Size``."""
    args = _argument(value, "Size")
    if not isinstance(args, tuple) or not all(isinstance(one, int) for one in args):
        raise _Unknown("has a size that is not of integers")
    return args


def _is_one_bit(one: str, other: str) -> bool:
    first, second = one.encode("utf-8", "replace"), other.encode("utf-8", "replace")
    if len(first) != len(second):
        return False
    changed = [a ^ b for a, b in zip(first, second, strict=True) if a != b]
    return len(changed) == 1 and changed[0].bit_count() == 1
