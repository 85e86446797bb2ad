"""Compares the files of a checkpoint with its manifest."""

import errno
import hashlib
import os
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.contract import CannotVerify, damaged
from holdfast.adapters.checkpoints.manifests import DirectoryManifests
from holdfast.adapters.checkpoints.plain_files import Window, chunks, opened
from holdfast.model.checkpoint_manifests import BLOCK, CheckpointManifest, ManifestFile
from holdfast.model.checkpoints import CheckpointState, Depth, Problem

SAMPLE: Final = 8
"""Full blocks that are compared before an attempt: 128 MiB, 0.05 s from a local disk."""

_SAMPLED_FILES: Final = 256
"""Maximum number of blocks in a sample: thousands of small files would each have to be opened."""

_TEXT: Final = (".json", ".md", ".py", ".txt", ".yaml", ".yml")
"""Suffixes of files that people edit in a complete checkpoint."""


_MISSING: Final = frozenset((errno.ENOENT, errno.ENAMETOOLONG))

_SHOWN: Final = 300
"""Characters of a path in a problem: the job may have written the manifest."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was compared, and what differs."""

    problems: tuple[Problem, ...] = ()
    compared: int = 0
    """Blocks whose checksum was compared."""


def file_record(window: Window, path: str, changed_ns: int) -> ManifestFile:
    """Return the record of a file, which is read once."""
    digest, blocks = hashlib.sha256(), []
    for start in range(0, window.size, BLOCK):
        crc = 0
        for chunk in chunks(window.part(start, BLOCK)):
            digest.update(chunk)
            crc = zlib.crc32(chunk, crc)
        blocks.append(crc)
    return ManifestFile(
        path=path,
        size=window.size,
        changed_ns=changed_ns,
        sha256=digest.hexdigest(),
        blocks=tuple(blocks),
    )


def manifest_of(folder: Path, name: str, base: Path | None = None) -> CheckpointManifest | None:
    """Return the manifest of the save of a checkpoint that is in ``folder`` now.

    Args:
        folder: the checkpoint directory.
        name: name of the checkpoint.
        base: directory to which its files are relative; None if that is the checkpoint.

    """
    manifest = DirectoryManifests(folder).read(name)
    is_own = manifest is not None and applies(base or folder / name, manifest)
    return manifest if is_own else None


def applies(path: Path, manifest: CheckpointManifest) -> bool:
    """Return whether a manifest describes the save that is there now.

    A save writes its last file again, so the manifest is of another save if that has another time.
    """
    last = max(manifest.files, key=lambda file: file.changed_ns, default=None)
    if last is None:
        return False
    try:
        return os.stat(_place(path, last)).st_mtime_ns == last.changed_ns
    except OSError:
        return False


def compare(
    path: Path,
    manifest: CheckpointManifest,
    depth: Depth,
    sample: int,
    *,
    may_lack: bool = False,
) -> Comparison:
    """Compare a checkpoint with its manifest.

    Args:
        path: the checkpoint, or the directory to which its files are relative.
        manifest: a manifest that applies.
        depth: with ``hashes``, the SHA-256 of every file is compared.
        sample: otherwise, number of full blocks, or as many bytes of shorter ones, to compare,
            chosen at random; with one or more, also every file whose modification time is not that
            of the manifest.
        may_lack: whether a missing file is no problem: another one may be its replica.

    Raises:
        OSError: a file cannot be read.
        CannotVerify: it could not be verified when the manifest was written.

    """
    if manifest.state is CheckpointState.UNKNOWN:
        raise CannotVerify("; ".join(manifest.problems) or "it could not be verified before")
    problems = [Problem(text=text, state=manifest.state) for text in manifest.problems]
    touched: list[ManifestFile] = []
    intact: list[ManifestFile] = []
    for file in manifest.files:
        try:
            status = os.stat(_place(path, file))
        except OSError as error:
            if error.errno not in _MISSING:
                raise
            if not may_lack:
                problems.append(damaged(f"{_name(file)[:_SHOWN]} is missing; the manifest has it"))
            continue
        is_touched = status.st_mtime_ns != file.changed_ns
        if is_touched and file.path.endswith(_TEXT):
            continue
        if status.st_size != file.size:
            text = f"{_name(file)} has {status.st_size} bytes instead of {file.size}"
            problems.append(damaged(f"{text}, which it had when it was verified"))
        else:
            (touched if is_touched else intact).append(file)
    if depth is Depth.HASHES:
        return _compared_hashes(path, problems, [*touched, *intact])
    if not sample:
        return Comparison(tuple(problems))
    blocks = [(file, number) for file in touched for number in range(len(file.blocks))]
    blocks += _sampled(intact, sample)
    problems += [problem for file, number in blocks for problem in _block(path, file, number)]
    return Comparison(tuple(problems), len(blocks))


def _compared_hashes(path: Path, problems: list[Problem], files: list[ManifestFile]) -> Comparison:
    for file in files:
        digest = hashlib.sha256()
        with opened(_place(path, file)) as window:
            for chunk in chunks(window):
                digest.update(chunk)
        if digest.hexdigest() != file.sha256:
            problems.append(damaged(f"{_name(file)}: SHA-256 differs from the manifest"))
    return Comparison(tuple(problems), sum(len(file.blocks) for file in files))


def _sampled(files: list[ManifestFile], sample: int) -> list[tuple[ManifestFile, int]]:
    blocks = [(file, number) for file in files for number in range(len(file.blocks))]
    random.shuffle(blocks)
    chosen, size = [], 0
    for file, number in blocks[:_SAMPLED_FILES]:
        if size >= sample * BLOCK:
            break
        chosen.append((file, number))
        size += min(BLOCK, file.size - number * BLOCK)
    return chosen


def _block(path: Path, file: ManifestFile, number: int) -> Iterator[Problem]:
    crc = 0
    with opened(_place(path, file)) as window:
        for chunk in chunks(window.part(number * BLOCK, BLOCK)):
            crc = zlib.crc32(chunk, crc)
    if crc != file.blocks[number]:
        where = f"bytes {number * BLOCK} to {min(file.size, (number + 1) * BLOCK) - 1}"
        yield damaged(f"{_name(file)}: checksum of {where} differs from the manifest")


def _place(path: Path, file: ManifestFile) -> Path:
    return path / file.path if file.path else path


def _name(file: ManifestFile) -> str:
    return file.path or "the file"
