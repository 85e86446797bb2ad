"""Recognizes zip archives of other libraries, whose files have a suffix of ``torch.save``, too."""

import io
import os
import struct
import zipfile
from typing import Final

from holdfast.adapters.checkpoints.plain_files import Window
from holdfast.adapters.checkpoints.torch_archive import ZIP_START

_READ_LIMIT: Final = 1 << 20
"""Maximum bytes of one read: a directory of some ten thousand members. Larger ones are not read."""

_TORCH_NAMES: Final = frozenset(
    ("data.pkl", "constants.pkl", "version", "byteorder", ".format_version", ".storage_alignment")
)
_TORCH_FOLDERS: Final = frozenset(("data", ".data", "code", "constants"))
"""Members of ``torch.save`` and TorchScript, in one top-level folder. Each file has several."""

_LOCAL: Final = struct.Struct("<4s5H3L2H")


def is_other_zip(window: Window) -> bool:
    """Return whether a file is a whole zip archive that torch did not write.

    Its directory is whole, each member has its header, and none has a name that torch uses. An
    archive of torch stays one for this if it is cut off, or if bytes in it have changed.
    """
    if window.read(0, len(ZIP_START)) != ZIP_START:
        return False
    try:
        with _Reader(os.dup(window.handle)) as file, zipfile.ZipFile(file) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error):
        return False
    return min((one.header_offset for one in members), default=1) == 0 and all(
        not _may_be_of_torch(one.orig_filename) and _has_header(window, one) for one in members
    )


def _may_be_of_torch(name: str) -> bool:
    first, *inside = name.split("/")
    if not inside:
        return first in _TORCH_NAMES
    return inside[0] in _TORCH_NAMES or (len(inside) > 1 and inside[0] in _TORCH_FOLDERS)


def _has_header(window: Window, member: zipfile.ZipInfo) -> bool:
    head = window.read(member.header_offset, _LOCAL.size)
    if len(head) < _LOCAL.size or not head.startswith(ZIP_START):
        return False
    flags, size = _LOCAL.unpack(head)[2], _LOCAL.unpack(head)[9]
    raw = window.read(member.header_offset + _LOCAL.size, size)
    return raw.decode("utf-8" if flags & 0x800 else "cp437", "replace") == member.orig_filename


class _Reader(io.FileIO):
    """An open file for ``zipfile``, which reads the whole directory of an archive at once."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to ``size`` bytes, or the rest.

        Raises:
            OSError: there are more than ``_READ_LIMIT`` bytes.

        """
        is_rest = size is None or size < 0
        data = super().read(_READ_LIMIT + 1 if is_rest else min(size or 0, _READ_LIMIT + 1))
        if len(data) > _READ_LIMIT:
            raise OSError("the directory of a zip archive is too large to read")
        return data
