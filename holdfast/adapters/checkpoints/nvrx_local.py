"""NVIDIA Resiliency Extension: local checkpoints, one file per rank and iteration.

``RANK/iter_<I>_<OWNER>_local.pt`` is the shard of rank OWNER in the directory of a rank: its own,
or of another one as a replica. A file is written as ``*_local.dirty.pt`` and then renamed. Of the
iterations of which the shard of every rank exists, the highest is loaded. A ``dirty`` file makes a
later save of its iteration fail.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.adapters.checkpoints.contract import (
    CannotVerify,
    CheckpointFormat,
    Found,
    Names,
    candidate,
    incomplete,
    within,
)
from holdfast.adapters.checkpoints.plain_files import Entry, listed
from holdfast.adapters.checkpoints.torch_file import file_problems
from holdfast.model.checkpoints import Depth, Problem

_RANK: Final = re.compile(r"\d{1,9}")
_FILE: Final = re.compile(r"iter_(\d{1,15})_(\d{1,9})_local(\.dirty)?\.pt")
_NAME: Final = re.compile(r"iter_(\d{7,15})")


class _Shard(NamedTuple):
    """File of an iteration."""

    holder: int
    """Rank in whose directory it is."""

    owner: int
    """Rank whose state it is."""

    is_saved: bool
    """Whether its save completed."""

    entry: Entry


def find(folder: Path, names: Names) -> Found | None:  # noqa: ARG001 - a Find
    """See ``Find``. A checkpoint is an iteration, with the files of all ranks."""
    ranks = _ranks(names)
    iterations = _iterations(names)
    if not iterations:
        return None
    rows = []
    for iteration, shards in sorted(iterations.items(), reverse=True):
        newest = max((one.entry for one in shards), key=lambda entry: entry.changed_at)
        is_ended = _owners(shards) >= ranks
        rows.append(candidate(newest, iteration, is_ended=is_ended, name=_name(iteration)))
    return Found(checkpoints=tuple(rows))


def check(path: Path, depth: Depth, older: Path | None) -> Iterator[Problem]:
    """See ``Check``. The paths have the name of the iteration and do not exist."""
    names = listed(path.parent)
    iterations = _iterations(names)
    shards = iterations.get(_iteration(path.name), ())
    owners, ranks = _owners(shards), _ranks(names)
    before = _owners(iterations.get(_iteration(older.name), ())) if older is not None else set()
    last = max((*ranks, *owners, *before), default=-1)
    for rank in range(last + 1):  # ends at the first rank without files: anybody may name the last
        if rank in owners:
            continue
        if rank not in ranks and rank not in before:
            raise CannotVerify(
                f"the directory has no files of rank {rank}: those of other nodes are not here"
            )
        yield incomplete(_missing(rank, shards))
    for one in shards:
        if one.is_saved:
            for problem in file_problems(one.entry.path, depth):
                yield _with_replica(within(f"{_shown(one)} ", problem), one, shards)


def parts(folder: Path, name: str) -> tuple[str, ...]:
    """See ``Parts``."""
    return tuple(map(_shown, _iterations(listed(folder)).get(_iteration(name), ())))


def _iterations(names: Names) -> Mapping[int, tuple[_Shard, ...]]:
    """Return the files of each iteration, in order of the ranks that hold them."""
    found: defaultdict[int, list[_Shard]] = defaultdict(list)
    for holder in sorted(_ranks(names)):
        for entry in listed(names[str(holder)].path).values():
            number = _FILE.fullmatch(entry.name)
            if number is not None and not entry.is_dir:
                shard = _Shard(holder, int(number[2]), number[3] is None, entry)
                found[int(number[1])].append(shard)
    return {iteration: tuple(shards) for iteration, shards in found.items()}


def _ranks(names: Names) -> set[int]:
    """Return the ranks that have a directory."""
    return {
        int(entry.name)
        for entry in names.values()
        if _RANK.fullmatch(entry.name) and str(int(entry.name)) == entry.name and entry.is_dir
    }


def _owners(shards: tuple[_Shard, ...]) -> set[int]:
    return {one.owner for one in shards if one.is_saved}


def _name(iteration: int) -> str:
    return f"iter_{iteration:07d}"


def _iteration(name: str) -> int:
    number = _NAME.fullmatch(name)
    return int(number[1]) if number is not None else -1


def _shown(one: _Shard) -> str:
    return f"{one.holder}/{one.entry.name}"


def _missing(rank: int, shards: tuple[_Shard, ...]) -> str:
    begun = next((one for one in shards if one.owner == rank and not one.is_saved), None)
    left = f"; its save did not get beyond {_shown(begun)}" if begun is not None else ""
    return f"the shard of rank {rank} is missing{left}"


def _with_replica(problem: Problem, bad: _Shard, shards: tuple[_Shard, ...]) -> Problem:
    """Return the problem with a whole replica of the shard, if there is one."""
    for other in shards:
        is_copy = other.is_saved and other.owner == bad.owner and other is not bad
        if is_copy and not any(file_problems(other.entry.path, Depth.HASHES)):
            more = f"; {_shown(other)} is a whole replica: move the damaged file away to use it"
            return Problem(text=problem.text + more, state=problem.state)
    return problem


FORMAT: Final = CheckpointFormat(
    name="nvrx-local",
    title="NVIDIA Resiliency Extension, local",
    find=find,
    check=check,
    parts=parts,
    recognized_by="directories `RANK` with `iter_NNNNNNN_OWNER_local.pt`",
    complete_when="the shard of each rank that has a directory is there, in its own one or as a"
    " replica, and each file of the iteration is whole",
    loads="the highest iteration of which the shard of every rank is there",
    not_detected="files of another step; files and directories of the last ranks missing, such as"
    " those on other nodes; `unknown` if those of the first ranks are",
)
