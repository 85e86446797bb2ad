"""Megatron-LM, Megatron-core and Megatron-Bridge.

``latest_checkpointed_iteration.txt`` names the iteration to load. Directories such as
``iter_0000100`` contain one checkpoint each, whose format follows from its content, in this order:
``metadata.json`` is torch_dist, ``mp_rank_*`` the legacy format, ``.metadata`` torch_dcp or
fsdp_dtensor. The tracker is written last. Megatron-Bridge reads ``latest_train_state.pt`` first.

``non_persistent`` contains the same for more frequent saves of ``--non-persistent-ckpt-type
global``. Its checkpoint is loaded unless its iteration is lower than that of the tracker outside.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.contract import (
    CannotVerify,
    CheckpointFormat,
    Found,
    Names,
    candidate,
    damaged,
    incomplete,
    within,
)
from holdfast.adapters.checkpoints.dcp import (
    INDEX,
    directory_problems,
    has_index,
    is_dcp,
    read_index,
)
from holdfast.adapters.checkpoints.megatron_legacy import MODELS, RANK, legacy_problems
from holdfast.adapters.checkpoints.own_steps import saved_step, step_problems
from holdfast.adapters.checkpoints.plain_files import (
    CHUNK,
    listed,
    names_in,
    opened,
    read_bytes,
    read_object,
    read_text,
)
from holdfast.adapters.checkpoints.torch_file import file_problems, saved_number
from holdfast.kit.files import sync_directory, write_durably
from holdfast.model.checkpoints import Checkpoint, Depth, Pointer, PointerKind, Problem

TRACKER: Final = "latest_checkpointed_iteration.txt"
BRIDGE_TRACKER: Final = "latest_train_state.pt"
_BRIDGE_STATE: Final = "train_state.pt"
_BRIDGE_CONFIG: Final = "run_config.yaml"
_FREQUENT: Final = "non_persistent"
_RELEASE: Final = "release"
_CONFIG: Final = "metadata.json"
_COMMON: Final = "common.pt"
_SUMS: Final = "integrity.json"
_SAVED: Final = saved_step("iteration")
_ITERATION: Final = re.compile(r"iter_(\d{7,18})")
_STATE_LIMIT: Final = 1 << 22


def find(folder: Path, names: Names) -> Found | None:  # noqa: ARG001 - a Find
    """See ``Find``."""
    frequent = names.get(_FREQUENT)
    inside = listed(frequent.path) if frequent is not None and frequent.is_dir else {}
    rows = [*_rows(names, ""), *_rows(inside, f"{_FREQUENT}/")]
    if not rows and TRACKER not in names and BRIDGE_TRACKER not in names:
        return None
    rows.sort(key=lambda one: (one.step or 0, one.name), reverse=True)
    return Found(checkpoints=tuple(rows), pointer=_pointer(names, inside))


def _rows(names: Names, prefix: str) -> Iterator[Checkpoint]:
    for entry in names.values():
        number = _ITERATION.fullmatch(entry.name)
        if number is not None and entry.is_dir:
            inside = names_in(entry.path)
            is_ended = _CONFIG in inside or (has_index(inside) and _COMMON not in inside)
            name = f"{prefix}{entry.name}"
            yield candidate(entry, int(number[1]), is_ended=is_ended, name=name)


def _pointer(names: Names, inside: Names) -> Pointer:
    """Return what the trackers name together; one that cannot be read ends the job."""
    own, frequent = _tracked(names, ""), _tracked(inside, f"{_FREQUENT}/")
    if own.kind is PointerKind.UNREADABLE:
        return own
    is_frequent = frequent.step is not None and frequent.step >= (own.step or 0)
    return frequent if is_frequent or frequent.kind is PointerKind.UNREADABLE else own


def _tracked(names: Names, prefix: str) -> Pointer:
    if BRIDGE_TRACKER in names:
        step = saved_number(names[BRIDGE_TRACKER].path, "step")
        file, text = BRIDGE_TRACKER, "nothing" if step is None else str(step)
    elif TRACKER in names:
        file, text = TRACKER, read_text(names[TRACKER].path)
        step = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None
    else:
        return Pointer(kind=PointerKind.ABSENT, file=TRACKER)
    file = f"{prefix}{file}"
    if text == _RELEASE:
        return Pointer(kind=PointerKind.FIXED, file=file, text=text, name=_RELEASE)
    if step is None:
        return Pointer(kind=PointerKind.UNREADABLE, file=file, text=text[:40])
    name = f"{prefix}iter_{step:07d}"
    return Pointer(kind=PointerKind.NAMED, file=file, text=text, name=name, step=step)


def check(path: Path, depth: Depth, older: Path | None) -> Iterator[Problem]:
    """See ``Check``."""
    names = listed(path)
    ranks = [name for name, entry in names.items() if RANK.fullmatch(name) and entry.is_dir]
    if _CONFIG in names:
        yield from _torch_dist_problems(path, names, depth, older)
        yield from _step_problems(path, [_COMMON], older)
    elif ranks:
        yield from legacy_problems(path, ranks, depth, older)
        yield from _step_problems(
            path, [f"{rank}/{name}" for rank in ranks for name in MODELS], older
        )
    elif is_dcp(names):
        yield from directory_problems(path, names, depth, older)
        if _is_torch_dist(path, names, older):
            yield incomplete(f"{_CONFIG}, which is written last, is missing")
    elif not any(entry.is_dir or entry.size for entry in names.values()):
        yield incomplete("the directory is empty")
    else:
        raise CannotVerify("unknown Megatron checkpoint format")
    if _BRIDGE_STATE in names:
        yield from (
            damaged(f"{_BRIDGE_STATE} {one.text}")
            for one in file_problems(path / _BRIDGE_STATE, depth)
        )
    elif _BRIDGE_CONFIG in names:
        yield incomplete(f"{_BRIDGE_STATE} is missing")


def repoint(folder: Path, name: str) -> None:
    """See ``Repoint``. The trackers of the other directory must not name a newer checkpoint."""
    number = _ITERATION.fullmatch(Path(name).name)
    if number is None:
        raise OSError(f"{name} is not a Megatron checkpoint")
    frequent, step = folder / _FREQUENT, int(number[1])
    if Path(name).name == name:
        tracked = _tracked(listed(frequent), "")
        if tracked.kind is not PointerKind.ABSENT and (
            tracked.step is None or tracked.step >= step
        ):
            _remove_trackers(frequent)
        _write_trackers(folder / name)
        return
    _write_trackers(folder / name)
    tracked = _tracked(listed(folder), "")
    if tracked.kind is PointerKind.UNREADABLE or (tracked.step or 0) > step:
        older = [
            one for one in _rows(listed(folder), "") if one.step is not None and one.step <= step
        ]
        if older:
            _write_trackers(folder / max(older, key=lambda one: one.step or 0).name)
        else:
            _remove_trackers(folder)


def _write_trackers(path: Path) -> None:
    """Name a checkpoint in its directory. Megatron-Bridge reads its own tracker first."""
    folder, state = path.parent, path / _BRIDGE_STATE
    if state.exists():
        write_durably(folder / BRIDGE_TRACKER, read_bytes(state, _STATE_LIMIT))
    elif (folder / BRIDGE_TRACKER).exists():
        raise OSError(f"{path.name} has no {_BRIDGE_STATE}, which Megatron-Bridge needs to load it")
    write_durably(folder / TRACKER, str(int(path.name.removeprefix("iter_"))).encode())


def _remove_trackers(folder: Path) -> None:
    for file in (BRIDGE_TRACKER, TRACKER):
        (folder / file).unlink(missing_ok=True)
    sync_directory(folder)


# torch_dist


def _torch_dist_problems(
    path: Path, names: Names, depth: Depth, older: Path | None
) -> Iterator[Problem]:
    try:
        config = read_object(path / _CONFIG)
    except ValueError as error:
        yield damaged(f"{_CONFIG} cannot be read: {error}")
        return
    backend = config.get("sharded_backend")
    if not isinstance(backend, str):
        yield damaged(f"{_CONFIG} names no sharded_backend")
        return
    if backend not in ("torch_dist", "torch_dcp", "fsdp_dtensor"):
        raise CannotVerify(f"sharded_backend is {backend[:40]!r}, which cannot be verified")
    if not is_dcp(names):
        yield damaged(f"{INDEX} and all shards are missing")
        return
    if not has_index(names):
        yield damaged(f"{INDEX} is missing")
        return
    yield from directory_problems(path, names, depth, older)
    if _COMMON in names:
        yield from (
            damaged(f"{_COMMON} {one.text}") for one in file_problems(path / _COMMON, depth)
        )
    else:
        index = read_index(path, names)
        if not isinstance(index, Problem) and not index.has_key("common_state"):
            yield damaged(f"{_COMMON} is missing")
    if depth is Depth.HASHES and _SUMS in names:
        yield from _sum_problems(path, names)


def _step_problems(path: Path, files: list[str], older: Path | None) -> Iterator[Problem]:
    """Yield the problems of files that hold another iteration than the directory."""
    if older is None:
        return
    found = [_ITERATION.fullmatch(one.name) for one in (path, older)]
    own, before = (int(one[1]) if one is not None else None for one in found)
    for name in files:
        problems = step_problems(path / name, older / name, (own, before), _SAVED)
        yield from (within(f"{name} ", one) for one in problems)


def _is_torch_dist(path: Path, names: Names, older: Path | None) -> bool:
    """Return whether a checkpoint lacks a required ``metadata.json``: torch_dcp never has one."""
    if _COMMON in names:
        return True
    if older is not None and (older / _CONFIG).exists():
        return True
    index = read_index(path, names) if has_index(names) else None
    return index is not None and not isinstance(index, Problem) and index.has_key("common_state")


def _sum_problems(path: Path, names: Names) -> Iterator[Problem]:
    """Check the SHA-256 of every file, written with ``--verify-integrity``."""
    try:
        sums = read_object(path / _SUMS)
    except ValueError as error:
        yield damaged(f"{_SUMS} cannot be read: {error}")
        return
    files = sums.get("files")
    if sums.get("algorithm") != "sha256" or not isinstance(files, dict):
        yield damaged(f"{_SUMS} cannot be read: it lists no SHA-256")
        return
    for name, expected in files.items():
        if name not in names or not names[name].is_file:
            yield damaged(f"{str(name)[:80]}, which {_SUMS} lists, is missing")
        elif _sum(path / name) != expected:
            yield damaged(f"the SHA-256 of {name} does not match {_SUMS}")


def _sum(path: Path) -> str:
    digest, at = hashlib.sha256(), 0
    with opened(path) as window:
        while part := window.read(at, CHUNK):
            digest.update(part)
            at += len(part)
    return digest.hexdigest()


FORMAT: Final = CheckpointFormat(
    name="megatron",
    title="Megatron-LM, Megatron-core, Megatron-Bridge",
    find=find,
    check=check,
    repoint=repoint,
    recognized_by=f"`{TRACKER}`, `{BRIDGE_TRACKER}` or directories `iter_NNNNNNN`",
    complete_when="torch_dist: `metadata.json`, `common.pt` (from 0.19 on an item of the index) and"
    " what DCP needs; torch_dcp and fsdp_dtensor: what DCP needs; legacy: the files of every rank"
    " that `args` in a model file records, each of them whole",
    loads=f"what `{BRIDGE_TRACKER}` names, else `{TRACKER}`; what a tracker in `{_FREQUENT}` names,"
    " if its iteration is not lower",
    not_detected="as DCP; legacy: a file of the optimizer of another step",
)
