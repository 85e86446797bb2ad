"""Prints the flight recorders of the ranks in this container, or of this job on this node.

Where Holdfast is not installed beside the ranks, this file runs in their own interpreter, as an
argument of ``python -c``: it needs nothing but the standard library of Python 3.8. A job names any
path in its environment, so it opens paths with the rights of the job alone, also if root has
started it, follows no symbolic link at their end, and opens regular files and FIFOs only.

Arguments: seconds to wait for dumps, a pattern of the files of libraries, the variable with the
prefix of the pipes, and those with the prefix of the dumps, the preferred one first.

The output, ``== traces`` and then lines of base64, is a JSON object by rank, compressed by zlib: of
each dump what ``decisions.recorder_dumps`` reads. Of each process group, it has the collectives
around the first one that is not over, with the line of the program that called it.
"""

from __future__ import annotations

import base64
import io
import json
import os
import pickle
import re
import stat
import struct
import sys
import time
import zlib
from contextlib import suppress
from typing import Any

_DUMP_BYTES = 1 << 23
"""Maximum size of a dump. The default ring of 2000 collectives takes 2 MiB with stacks. Reading one
takes a multiple of its size, and a container that exceeds its memory may lose all processes."""

_TOTAL = 1 << 20
"""Maximum size of the output before compression; ranks beyond it are left out."""

_DEFAULTS = (
    "{XDG_CACHE_HOME}/torch/comm_lib_trace_rank_",
    "{HOME}/.cache/torch/comm_lib_trace_rank_",
    "/tmp/nccl_trace_rank_",  # noqa: S108 - PyTorch's
)
"""Default prefixes of PyTorch, those of newer releases first."""

_BEFORE = _FROM = 8
"""Collectives of a group that are kept before the first one that is not over, and from it on."""

_RANKS = 64
_OWN = ("SLURM_JOB_ID", "SLURMD_NODENAME")
_LINE = 500
_FLAGS = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
_INVALID = (
    OSError, KeyError, ValueError, TypeError, IndexError, EOFError, AttributeError, OverflowError,
    MemoryError, RecursionError, ImportError, struct.error, pickle.UnpicklingError,
)  # fmt: skip


class _Plain(pickle.Unpickler):
    """Reads plain values: nothing in a dump is executed."""

    def find_class(self, module: str, name: str) -> object:
        raise pickle.UnpicklingError(module + "." + name + " is not a plain value")


class _Rank:
    """A rank that runs, with the paths of its dumps and of its pipe."""

    def __init__(self, pid: str, variables: dict[str, str], names: list[str]) -> None:
        number = variables["RANK"]
        self.number = int(number)
        self.began_at = _began_at(pid)
        given = next((variables[name] for name in names[1:] if variables.get(name)), "")
        known = {"XDG_CACHE_HOME": "", "HOME": "", **variables}
        prefixes = [given] if given else [one.format_map(known) for one in _DEFAULTS]
        self.dumps = [_inside(pid, one + number) for one in prefixes]
        pipe = variables.get(names[0])
        self.pipe = _inside(pid, pipe + number + ".pipe") if pipe else ""
        self.before = _status(self.dumps)


def _inside(pid: str, path: str) -> str:
    """Return a path of a process, which may be in a container of its own."""
    return "/proc/" + pid + ("/root" if path.startswith("/") else "/cwd/") + path


def _began_at(pid: str) -> float:
    """Return the start of a process in seconds since 1970: older dumps belong to other jobs."""
    with open("/proc/" + pid + "/stat", encoding="utf-8", errors="replace") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    with open("/proc/uptime", encoding="ascii") as file:
        uptime = float(file.read().split()[0])
    return time.time() - uptime + ticks / os.sysconf("SC_CLK_TCK")


def _ranks(names: list[str]) -> list[_Rank]:
    """Return the ranks of one user. This process then has the rights of that user only."""
    started = _started()
    owner = next((one[0] for one in started.values()), None)
    if owner is None or not _has_taken_rights(owner):
        return []
    found = []
    for each, pid, variables in started.values():
        if each == owner:
            with suppress(*_INVALID):
                found.append(_Rank(pid, variables, names))
    return found


def _started() -> dict[str, tuple[tuple[int, int], str, dict[str, str]]]:
    """Return user and group, process and environment by rank."""
    found: dict[str, tuple[tuple[int, int], str, dict[str, str]]] = {}
    own = [os.environ.get(name) for name in _OWN]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(*_INVALID):
            with open("/proc/" + pid + "/environ", "rb") as file:
                text = file.read(1 << 20).decode("utf-8", "replace")
            variables = dict(one.partition("=")[::2] for one in text.split("\0"))
            rank = variables.get("RANK", "")
            is_own = [variables.get(name) for name in _OWN] == own
            if is_own and re.fullmatch("[0-9]{1,6}", rank) and len(found) < _RANKS:
                found.setdefault(rank, (_owner(pid), pid, variables))
    return found


def _owner(pid: str) -> tuple[int, int]:
    """Return the effective user and group of a process."""
    with open("/proc/" + pid + "/status", encoding="utf-8", errors="replace") as file:
        text = file.read()
    user, group = (
        re.search("^" + name + r":\s+\d+\s+(\d+)", text, re.MULTILINE) for name in ("Uid", "Gid")
    )
    if user is None or group is None:
        raise ValueError(text)
    return int(user.group(1)), int(group.group(1))


