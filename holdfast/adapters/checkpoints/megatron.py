"""Checkpoints in Megatron's layout: which is the newest that a job can go on from.

``latest_checkpointed_iteration.txt`` names the iteration that is loaded; ``iter_0000100`` and so on
hold one each, as ``mp_rank_*`` directories or as a distributed checkpoint. Megatron writes the name
last, so that what is newer was cut off. Only the standard library is imported: jobs wait for it.
"""

import os
import pickletools
import re
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from holdfast.kit.files import write_atomically
from holdfast.model.errors import BackendError

TRACKER: Final = "latest_checkpointed_iteration.txt"
EPOCH: Final = ".holdfast-attempt"
"""The number of the last attempt that looked here, and its job."""

_RELEASE: Final = "release"
_ITERATION: Final = re.compile(r"iter_(\d{7,})")
_RANK: Final = re.compile(r"mp_rank_(\d+)(?:_(\d+))?(?:_(\d+))?")
_ASIDE: Final = "incomplete"
_INDEX: Final = ".metadata"
_SMALL: Final = ("metadata.json", "common.pt")
"""What a distributed checkpoint has beside its index and its shards."""

_TRACKER_LIMIT: Final = 64
_INDEX_LIMIT: Final = 1 << 28
"""Bytes of an index; the index of a checkpoint of a trillion parameters takes a tenth."""

_ZIP: Final = b"PK\x03\x04"


class ZombieAttempt(BackendError):
    """A later attempt of the job is at work already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What a directory of checkpoints is like, and what is to be done about it."""

    folder: Path
    said: str | None
    """What the tracker says: a number, ``release``, something else; None if there is none."""

    newest: int | None
    """The newest iteration that is complete, and not newer than the tracker says."""

    problems: dict[int, str] = field(default_factory=dict)
    """Iterations that cannot be loaded, and why."""

    aside: tuple[Path, ...] = ()
    """Directories that are to be renamed: newer than ``newest``, so Megatron wrote them in vain."""

    @property
    def is_set_back(self) -> bool:
        """Whether the tracker is to name another iteration than it does."""
        return self.newest is not None and self.said != str(self.newest)


def iteration(folder: Path) -> int | None:
    """The iteration that the tracker names; None if it names none, or cannot be read now.

    The directory may be anybody's: nothing but a plain file is opened.
    """
    try:
        text = _head(folder / TRACKER)
    except OSError:
        return None
    return int(text) if _is_number(text) else None


def examine(folder: Path) -> Examined:
    """Look at a directory of checkpoints, and change nothing.

    Raises:
        BackendError: it cannot be read; or it has checkpoints, and none is complete.

    """
    try:
        said, found = _said(folder), _found(folder)
        if said == _RELEASE or (said is None and not found):
            return Examined(folder=folder, said=said, newest=None)
        newest, problems = _newest(found, _last_ended(said, found))
    except OSError as error:
        raise BackendError(f"{folder} cannot be read: {error}") from error
    if newest is None and said is not None:
        whys = "; ".join(f"iteration {number}: {why}" for number, why in problems.items())
        raise BackendError(
            f"{folder} has no complete checkpoint ({whys or f'{TRACKER} says {said!r}'}); nothing"
            f" was changed. Bring one back, or remove {TRACKER} to begin anew"
        )
    after = -1 if newest is None else newest
    return Examined(
        folder=folder,
        said=said,
        newest=newest,
        problems=problems,
        aside=tuple(path for number, path in sorted(found.items()) if number > after),
    )


def repair(examined: Examined) -> None:
    """Set the tracker back, then rename what was cut off. May be cut off itself, and repeated.

    Raises:
        BackendError: something cannot be written.

    """
    try:
        if examined.is_set_back:
            write_atomically(examined.folder / TRACKER, str(examined.newest))
        for path in examined.aside:
            with suppress(FileNotFoundError):  # somebody else did it
                path.rename(_free(path))
    except OSError as error:
        raise BackendError(f"{examined.folder} cannot be repaired: {error}") from error


def claim(folder: Path, attempt: int, job: str = "") -> None:
    """Note which attempt of the job begins.

    Args:
        folder: where the job saves.
        attempt: its number.
        job: names the job; another job begins anew. Empty if nothing does: then it is the same.

    Raises:
        ZombieAttempt: a later one has begun before; this one must not go on.
        BackendError: it cannot be noted.

    """
    path = folder / EPOCH
    try:
        said, _, owner = (_head(path) if path.exists() else "").partition(" ")
        is_same = not (job and owner) or job == owner
        if is_same and _is_number(said) and int(said) > attempt:
            raise ZombieAttempt(
                f"attempt {said} of this job works with {folder}; attempt {attempt} must end."
                f" If that attempt was of another job, remove {path}"
            )
        if (said, owner) != (str(attempt), job):
            write_atomically(path, f"{attempt} {job}".rstrip())
    except OSError as error:
        raise BackendError(f"{path} cannot be written: {error}") from error


