"""Ranks beside which no Holdfast is installed, and which dump flight recorders when asked."""

import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

RANK = """
import ctypes, os, sys, time
sys.path.insert(0, sys.argv[1])
from recorder import listen
if sys.argv[2] == "nobody":
    os.setgid(65534); os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE, as after exec
if sys.argv[2] in ("mute", "nobody"):
    print("ready", flush=True); time.sleep(600)
dump = open(sys.argv[2], "rb").read()
listen(lambda: dump)
print("ready", flush=True)
time.sleep(600)
"""
LAUNCH = Path(__file__).parent


def entry(number: int, state: str = "completed", **changes: object) -> dict[str, object]:
    frames = [
        {"name": "all_reduce", "filename": "/lib/python3/torch/d.py", "line": 1},
        {"name": "main", "filename": "/w/train.py", "line": 7},
    ]
    own = {
        "process_group": ("0", "default_pg"), "collective_seq_id": number, "is_p2p": False,
        "profiling_name": "nccl:all_reduce", "input_sizes": [[number]], "input_dtypes": ["Float"],
        "state": state, "retired": False, "frames": frames,
    }  # fmt: skip
    return {**own, **changes}


def dump(*entries: dict[str, object]) -> bytes:
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
    return pickle.dumps({"entries": [*entries], "pg_config": groups}, protocol=2)


@contextmanager
def rank(
    number: int, folder: Path, dumped: bytes | None, user: str = "mute", **more: str
) -> Iterator[None]:
    """A rank that dumps into a folder when its pipe asks; None if never."""
    file = folder / f"source-{number}"
    file.write_bytes(dumped or b"")
    environment = {
        "RANK": str(number), "SLURM_JOB_ID": str(folder),
        "TORCH_FR_DUMP_TEMP_FILE": f"{folder}/dump_",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{folder}/ask_",
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-c", RANK, LAUNCH, user if dumped is None else file],
        env={**environment, **more}, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.communicate()
