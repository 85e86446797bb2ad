"""Why a rank has ended, and whether a restart can help, with real processes and without logs."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest
from launch.job_of_nodes import KEY
from launch.launched import (
    LIMIT_S,
    clean_environment,
    command,
    is_running,
    launch,
    numbers_in,
    start,
    wait_for,
)

from tests.engines.ports import free_port

pytestmark = pytest.mark.launchers

COUNT = """
import os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
(folder / f"ran.{os.environ['HOLDFAST_LAUNCH_ROUND']}.{os.environ['RANK']}").touch()
"""
MISSING = "import missing_module"


def script(folder: Path, text: str) -> Path:
    path = folder / "train.py"
    path.write_text(COUNT + text, encoding="utf-8")
    return path


def rounds(folder: Path) -> int:
    return len({path.name.split(".")[1] for path in folder.glob("ran.*")})


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (MISSING, "ImportFailed"),
        ("open('/missing/file')", "FileMissing"),
        ("import argparse; argparse.ArgumentParser().parse_args()", "ArgumentsInvalid"),
        ("raise OSError(28, 'No space left on device')", "DiskFull"),
    ],
)
def test_a_cause_that_a_restart_does_not_remove_ends_the_job(
    tmp_path: Path, text: str, cause: str
) -> None:
    done = launch("--nproc-per-node", 2, script(tmp_path, text), tmp_path)

    assert done.returncode == 1
    assert rounds(tmp_path) == 1
    assert f"a restart would fail in the same way ({cause})" in done.stderr


def test_it_restarts_the_ranks_if_that_is_requested(tmp_path: Path) -> None:
    options = ("--permanent-cause-action", "restart", "--max-restarts", 1)
    done = launch(*options, script(tmp_path, MISSING), tmp_path)

    assert done.returncode == 1
    assert rounds(tmp_path) == 2
    assert "last failure: exit code 1: ModuleNotFoundError: No module named" in done.stderr


def test_without_an_exception_the_last_line_is_named(tmp_path: Path) -> None:
    path = script(tmp_path, "sys.exit('rank 0: bad data')")
    done = launch("--max-restarts", 0, path, tmp_path)

    assert "JobFailed: restarts in place exhausted (0 of 0)" in done.stderr
    assert "last failure: exit code 1; last line: rank 0: bad data" in done.stderr


def test_a_file_that_is_missing_after_a_step_restarts_the_ranks(tmp_path: Path) -> None:
    text = "from holdfast.training import step\nstep(1)\nopen('/missing/file')"
    done = launch("--max-restarts", 1, script(tmp_path, text), tmp_path)

    assert done.returncode == 1
    assert rounds(tmp_path) == 2


def test_a_cause_of_both_nodes_ends_the_job(tmp_path: Path) -> None:
    path = script(tmp_path, MISSING)
    meeting = ("--nnodes", 2, "--rdzv-endpoint", f"127.0.0.1:{free_port()}")
    both = [
        start(*meeting, "--node-rank", rank, path, tmp_path, HOLDFAST_LAUNCH_KEY=KEY)
        for rank in (0, 1)
    ]
    outputs = [one.communicate(timeout=LIMIT_S)[1] for one in both]

    assert [one.returncode for one in both] == [1, 1]
    assert rounds(tmp_path) == 1
    assert "JobFailed: exit code 1: ModuleNotFoundError" in outputs[0]


SLOW_TO_END = """
import atexit, time
full = folder / ('full.' + os.environ['HOLDFAST_LAUNCH_ROUND'])
if os.environ["RANK"] == "0":
    atexit.register(time.sleep, 600)  # such as a driver that frees memory
    atexit.register(full.touch)
    raise OSError(28, "No space left on device")
while not full.exists():
    time.sleep(0.01)
