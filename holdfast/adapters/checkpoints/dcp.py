"""PyTorch Distributed Checkpoint (DCP).

A directory contains ``__{rank}_{n}.distcp`` files, each a sequence of small ``torch.save``
archives, and the index ``.metadata``, which is written last and gives the file, offset and length
of every item. With ``use_collectives=False`` each rank has its own index, ``__{rank}.metadata``.
"""

import gc
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.contract import (
    CannotVerify,
    Names,
    damaged,
    incomplete,
)
from holdfast.adapters.checkpoints.dcp_consistency import (
    Contents,
    add_contents,
    changed_names,
    has_new_classes,
    inconsistencies,
    missing_chunks,
    renamed,
)
from holdfast.adapters.checkpoints.pickles import (
    SIZE_LIMIT,
    Built,
    Global,
    InvalidPickle,
    Pairs,
    PickleTooLarge,
    load,
)
from holdfast.adapters.checkpoints.plain_files import (
    Entry,
    Window,
    listed,
    opened,
    read_bytes,
)
from holdfast.adapters.checkpoints.safetensors_file import window_problems as safetensors_problems
from holdfast.adapters.checkpoints.torch_archive import ZIP_START
from holdfast.adapters.checkpoints.torch_file import window_problems
from holdfast.model.checkpoints import Depth, Problem

INDEX: Final = ".metadata"
SHARD: Final = ".distcp"
_OWN_INDEX: Final = re.compile(r"__(\d{1,9})\.metadata")
_SHARD_NAME: Final = re.compile(r"__(\d{1,9})_\d{1,9}\.distcp")
_STEP: Final = re.compile(r"(\d{1,15})(?!.*\d)")

_SHOWN: Final = 3
"""Maximum number of contradictions of an index that are reported."""

CLOCK_SKEW: Final = timedelta(seconds=60)
"""Tolerance for a file with a later time than the index, as the clocks of nodes differ."""


_RAW_WRITERS: Final = ("dlrover.",)
"""Packages that write tensors as bytes without a header, as ``fsdp_engine`` of DLRover 0.6.1."""


@dataclass(frozen=True, slots=True)
class Slice:
    """One item in a file."""

    key: str
    offset: int
    length: int
    is_opaque: bool
    """Compressed, encrypted, or the bytes of a tensor alone: they cannot be verified."""


@dataclass(slots=True)
class Index:
    """Content of the index of a checkpoint."""

    files: dict[str, list[Slice]] = field(default_factory=dict)
    contents: Contents = field(default_factory=Contents)
    saved_as: frozenset[str] = frozenset()
    """Names of the directories to which it was saved."""

    def has_key(self, prefix: str) -> bool:
        """Return whether the name of any item starts with ``prefix``."""
        return any(one.key.startswith(prefix) for row in self.files.values() for one in row)


def is_dcp(names: Collection[str]) -> bool:
    """Return whether a directory with these names is a DCP checkpoint or a part of one."""
    return INDEX in names or any(
        name.endswith(SHARD) or _OWN_INDEX.fullmatch(name) for name in names
    )


def has_index(names: Collection[str]) -> bool:
    """Return whether the save of a checkpoint with these names is complete."""
    return INDEX in names or any(_OWN_INDEX.fullmatch(name) for name in names)


def ranks_in(names: Collection[str]) -> int:
    """Return the number of ranks that have written shards, which are numbered from 0."""
    found = (_SHARD_NAME.fullmatch(name) for name in names)
    return max((int(one[1]) + 1 for one in found if one is not None), default=0)


