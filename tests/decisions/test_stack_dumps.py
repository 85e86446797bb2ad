"""The verdict on ranks whose stacks ``py-spy dump`` printed in their containers."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.hang_verdict import VerdictKind, verdict
from holdfast.decisions.stack_dumps import COMMAND, masked_dump, snapshots_of
from holdfast.kit.masking import MASK

needs_py_spy = pytest.mark.skipif(
    not Path(sys.executable).with_name("py-spy").exists() or os.geteuid() != 0,
    reason="py-spy is not installed, or may not read other processes",
)

WAITS = "import time\ndef all_reduce():\n    time.sleep(600)\n"
TRAINS = """
import os, sys, threading, time
sys.path.insert(0, sys.argv[1])
import distributed_c10d

def loads_a_batch():
    time.sleep(600)

threading.Thread(target=time.sleep, args=(600,), name="watchdog", daemon=True).start()
if os.fork() == 0:
    time.sleep(600)  # as a worker of a DataLoader does
print("ready", flush=True)
if os.environ["RANK"] == "2":
    loads_a_batch()
distributed_c10d.all_reduce()
"""


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[list[subprocess.Popen]]:
    """Ranks 2 and 3 of a job, below a launcher that has the RANK of its pod, too."""
    library = tmp_path / "torch/distributed"
    library.mkdir(parents=True)
    (library / "distributed_c10d.py").write_text(WAITS, encoding="utf-8")
    (tmp_path / "train.py").write_text(TRAINS, encoding="utf-8")
    base = {"PATH": os.environ["PATH"], "WORLD_SIZE": "4"}
    launcher = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], env={**base, "RANK": "2"}
    )
    started = [
        subprocess.Popen(
            [sys.executable, str(tmp_path / "train.py"), str(library)],
            env={
                **base,
                "RANK": str(rank),
                "TORCHELASTIC_RUN_ID": "run",
                "LOCAL_RANK": str(rank - 2),
                "LOCAL_WORLD_SIZE": "2",
            },
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        for rank in (2, 3)
    ]
    for one in started:
        assert one.stdout is not None
        one.stdout.readline()
    yield [launcher, *started]
    launcher.kill()
    launcher.wait()
    for one in started:
        os.killpg(one.pid, 9)
        one.communicate()


def dumped(ranks: list[subprocess.Popen]) -> str:
    """What the command prints in a container with these processes."""
    pids = [str(one.pid) for one in ranks]
    for pid in tuple(pids):
        pids += Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    folder = Path(sys.executable).parent
    command = [
        one.replace("/proc/[0-9]*", " ".join(f"/proc/{pid}" for pid in pids)) for one in COMMAND
    ]
    return subprocess.run(
        command,
        env={"PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@needs_py_spy
def test_the_rank_that_never_entered_a_collective_is_named(ranks) -> None:
    text = dumped(ranks)
    looks = snapshots_of(text, "node-a")
    found = verdict(looks)

    assert text.count("== pid=") == 5
    assert [(one.rank, one.pid) for one in looks] == [(2, ranks[1].pid), (3, ranks[2].pid)]
    child = int(Path(f"/proc/{ranks[1].pid}/task/{ranks[1].pid}/children").read_text())
    helpers = {one.id: one for one in looks[0].helpers if one.is_process}
    assert [one.function for one in helpers[child].frames] == ["<module>"]
    assert helpers[child].state == "S"
    assert "watchdog" in {one.name for one in looks[0].helpers}
    assert (found.kind, found.ranks) == (VerdictKind.ABSENT, (2,))
    assert found.text.startswith(
        "rank 2 on node-a never entered all_reduce: it is in loads_a_batch (train.py:7)"
    )


@needs_py_spy
def test_a_rank_that_is_stopped_is_named(ranks) -> None:
    os.kill(ranks[2].pid, 19)
    while "State:\tT" not in Path(f"/proc/{ranks[2].pid}/status").read_text():
        pass
    found = verdict(snapshots_of(dumped(ranks), "node-a"))

    assert (found.kind, found.ranks) == (VerdictKind.STOPPED, (3,))


def test_the_main_thread_counts_wherever_it_is_printed() -> None:
    text = """== pid=7 ppid=1 state=S wchan=0 rank=1