def _said(folder: Path) -> str | None:
    try:
        return _head(folder / TRACKER)
    except FileNotFoundError:
        return None


def _found(folder: Path) -> dict[int, Path]:
    if not folder.exists():
        return {}
    paths = ((_ITERATION.fullmatch(path.name), path) for path in folder.iterdir())
    return {int(name[1]): path for name, path in paths if name is not None and path.is_dir()}


def _last_ended(said: str | None, found: dict[int, Path]) -> int:
    """The last iteration whose save came to its end; -1 if none did.

    The tracker is written after all else. Where it names nothing, its own writing was cut off;
    where there is none, the save of the newest iteration.
    """
    if said is not None:
        return int(said) if _is_number(said) else max(found, default=-1)
    return max(found.keys() - {max(found, default=-1)}, default=-1)


def _newest(found: dict[int, Path], last: int) -> tuple[int | None, dict[int, str]]:
    problems: dict[int, str] = {}
    if last >= 0 and last not in found:
        problems[last] = "it is not there"
    for number in sorted(found, reverse=True):
        if number > last:
            problems[number] = "its save did not come to its end"
            continue
        why = next(_problems(found[number]), None)
        if why is None:
            return number, problems
        problems[number] = why
    return None, problems


def _problems(folder: Path) -> Iterator[str]:
    """What is wrong with one iteration. Tensors are not read: that would take as long as a load."""
    names = {path.name: path for path in folder.iterdir()}
    ranks = [name for name in names if _RANK.fullmatch(name)]
    if ranks:
        yield from _missing_ranks(ranks)
        for rank in sorted(ranks):
            yield from _broken_files(folder / rank)
    elif _INDEX in names or any(name.endswith(".distcp") for name in names):
        yield from _missing_shards(folder, names)
        yield from (f"{name} is missing" for name in _SMALL if name not in names)
        for name in (*_SMALL, *sorted(name for name in names if name.endswith(".distcp"))):
            if name in names and names[name].stat().st_size == 0:
                yield f"{name} is empty"
    elif not any(path.is_dir() or path.stat().st_size for path in names.values()):
        yield "it is empty"


def _missing_ranks(names: list[str]) -> Iterator[str]:
    """Tensor, pipeline and expert ranks are counted from 0, each beside each."""
    found = {tuple(int(one) for one in _RANK.fullmatch(name).groups() if one) for name in names}  # type: ignore[union-attr]
    wanted = 1
    for axis in zip(*found, strict=False):
        wanted *= max(axis) + 1
    if len(found) < wanted:
        yield f"{wanted - len(found)} of {wanted} ranks did not write"


def _broken_files(folder: Path) -> Iterator[str]:
    files = sorted(folder.glob("*.pt"))
    if not files:
        yield f"{folder.name} has no file of tensors"
    for path in files:
        if path.stat().st_size == 0:
            yield f"{folder.name}/{path.name} is empty"
        elif _is_cut_off(path):
            yield f"{folder.name}/{path.name} is cut off"


def _is_cut_off(path: Path) -> bool:
    """Whether a zip file, as PyTorch writes them, lacks its directory, which comes last."""
    with path.open("rb") as file:
        if not _ZIP.startswith(file.read(len(_ZIP))):
            return False  # of another form, which says nothing of its length
    return not zipfile.is_zipfile(path)


def _missing_shards(folder: Path, names: dict[str, Path]) -> Iterator[str]:
    """By the index, a pickle whose strings are looked at without loading it."""
    index = names.get(_INDEX)
    if index is None:
        yield f"{_INDEX} is missing"
        return
    if index.stat().st_size > _INDEX_LIMIT:
        return
    try:
        strings = {
            value
            for _, value, _ in pickletools.genops(index.read_bytes())
            if isinstance(value, str) and value.endswith(".distcp")
        }
    except ValueError:
        yield f"{_INDEX} is cut off"
        return
    yield from (f"{folder.name}/{one} is missing" for one in sorted(strings - names.keys()))


def _free(path: Path) -> Path:
    aside = path.with_name(f"{path.name}.{_ASIDE}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.{_ASIDE}-{number}")
    return aside


def _head(path: Path) -> str:
    """The text of a short plain file, without its blanks; nothing else is opened."""
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not os.path.isfile(f"/proc/self/fd/{handle}"):
            raise OSError(f"{path} is no plain file")
        with open(f"/proc/self/fd/{handle}", "rb") as file:
            return file.read(_TRACKER_LIMIT).decode("utf-8", errors="replace").strip()
    finally:
        os.close(handle)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
