"""Looks at real workers of ranks, and at real storage that does not respond."""

import ctypes
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.adapters.host.rank_stacks import NodeRanks, take_snapshots
from holdfast.decisions.hang_verdict import Verdict, VerdictKind, verdict
from tests.engines.host_tools import require_tool

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not Path(sys.executable).with_name("py-spy").exists(),
    reason="py-spy is not installed, or may not read other processes",
)

DEADLINE_S = 120
LIBC = ctypes.CDLL(None, use_errno=True)
MNT_DETACH = 2  # linux/fs.h
FUSE_INIT = 26  # linux/fuse.h

TRAIN = """
import multiprocessing, os, queue, sys, threading
sys.path[:0] = [sys.argv[1] + "/torch/utils/data", sys.argv[1] + "/torch/distributed"]
import dataloader, distributed_c10d

def reads():
    open(sys.argv[2], "w")

batches = multiprocessing.Queue()
if os.environ["RANK"] == "1":
    distributed_c10d.all_reduce()
elif sys.argv[3] == "thread":
    threading.Thread(target=reads, name="loader", daemon=True).start()
    queue.Queue().get()
elif sys.argv[3] == "main":
    reads()
else:
    multiprocessing.get_context("fork").Process(target=reads, daemon=True).start()
    dataloader._try_get_data(batches)
"""


@contextmanager
def job(folder: Path, file: Path, reader: str) -> Iterator[NodeRanks]:
    """Two ranks: the first waits for somebody who opens a file, the second in a collective."""
    for name, text in {
        "torch/utils/data/dataloader.py": "def _try_get_data(queue):\n    return queue.get()\n",
        "torch/distributed/distributed_c10d.py":
            "import time\ndef all_reduce():\n    time.sleep(600)\n",
        "train.py": TRAIN,
    }.items():  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    command = f"{sys.executable} {folder}/train.py {folder} {file} {reader}"
    shell = subprocess.Popen(
        ["bash", "-c", f"RANK=0 {command} & RANK=1 {command} & wait"], process_group=0
    )
    try:
        yield NodeRanks(node_rank=0, node="node-0", root=shell.pid, local_world_size=2)
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


@contextmanager
def silent_fuse(folder: Path) -> Iterator[Path]:
    """A FUSE file system whose server does not answer any request but the first one."""
    folder.mkdir()
    server = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0"
    mounted = LIBC.mount(b"silent", bytes(folder), b"fuse", 0, options.encode())
    try:
        assert mounted == 0, os.strerror(ctypes.get_errno())
        _, operation, unique = struct.unpack_from("<IIQ", os.read(server, 1 << 20))
        assert operation == FUSE_INIT
        answer = struct.pack(
            "<IIIIHHIIHHI7I", 7, 31, 1 << 16, 0, 12, 9, 1 << 16, 1, 0, 0, 0, *[0] * 7
        )
        os.write(server, struct.pack("<IiQ", 16 + len(answer), 0, unique) + answer)
        yield folder / "data"
    finally:
        os.close(server)
        LIBC.umount2(bytes(folder), MNT_DETACH)


@contextmanager
def frozen_disk(folder: Path) -> Iterator[Path]:
    """A frozen ext4 on a loop device: who writes waits without end."""
    folder.mkdir()
    image = folder.with_suffix(".image")
    with image.open("wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, folder], check=True)
    try:
        subprocess.run(["fsfreeze", "--freeze", folder], check=True)
        try:
            yield folder / "data"
        finally:
            subprocess.run(["fsfreeze", "--unfreeze", folder], check=True)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def seen(node: NodeRanks, kind: VerdictKind, text: str) -> Verdict:
    """Return the verdict on a job as soon as it has a kind and a text."""
    end = time.monotonic() + DEADLINE_S
    while True:
        found = verdict(take_snapshots([node]))
        if found.kind is kind and text in found.text:
            return found
        assert time.monotonic() < end, found


@pytest.mark.parametrize(
    ("reader", "place"),
    [("process", "its worker process "), ("thread", "its thread loader is in ")],
)
def test_what_a_rank_waits_for_is_named(tmp_path: Path, reader: str, place: str) -> None:
    os.mkfifo(tmp_path / "file")
    with job(tmp_path, tmp_path / "file", reader) as node:
        found = seen(node, VerdictKind.ABSENT, place)

    assert found.ranks == (0,)
    assert "is in reads (train.py:7)" in found.text
    assert found.text.startswith("rank 0 on node-0 never entered all_reduce: it is in ")


@pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="the kernel has no FUSE")
@pytest.mark.parametrize("reader", ["main", "process"])
def test_a_fuse_file_system_that_does_not_respond_is_named(tmp_path: Path, reader: str) -> None:
    with silent_fuse(tmp_path / "fuse") as file, job(tmp_path, file, reader) as node:
        found = seen(node, VerdictKind.STORAGE, "is in reads (train.py:7)")

    assert found.ranks == (0,)
    assert found.text.startswith("rank 0 on node-0 waits for FUSE in request_wait_answer: it is in")


@pytest.mark.skipif(
    shutil.which("fsfreeze") is None or not os.path.exists("/dev/loop-control"),
    reason="there is no fsfreeze, or no loop device",
)
def test_a_disk_that_does_not_respond_is_named(tmp_path: Path) -> None:
    require_tool("mkfs.ext4")
    with frozen_disk(tmp_path / "disk") as file, job(tmp_path, file, "main") as node:
        found = seen(node, VerdictKind.STORAGE, "is in reads (train.py:7)")

    assert found.ranks == (0,)
    assert found.text.startswith("rank 0 on node-0 waits for a frozen file system in ")