raise ConnectionError("Connection closed by peer")
"""


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_rank_that_ends_after_its_peers_is_the_cause(tmp_path: Path, nodes: int) -> None:
    path = script(tmp_path, SLOW_TO_END)
    slots = ("--nproc-per-node", 2 // nodes)
    meeting = ("--nnodes", 2, "--rdzv-endpoint", f"127.0.0.1:{free_port()}") if nodes == 2 else ()
    started = [
        start(
            *(*slots, *meeting, *(("--node-rank", number) if meeting else ())),
            *(path, tmp_path),
            HOLDFAST_LAUNCH_KEY=KEY,
        )
        for number in range(nodes)
    ]
    outputs = [one.communicate(timeout=LIMIT_S)[1] for one in started]

    assert [one.returncode for one in started] == [1] * nodes
    assert rounds(tmp_path) == nodes  # a disk may be full on one node only
    assert "a restart would fail in the same way (DiskFull)" in outputs[0]
    reported = re.findall(r"RankFailed: round 1: rank (\d) on \S+ (.*)", outputs[0])
    assert [rank for rank, _ in reported] == ["1", "0"]
    assert "OSError: [Errno 28] No space left on device" in reported[1][1]


def test_a_module_that_is_missing_on_one_node_does_not_end_the_job(tmp_path: Path) -> None:
    text = (
        "import time\n"
        "if os.environ['HOLDFAST_LAUNCH_ROUND'] == '1':\n"
        "    if os.environ['RANK'] == '1':\n"
        "        import missing_module\n"
        "    time.sleep(600)\n"
    )
    path = script(tmp_path, text)
    meeting = ("--nnodes", 2, "--rdzv-endpoint", f"127.0.0.1:{free_port()}")
    both = [
        start(*meeting, "--node-rank", rank, path, tmp_path, HOLDFAST_LAUNCH_KEY=KEY)
        for rank in (0, 1)
    ]
    for one in both:
        one.communicate(timeout=LIMIT_S)

    assert [one.returncode for one in both] == [0, 0]
    assert rounds(tmp_path) == 2


def test_all_that_ranks_write_is_shown(tmp_path: Path) -> None:
    text = (
        "rank = os.environ['RANK']\n"
        "for number in range(20_000): sys.stderr.write(f'rank {rank}: {number}\\n')\n"
        "os.write(2, b'no end of line')\n"
    )
    done = launch("--nproc-per-node", 2, script(tmp_path, text), tmp_path)

    assert done.returncode == 0
    for rank in (0, 1):
        numbers = re.findall(rf"rank {rank}: (\d+)\n", done.stderr)
        assert [*map(int, numbers)] == list(range(20_000))
    assert done.stderr.count("no end of line") == 2


def test_ranks_that_wait_for_a_slow_reader_can_be_stopped(tmp_path: Path) -> None:
    text = "(folder / 'pid').write_text(f'{os.getpid()}\\n')\nwhile True: os.write(2, b'x' * 4096)"
    started = start(script(tmp_path, text), tmp_path)
    wait_for(lambda: numbers_in(tmp_path, "pid"), "the start of the rank")
    [rank] = numbers_in(tmp_path, "pid")
    with pytest.raises(subprocess.TimeoutExpired):
        started.wait(1)
    started.send_signal(signal.SIGTERM)

    wait_for(lambda: not is_running(rank), "the end of the rank")
    assert "JobStopped" in started.communicate(timeout=LIMIT_S)[1]
    assert started.returncode == 128 + signal.SIGTERM


def test_a_slow_reader_gets_all_that_a_job_has_written_before_its_end(tmp_path: Path) -> None:
    text = "for _ in range(200): os.write(2, b'x' * 4095 + b'\\n')\n(folder / 'end').touch()"
    with start(script(tmp_path, text), tmp_path) as started:
        wait_for((tmp_path / "end").exists, "the end of the rank")
        assert started.stderr is not None
        shown = b""
        while part := os.read(started.stderr.fileno(), 4096):
            shown += part
            time.sleep(0.005)

    assert started.returncode == 0
    assert shown.count(b"x") == 200 * 4095
    assert b"JobSucceeded" in shown


def test_a_job_runs_on_when_nobody_reads_its_output_any_more(tmp_path: Path) -> None:
    text = (
        "while not (folder / 'closed').exists(): pass\n"
        "for _ in range(1000): os.write(2, b'x' * 4096)\n"
        "(folder / 'end').touch()"
    )
    with start(script(tmp_path, text), tmp_path) as started:
        assert started.stderr is not None
        started.stderr.close()
        (tmp_path / "closed").touch()
        wait_for((tmp_path / "end").exists, "the end of the rank")


def test_ranks_get_a_terminal_where_there_is_one(tmp_path: Path) -> None:
    size = os.terminal_size((77, 33))
    text = "print(os.isatty(2), *os.get_terminal_size(2), 'a\\tb', file=sys.stderr)"
    terminal, other_end = pty.openpty()
    packed = struct.pack("HHHH", size.lines, size.columns, 0, 0)
    fcntl.ioctl(other_end, termios.TIOCSWINSZ, packed)
    started = subprocess.Popen(
        command(script(tmp_path, text), tmp_path),
        env=clean_environment(),
        stderr=other_end,
        stdout=subprocess.DEVNULL,
    )
    os.close(other_end)
    shown = b""
    while b"JobSucceeded" not in shown and select.select([terminal], [], [], LIMIT_S)[0]:
        shown += os.read(terminal, 4096)
    assert started.wait(LIMIT_S) == 0
    os.close(terminal)

    assert shown.splitlines()[0] == b"True 77 33 a\tb"
