"""Saves that a training script reports as done, in a file beside the checkpoint directory.

One JSON object per line, appended with one write: the script needs no lock, and a reader no more
than the end of the file. A report makes nothing complete; it only triggers verification.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.beside import places, resolved
from holdfast.kit.bounded_files import read_end
from holdfast.kit.files import open_to_append
from holdfast.kit.serial import parse_value, to_plain
from holdfast.model.checkpoints import SaveReport

_SUFFIX: Final = ".holdfast-reported"

_LIMIT: Final = 64 << 10
"""Bytes at the end of the file that are read: the newest 500 reports."""

_DEEPEST: Final = 32
"""Maximum number of directories in the name of a checkpoint. Each is looked up; no framework nests
as many, and a job can write thousands into one line."""


def append_report(folder: Path, report: SaveReport, *, may_be_inside: bool) -> None:
    """Record that a script has saved a checkpoint.

    Args:
        folder: the checkpoint directory.
        report: the save.
        may_be_inside: whether the framework ignores foreign entries in the directory.

    Raises:
        OSError: the file cannot be written.
        ValueError: the directory is a mount point, and nothing may be put into it.

    """
    path = next(places(folder, _SUFFIX))
    if path.parent == resolved(folder) and not may_be_inside:
        raise ValueError(f"{folder} is a mount point; use a directory in it")
    line = json.dumps(to_plain(report)) + "\n"
    handle = open_to_append(path)
    try:
        os.write(handle, line.encode("ascii"))
    finally:
        os.close(handle)


def read_reports(folder: Path) -> Mapping[str, SaveReport]:
    """Return the newest report of each checkpoint, by name; none if there is no valid file."""
    found: dict[str, SaveReport] = {}
    for path in places(folder, _SUFFIX):
        try:
            data = read_end(path, _LIMIT)
        except OSError:
            continue
        for line in data.splitlines():
            try:
                report = parse_value(SaveReport, line)
            except ValueError:  # cut off, or not written by Holdfast
                continue
            if report.name.count("/") <= _DEEPEST:
                found[report.name] = report
    return found


def reports_size(folder: Path) -> int:
    """Return the size of the file in bytes, which grows with each report; 0 if there is none."""
    size = 0
    for path in places(folder, _SUFFIX):
        try:
            size += os.lstat(path).st_size
        except OSError:
            continue
    return size
