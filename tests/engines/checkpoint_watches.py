"""Processes of ``holdfast checkpoint watch`` and ``mirror`` on this machine."""

from contextlib import suppress
from pathlib import Path


def watches_of(folder: Path, command: str = "watch") -> list[int]:
    """Return those that watch a directory, or run another command on it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
            if command.encode() in arguments and str(folder).encode() in arguments:
                found.append(int(entry.name))
    return found


def ancestors_of(pid: int) -> list[int]:
    """Return the parent of a process, its parent, and so on."""
    found = []
    while pid > 1:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        pid = int(fields[1])
        found.append(pid)
    return found
