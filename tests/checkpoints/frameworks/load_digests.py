"""Loads checkpoints from several directories in one process of each rank, for ``script_loads.py``.

    load_FRAMEWORK.py OUTCOMES < DIRECTORIES

Each line of the input is JSON: the recording, a directory, and the checkpoint that was chosen in
it. Writes a line for each into OUTCOMES: the digests of what the framework loaded on all ranks.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Case(NamedTuple):
    """A directory with checkpoints."""

    recording: str
    folder: Path
    chosen: str
    """Name of the checkpoint, for frameworks without a rule for which one to load."""


def parts(value: Any) -> list[Any]:
    """Every tensor and number of a state, in a fixed order."""
    if isinstance(value, dict):
        return [part for key in sorted(value, key=str) for part in (key, *parts(value[key]))]
    if isinstance(value, list | tuple):
        return [part for one in value for part in parts(one)]
    return [value.to_local() if hasattr(value, "to_local") else value]  # of a DTensor


def digest(state: Any) -> str:
    found = hashlib.sha256()
    for one in parts(state):
        array = one.detach().cpu().numpy() if hasattr(one, "detach") else one
        found.update(array.tobytes() if hasattr(array, "tobytes") else repr(array).encode())
    return found.hexdigest()[:16]


def report(load: Callable[[Case], Any]) -> None:
    """Load the state of each directory of the input, on all ranks of the process group, if any."""
    outcomes = Path(sys.argv[1])
    with outcomes.open("a", encoding="utf-8") as file:
        for line in _lines():
            found = _of_all_ranks(digest(load(Case(line[0], Path(line[1]), line[2]))))
            if int(os.environ.get("RANK", "0")) == 0:
                print(json.dumps(found), file=file, flush=True)


def _lines() -> list[list[str]]:
    """The input, of which only the first rank of torchrun has one."""
    if "RANK" not in os.environ:
        return [json.loads(line) for line in sys.stdin]
    import torch.distributed as dist  # noqa: PLC0415 - not in each environment

    lines = [[json.loads(line) for line in sys.stdin] if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(lines)
    return lines[0] or []


def _of_all_ranks(own: str) -> list[str]:
    if "RANK" not in os.environ:
        return [own]
    import torch.distributed as dist  # noqa: PLC0415 - not in each environment

    found = [""] * dist.get_world_size()
    dist.all_gather_object(found, own)
    return found