Process 7: python train.py
Python v3.11.2 (/usr/bin/python3.11)

Thread 0x7F00 (idle): "watchdog"
    wait (/usr/lib/python3.11/threading.py:320)
Thread 7 (active): "MainThread"
    forward (/app/train.py:3)
    <module> (/app/train.py:9)
Thread 9 (idle): "other"
    run (/x.py:1)
"""
    (look,) = snapshots_of(text, "n")

    assert [one.text for one in look.frames] == ["forward (train.py:3)", "<module> (train.py:9)"]
    assert (look.wait_channel, look.note) == ("", "")


WITH_WORKERS = """== pid=7 ppid=1 state=S wchan=futex_do_wait rank=1 launched
Thread 7 (idle): "MainThread"
    wait (/usr/lib/python3.11/threading.py:320)
    _try_get_data (/s/torch/utils/data/dataloader.py:1263)
    <module> (/app/train.py:9)
Thread 8 (idle): "QueueFeeder"
    wait (/usr/lib/python3.11/threading.py:320)
== pid=20 ppid=7 state=S wchan=poll rank=1 launched
Thread 20 (idle): "MainThread"
    get (/usr/lib/python3.11/multiprocessing/queues.py:3)
    _worker_loop (/s/torch/utils/data/_utils/worker.py:3)
    <module> (/app/train.py:9)
== pid=21 ppid=7 state={state} wchan={channel} rank=1 launched
Thread 21 (idle): "MainThread"
    __getitem__ (/app/data.py:4)
    fetch (/s/torch/utils/data/_utils/fetch.py:3)
    _worker_loop (/s/torch/utils/data/_utils/worker.py:3)
    <module> (/app/train.py:9)
