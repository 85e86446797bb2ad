"""Stores the evidence of hangs as JSON files, and reads them."""

from pathlib import Path
from typing import Final

from holdfast.decisions.hang_evidence import HangEvidence, bounded_text
from holdfast.kit.bounded_files import read_bounded
from holdfast.kit.files import write_atomically
from holdfast.kit.serial import parse_value

_FILE_BYTES: Final = 1 << 25
"""Maximum size of a file: 4096 ranks with environments of 8 KiB."""


def write_evidence(file: Path, evidence: HangEvidence) -> None:
    """Store the evidence; an earlier file is replaced.

    Raises:
        OSError: it cannot be written.

    """
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, bounded_text(evidence, _FILE_BYTES) + "\n")


def read_evidence(file: Path) -> HangEvidence:
    """Return stored evidence.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged.

    """
    return parse_value(HangEvidence, read_bounded(file, _FILE_BYTES))