def _has_taken_rights(owner: tuple[int, int]) -> bool:
    """Return whether this process has the rights of a user, and those of no other any more."""
    if os.geteuid() == owner[0]:
        return True
    try:
        os.setgroups([])
        os.setgid(owner[1])
        os.setuid(owner[0])
    except OSError:
        return False
    return True


def _request(rank: _Rank) -> bool:
    """Write to the pipe of a rank; return whether somebody reads it."""
    try:
        handle = os.open(rank.pipe, os.O_WRONLY | _FLAGS)
    except OSError:
        return False
    try:
        return stat.S_ISFIFO(os.fstat(handle).st_mode) and os.write(handle, b"1\n") > 0
    except OSError:
        return False
    finally:
        os.close(handle)


def _status(paths: list[str]) -> list[tuple[int, int, int]]:
    found = []
    for path in paths:
        with suppress(OSError):
            one = os.stat(path, follow_symlinks=False)
            found.append((one.st_ino, one.st_mtime_ns, one.st_size))
    return found


def _read(rank: _Rank, libraries: str) -> dict[str, Any] | None:
    """Return the entries to print from the dump of a rank; None without a complete dump."""
    for path in rank.dumps:
        with suppress(*_INVALID):
            handle = os.open(path, os.O_RDONLY | _FLAGS)
            with open(handle, "rb") as file:
                status = os.fstat(handle)
                is_dump = stat.S_ISREG(status.st_mode) and status.st_size <= _DUMP_BYTES
                if is_dump and status.st_mtime >= rank.began_at:
                    return _kept(_Plain(io.BytesIO(file.read(_DUMP_BYTES))).load(), libraries)
    return None


def _kept(dump: dict[str, Any], libraries: str) -> dict[str, Any]:
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for entry in dump["entries"]:
        if not entry.get("is_p2p"):
            groups.setdefault(tuple(map(str, entry["process_group"])), []).append(entry)
    kept = []
    for entries in groups.values():
        entries.sort(key=lambda one: int(one["collective_seq_id"]))
        first = next((at for at, one in enumerate(entries) if not _is_over(one)), len(entries))
        kept += [_fields(one, ()) for one in entries[max(0, first - _BEFORE) : first]]
        kept += [_fields(one, _caller(one, libraries)) for one in entries[first : first + _FROM]]
    members = {
        str(name): {key: str(one[key]) for key in ("name", "desc", "ranks")}
        for name, one in dump.get("pg_config", {}).items()
    }
    return {"entries": kept, "pg_config": members}


def _is_over(entry: dict[str, Any]) -> bool:
    is_gloo = str(entry["profiling_name"]).startswith("gloo:")
    return entry["state"] == "completed" or (is_gloo and bool(entry.get("retired")))


def _caller(entry: dict[str, Any], libraries: str) -> list[dict[str, Any]]:
    """Return the innermost frame of the program itself, if there is one."""
    own = (one for one in entry.get("frames", ()) if not re.search(libraries, one["filename"]))
    return [{key: one[key] for key in ("name", "filename", "line")} for one in own][:1]


def _fields(entry: dict[str, Any], frames: object) -> dict[str, Any]:
    names = ("process_group", "collective_seq_id", "profiling_name", "input_sizes", "state")
    own = {name: entry[name] for name in names}
    more = {"input_dtypes": entry.get("input_dtypes", ()), "retired": bool(entry.get("retired"))}
    return {**own, **more, "frames": frames}


def _dumped(names: list[str], wait_s: float, libraries: str) -> dict[int, str]:
    """Return what is kept of the dumps by rank, as JSON; new ones are awaited."""
    ranks = _ranks(names)
    deadline = time.monotonic() + wait_s
    awaited = [rank for rank in ranks if rank.pipe and _request(rank)]
    found: dict[int, dict[str, Any]] = {}
    while awaited and time.monotonic() < deadline:
        for rank in [one for one in awaited if _status(one.dumps) != one.before]:
            trace = _read(rank, libraries)
            if trace is not None:
                found[rank.number] = trace
                awaited.remove(rank)
        time.sleep(0.05)
    for rank in ranks:
        trace = None if rank.number in found else _read(rank, libraries)
        if trace is not None:
            found[rank.number] = trace
    texts: dict[int, str] = {}
    for number, one in sorted(found.items()):
        with suppress(*_INVALID):
            texts[number] = json.dumps(one)
    return texts


def main(arguments: list[str]) -> None:
    """Print the traces of the flight recorders."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")  # this process ends before a rank does if the container has no memory
    parts: list[str] = []
    wait_s, libraries, *names = arguments
    for number, text in _dumped(names, float(wait_s), libraries).items():
        if sum(map(len, parts)) + len(text) < _TOTAL:
            parts.append(f'"{number}":{text}')
    whole = "{" + ",".join(parts) + "}"
    packed = base64.b64encode(zlib.compress(whole.encode(), 9)).decode()
    lines = [packed[at : at + _LINE] for at in range(0, len(packed), _LINE)]
    sys.stdout.write("\n".join(["== traces", *lines, ""]))


if __name__ == "__main__":
    main(sys.argv[1:])
