"""Reads dumps of PyTorch's flight recorder (torch 2.4 to 2.15), and requests them.

A dump is a pickle of plain values that the job has written: only the opcodes of such values are
accepted, so that nothing in it is executed.
"""

import os
import pickle
import re
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar, Final

from holdfast.decisions.flight_recorder import DumpFiles, RankTrace
from holdfast.decisions.recorder_dumps import INVALID, trace_of
from holdfast.kit.bounded_files import read_bounded

_DUMP_BYTES: Final = 1 << 25
"""Maximum size of a dump. 20,000 entries with stacks, torchtitan's ring, take 20 MiB."""

_WAIT_S: Final = 7.0
"""Maximum time until requested dumps are there, as long as snapshots take: NCCL's process group
looks at its pipe once a second, the first dump of a process takes torch 2.15 about 4 s of a core,
and a stopped process never dumps."""

_TIME_S: Final = 7.5
"""Maximum time of reading. A dump of 2000 entries takes 0.4 s of a core."""

_POLL_S: Final = 0.05

_OPCODES: Final = (
    pickle.PROTO, pickle.STOP, pickle.MARK, pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE,
    pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG1, pickle.BINFLOAT,
    pickle.BINUNICODE, pickle.SHORT_BINUNICODE, pickle.EMPTY_DICT, pickle.EMPTY_LIST,
    pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3,
    pickle.APPEND, pickle.APPENDS, pickle.BINPUT,
    pickle.LONG_BINPUT, pickle.BINGET, pickle.LONG_BINGET, pickle.MEMOIZE, pickle.FRAME,
)  # fmt: skip


_PURE: Final[Any] = pickle._Unpickler


def _set_item(unpickler: Any) -> None:
    _check_keys(unpickler.stack[-2:-1])
    _PURE.load_setitem(unpickler)


def _set_items(unpickler: Any) -> None:
    _check_keys(unpickler.stack[::2])
    _PURE.load_setitems(unpickler)


def _check_keys(keys: Sequence[Any]) -> None:
    """Raise an error unless all keys are strings: the hash of a deep tuple overflows the stack."""
    if not all(isinstance(key, str) for key in keys):
        raise pickle.UnpicklingError("a key is not a string")


class _PlainUnpickler(pickle._Unpickler):
    """Python's own unpickler, with the opcodes of plain values alone."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        **{code[0]: _PURE.dispatch[code[0]] for code in _OPCODES},
        pickle.SETITEM[0]: _set_item,
        pickle.SETITEMS[0]: _set_items,
    }


def request_dumps(files: DumpFiles, ranks: Collection[int] | None = None) -> frozenset[int]:
    """Request a dump of each rank that listens; return these ranks.

    Their earlier dumps are removed. A rank that has ended keeps its dump: its watchdog may have
    written it.

    Args:
        files: where the ranks dump.
        ranks: ranks to ask; None for all.

    """
    dumps = _numbered(files.dump, "", ranks)
    pipes = _numbered(files.pipe, ".pipe", ranks)
    return frozenset(rank for rank, pipe in pipes.items() if _asks(pipe, dumps.get(rank)))


def read_traces(
    files: DumpFiles,
    requested: frozenset[int] = frozenset(),
    ranks: Collection[int] | None = None,
    since: float = 0.0,
) -> tuple[RankTrace, ...]:
    """Return the traces of all ranks with a dump; one that cannot be read counts as missing.

    Args:
        files: where the ranks dump.
        requested: ranks whose dumps are awaited, at most 7 s.
        ranks: ranks to read; None for all.
        since: seconds since 1970; dumps that were written before are of an earlier attempt.

    """
    began = time.monotonic()
    found: dict[int, RankTrace] = {}
    while True:
        for rank, path in sorted(_numbered(files.dump, "", ranks).items()):
            is_late = time.monotonic() > began + _TIME_S
            is_other = rank in found or is_late or _written_at(path) < since
            trace = None if is_other else _read(rank, path)
            if trace is not None:
                found[rank] = trace
        if requested <= found.keys() or time.monotonic() > began + _WAIT_S:
            return tuple(found.values())
        time.sleep(_POLL_S)


def dumped_ranks(files: DumpFiles, ranks: Collection[int], since: float) -> frozenset[int]:
    """Return the ranks whose dumps were written since a time, in seconds since 1970."""
    dumps = _numbered(files.dump, "", ranks)
    return frozenset(rank for rank, path in dumps.items() if _written_at(path) >= since)


def _written_at(path: Path) -> float:
    try:
        return path.stat(follow_symlinks=False).st_mtime
    except OSError:
        return 0.0


def _read(rank: int, path: Path) -> RankTrace | None:
    """Return the trace of a rank; None if its dump is not complete yet, or not valid."""
    try:
        return trace_of(rank, _PlainUnpickler(BytesIO(read_bounded(path, _DUMP_BYTES))).load())
    except (OSError, pickle.UnpicklingError, *INVALID):
        return None


def _numbered(prefix: str, suffix: str, ranks: Collection[int] | None) -> dict[int, Path]:
    """Return the files by rank whose paths are a prefix, the rank and a suffix."""
    folder, beginning = os.path.split(prefix)
    name = re.compile(rf"{re.escape(beginning)}(\d{{1,6}}){re.escape(suffix)}")
    with suppress(OSError):
        entries = [(name.fullmatch(entry), entry) for entry in os.listdir(folder or ".")]
        numbered = {int(found[1]): Path(folder, entry) for found, entry in entries if found}
        return {rank: path for rank, path in numbered.items() if ranks is None or rank in ranks}
    return {}


def _asks(pipe: Path, dump: Path | None) -> bool:
    """Write to the pipe of a rank after its dump was removed; return whether somebody reads it."""
    try:
        handle = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if dump is not None:
            dump.unlink(missing_ok=True)
        return os.write(handle, b"1\n") > 0
    except OSError:
        return False
    finally:
        os.close(handle)