def directory_problems(
    folder: Path, names: Names, depth: Depth, older: Path | None = None
) -> Iterator[Problem]:
    """Yield the problems of a directory of DCP files; see ``Check``."""
    indexes = _indexes(names)
    if not indexes:
        yield incomplete(f"{INDEX}, which is written last, is missing")
        return
    index = read_index(folder, names)
    if isinstance(index, Problem):
        yield index
        return
    for why in islice(inconsistencies(index.contents), _SHOWN):
        yield damaged(f"{indexes[0].name} {why}")
    for why in islice(missing_chunks(index.contents), _SHOWN):
        is_alone = indexes[0].name == INDEX
        yield damaged(f"{INDEX} {why}") if is_alone else incomplete(f"the index of all ranks {why}")
    if older is not None:
        yield from _older_problems(folder, index, older, depth)
    wrong = list(_size_problems(names, index))
    yield from wrong or _mixed_steps(names, index, max(one.changed_at for one in indexes))
    yield from _missing_ranks(names, indexes)
    if depth is Depth.HASHES:
        for name, slices in index.files.items():
            if name in names:
                yield from _slice_problems(folder / name, name, slices)


def read_index(folder: Path, names: Names) -> Index | Problem:
    """Return the index of a checkpoint, or the problem that prevents reading it.

    Raises:
        OSError: the index cannot be read.
        CannotVerify: the index is too large.

    """
    index = Index()
    for entry in _indexes(names):
        if entry.size > SIZE_LIMIT:
            raise CannotVerify(f"{entry.name} is larger than {SIZE_LIMIT >> 20} MiB")
        data = read_bytes(folder / entry.name, SIZE_LIMIT)
        with _paused_collector():
            problem = _added(index, entry.name, data)
        if problem is not None:
            return problem
    return index