== end
"""


@pytest.mark.parametrize(
    ("state", "channel", "kind", "text"),
    [
        ("S", "0", VerdictKind.DATA, "its worker process 21 is in __getitem__ (data.py:4)"),
        ("D", "rpc_wait_bit_killable", VerdictKind.STORAGE, "rank 1 on n waits for NFS in rpc_"),
    ],
)
def test_the_worker_that_a_rank_waits_for_is_named(state, channel, kind, text) -> None:
    (look,) = snapshots_of(WITH_WORKERS.format(state=state, channel=channel), "n")

    found = verdict([look])

    assert [one.id for one in look.helpers] == [21, 20, 8]
    assert found.kind is kind
    assert text in found.text


HANGING = (
    "== pid=12 ppid=9 state=S wchan=0 rank=4 launched local=0 slots=2\n"
    'Thread 12 (idle): "MainThread"\n'
    "    all_reduce (/torch/distributed/distributed_c10d.py:3)\n"
)


def test_a_rank_without_a_process_is_a_dead_peer() -> None:
    found = snapshots_of(HANGING + "== end\n", "gpu-2")

    assert [(one.rank, one.pid) for one in found] == [(4, 12), (5, None)]
    named = verdict(found)
    assert (named.kind, named.ranks) == (VerdictKind.DEAD_PEER, (5,))
    assert named.text == "rank 5 on gpu-2 has no process any more; the other rank waits"


def test_a_rank_that_was_cut_off_is_not_dead() -> None:
    assert [one.rank for one in snapshots_of(HANGING, "gpu-2")] == [4]


@needs_py_spy
def test_a_real_rank_that_was_killed_is_a_dead_peer(ranks) -> None:
    ranks[2].kill()
    os.waitid(os.P_PID, ranks[2].pid, os.WEXITED | os.WNOWAIT)

    named = verdict(snapshots_of(dumped(ranks), "gpu-2"))

    assert (named.kind, named.ranks) == (VerdictKind.DEAD_PEER, (3,))


@needs_py_spy
def test_secrets_in_the_command_line_of_a_real_process_are_masked() -> None:
    code = "import time\nsecret = 'hunter2'\nprint('x', flush=True)\ntime.sleep(600)"
    arguments = [sys.executable, "-c", code, "--token", "hunter2", "--url", "s3://u:hunter2@host/a"]
    with subprocess.Popen(arguments, env={"RANK": "0"}, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        text = dumped([process])
        process.kill()

    masked = masked_dump(text)

    assert text.count("hunter2") == 3
    assert "hunter2" not in masked
    assert f"Process {process.pid}: {sys.executable} -c import time secret={MASK} --t" in masked
    assert f"--token {MASK} --url s3://u:{MASK}@host/a\nPython v3" in masked
    assert snapshots_of(masked, "n") == snapshots_of(text, "n")
    assert snapshots_of(masked, "n")[0].frames


def test_a_command_line_that_was_cut_off_is_masked() -> None:
    text = "== pid=7 ppid=1 state=S wchan=0 rank=1\nProcess 7: train --token hunter2"

    assert masked_dump(text).splitlines()[-1] == f"Process 7: train --token {MASK}"
    assert masked_dump(f"{text}\n== end\n").splitlines()[-1] == "== end"


def test_processes_without_a_rank_are_no_ranks() -> None:
    assert (
        snapshots_of("== pid=7 ppid=1 state=S wchan=0\nThread 7 (idle)\n    f (a.py:1)", "n") == ()
    )
    assert snapshots_of("p0: in all_reduce", "n") == ()


@given(st.text(max_size=300), st.text(alphabet="=pid rank:()\n0123456789STd", max_size=300))
def test_no_output_raises(some, more) -> None:
    for look in snapshots_of(f"{some}\n== pid=1 ppid=2 state=S wchan=0 rank=0\n{more}", "n"):
        assert look.node == "n"


@pytest.mark.parametrize(("failures", "exit_code"), [(0, 0), (2, 0), (3, 3)])
def test_a_dump_that_fails_is_repeated_twice(tmp_path: Path, failures: int, exit_code: int) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        done = dumped_by(
            tmp_path, process, f"[ $(wc -l <{tmp_path}/tries) -gt {failures} ] || exit 3"
        )
        process.kill()

    assert done.returncode == exit_code, done.stderr
    assert "\n== end\n" in done.stdout


def test_a_process_that_ends_during_its_dump_is_no_failure(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        done = dumped_by(
            tmp_path, process, "kill -9 $3; while [ -e /proc/$3/exe ]; do :; done; exit 3"
        )

    assert done.returncode == 0, done.stderr
    assert "\n== end\n" in done.stdout


GPU = "0, GPU-1, 00000000:B9:00.0, 512, 81559, 100"


@pytest.mark.parametrize(
    ("script", "state"),
    [
        (f"echo {GPU}", f"\n== gpus\n{GPU}\n"),
        ("while [ -e $0 ]; do :; done", "\n== gpus unread\n"),
    ],
)
def test_nvidia_smi_is_asked_and_not_awaited_for_long(
    tmp_path: Path, script: str, state: str
) -> None:
    """As in a wedged driver, where it never ends; the pauses take no time here."""
    for name, does in (("nvidia-smi", script), ("sleep", ":")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        done = dumped_by(tmp_path, process, ":")
        process.kill()
    (tmp_path / "nvidia-smi").unlink()

    assert done.stdout.endswith(state), done.stdout


def dumped_by(
    folder: Path, process: subprocess.Popen[bytes], script: str
) -> subprocess.CompletedProcess[str]:
    """Run the command for a process, with a script in place of py-spy."""
    program = folder / "py-spy"
    program.write_text(f"#!/bin/sh\necho >>{folder}/tries\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    command = [one.replace("/proc/[0-9]*", f"/proc/{process.pid}") for one in COMMAND]
    environment = {"PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