@contextmanager
def _paused_collector() -> Iterator[None]:
    """Pause the collector of cycles, which takes as long as reading an index of a large job."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _added(index: Index, name: str, data: bytes) -> Problem | None:
    """Add the content of a file; returns the problem that prevents that."""
    try:
        loaded = load(data)
    except PickleTooLarge as error:
        raise CannotVerify(f"{name}: {error}") from error
    except InvalidPickle as error:
        return damaged(f"{name} cannot be read: {error}")
    state = loaded.value.state if isinstance(loaded.value, Built) else None
    rows = state.get("storage_data") if isinstance(state, Pairs) else None
    if not isinstance(rows, Pairs) or not _filled(index, rows):
        return damaged(f"{name} is not a PyTorch DCP index")
    why = next(changed_names(loaded.names), None)
    if isinstance(state, Pairs):
        index.contents.is_known &= not has_new_classes(loaded.names)
        why = why or add_contents(index.contents, state)
        index.saved_as |= _saved_as(state)
    return None if why is None else damaged(f"{name} {why}")


def _indexes(names: Names) -> list[Entry]:
    if INDEX in names:
        return [names[INDEX]]
    return [entry for name, entry in names.items() if _OWN_INDEX.fullmatch(name)]


def _filled(index: Index, rows: Pairs) -> bool:
    """Add the rows of ``storage_data``; returns whether all of them are valid."""
    for key, value in rows:
        state = value.state if isinstance(value, Built) else None
        own = key.state if isinstance(key, Built) else None
        if not isinstance(state, Pairs):
            return False
        name, offset, length = (state.get(one) for one in ("relative_path", "offset", "length"))
        if not isinstance(name, str) or not isinstance(offset, int) or not isinstance(length, int):
            return False
        if offset < 0 or length < 0 or name.startswith("/") or ".." in name.split("/"):
            return False
        fqn = own.get("fqn") if isinstance(own, Pairs) else ""
        is_tensor = isinstance(own, Pairs) and own.get("offset") is not None
        one = Slice(str(fqn), offset, length, _is_opaque(value, state, is_tensor=is_tensor))
        index.files.setdefault(name, []).append(one)
    return True


def _is_opaque(value: object, state: Pairs, *, is_tensor: bool) -> bool:
    """Return whether an item is not saved by ``torch.save``: DLRover writes the bytes of tensors.

    Its index has a class of its own for the place of an item. Other items, such as the step, are
    archives there, too.
    """
    kind = value.kind if isinstance(value, Built) else None
    is_raw = isinstance(kind, Global) and kind.module.startswith(_RAW_WRITERS)
    return (is_raw and is_tensor) or bool(state.get("transform_descriptors"))


def _size_problems(names: Names, index: Index) -> Iterator[Problem]:
    for name, slices in sorted(index.files.items()):
        expected = max(one.offset + one.length for one in slices)
        entry = names.get(name)
        if entry is None or not entry.is_file:
            yield damaged(f"{name} is missing")
        elif entry.size != expected:
            yield damaged(f"{name} has {entry.size} bytes instead of {expected}")


def _mixed_steps(names: Names, index: Index, written_at: float) -> Iterator[Problem]:
    """Detect a save into the directory of an earlier one that was interrupted.

    It leaves files of both saves with correct sizes. If all files are newer than the index, they
    were copied and their times prove nothing.
    """
    limit = written_at + CLOCK_SKEW.total_seconds()
    times = {name: names[name].changed_at for name in index.files if name in names}
    late = sorted(name for name, changed_at in times.items() if changed_at > limit)
    if late and len(late) < len(times):
        yield damaged(
            f"{late[0]} was written after {INDEX}: a later save here was interrupted,"
            " or files were copied without their timestamps"
        )


def _missing_ranks(names: Names, indexes: list[Entry]) -> Iterator[Problem]:
    """Check per-rank indexes: ranks count from 0, and each rank with a file has an index."""
    ranks = {int(found[1]) for one in indexes if (found := _OWN_INDEX.fullmatch(one.name))}
    if ranks:
        wrote = {int(found[1]) for name in names if (found := _SHARD_NAME.fullmatch(name))}
        count = max(ranks | wrote) + 1
        if len(ranks) < count:
            missing = next(rank for rank in range(count) if rank not in ranks)
            yield incomplete(f"__{missing}.metadata is missing")


def _older_problems(folder: Path, index: Index, older: Path, depth: Depth) -> Iterator[Problem]:
    """Compare the ranks, the names of items and the directory with the older checkpoint."""
    names = listed(older)
    ranks = {name for name in names if _OWN_INDEX.fullmatch(name)}
    if (missing := sorted(ranks - listed(folder).keys())) and not (folder / INDEX).exists():
        yield incomplete(f"{missing[0]} is missing, but {older.name} has it")
    if older.name in index.saved_as and step_in(older.name) != step_in(folder.name):
        yield damaged(f"an index is that of {older.name}")
    if depth is Depth.HASHES and has_index(names):
        with suppress(CannotVerify):
            other = read_index(older, names)
            if isinstance(other, Index):
                for why in renamed(index.contents.names, other.contents.names):
                    yield damaged(f"{INDEX} {why}")


def _saved_as(state: Pairs) -> frozenset[str]:
    """Return the name of the directory to which an index was saved, if it has one."""
    meta = state.get("storage_meta")
    own = meta.state if isinstance(meta, Built) else None
    place = own.get("checkpoint_id") if isinstance(own, Pairs) else None
    if isinstance(place, Built) and isinstance(place.args, tuple) and place.args:
        place = place.args[-1]
    return frozenset((Path(place).name,)) if isinstance(place, str) else frozenset()


def _slice_problems(path: Path, name: str, slices: list[Slice]) -> Iterator[Problem]:
    with opened(path) as window:
        for one in sorted(slices, key=lambda one: one.offset):
            part = window.part(one.offset, one.length)
            if part.size != one.length:
                continue  # its size was reported
            if found := next(_bytes_problems(part, one), None):
                yield damaged(f"{name}: tensor {one.key} at offset {one.offset}: {found.text}")


def _bytes_problems(part: Window, one: Slice) -> Iterator[Problem]:
    if one.is_opaque or one.length == 0:
        return
    if part.read(8, 1) == b"{" and part.read(0, len(ZIP_START)) != ZIP_START:
        yield from safetensors_problems(part)  # SerializationFormat.SAFETENSORS
    else:
        yield from window_problems(part, Depth.HASHES)


def step_in(name: str) -> int | None:
    """Return the last number in a name."""
    found = _STEP.search(name)
    return int(found[1]) if found else None
