"""Ranks that slow a job down under ``holdfast launch``, on one node and on two."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch.cgroup_limits import limited_to
from launch.launched import LIMIT_S, none_runs, numbers_in, start, wait_for
from launch.nvml_library import built_nvml

from tests.engines.ports import free_port

pytestmark = [
    pytest.mark.samples,
    pytest.mark.skipif(
        not Path(sys.executable).with_name("py-spy").exists() or os.geteuid() != 0,
        reason="py-spy is not installed, or may not read other processes",
    ),
]

TRAIN = """
import os, pathlib, sys, time
folder, kind = pathlib.Path(sys.argv[1]), sys.argv[2]
sys.path.insert(0, str(folder))
from torch.distributed.distributed_c10d import all_reduce
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
(folder / f"rank.0.{rank}").write_text(f"{os.getpid()}\\n", encoding="utf-8")
def computes():
    end = time.process_time() + 0.015
    while time.process_time() < end:
        pass
def reads_a_batch():
    time.sleep(0.16 if kind == "storage" and rank == world - 1 else 0.04)
step = 0
while not (folder / "enough").exists():
    computes() if kind == "computes" else reads_a_batch()
    step += 1
    all_reduce(folder, rank, world, step)
"""

SECTIONS = """
import os, pathlib, sys, time
import holdfast.training
folder = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(folder))
from torch.distributed.distributed_c10d import all_reduce
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
(folder / f"rank.0.{rank}").write_text(f"{os.getpid()}\\n", encoding="utf-8")
step = 0
while not (folder / "enough").exists():
    with holdfast.training.section("forward"):
        with holdfast.training.section("inner"):
            time.sleep(0.12 if rank == world - 1 else 0.03)
    step += 1
    all_reduce(folder, rank, world, step)
"""

COLLECTIVE = """
import os, time
def all_reduce(folder, rank, world, step):
    with open(f"{folder}/step.{rank}.new", "w") as file:
        file.write(str(step))
    os.replace(f"{folder}/step.{rank}.new", f"{folder}/step.{rank}")
    while not os.path.exists(f"{folder}/enough"):
        try:
            if all(int(open(f"{folder}/step.{one}").read() or 0) >= step for one in range(world)):
                return
        except FileNotFoundError:
            pass
        time.sleep(0.002)
"""

ROOT = Path(__file__).parents[2]
WINDOW = ("--straggler-window", "6s")


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Path]:
    """A synchronous script whose collective looks like one of PyTorch in a stack."""
    package = tmp_path / "torch" / "distributed"
    package.mkdir(parents=True)
    for folder in (package, package.parent):  # else an installed PyTorch would be imported
        (folder / "__init__.py").touch()
    (package / "distributed_c10d.py").write_text(COLLECTIVE, encoding="utf-8")
    script = tmp_path / "train.py"
    script.write_text(TRAIN, encoding="utf-8")
    yield script
    (tmp_path / "enough").touch()
    wait_for(lambda: none_runs(numbers_in(tmp_path, "rank.*")), "the end of all ranks")


class Printed:
    """What a launcher has printed so far."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stderr is not None
        os.set_blocking(process.stderr.fileno(), False)
        self._stream, self.text = process.stderr, ""

    def has(self, text: str) -> bool:
        self.text += "".join(self._stream or ())
        return text in self.text


def finish(folder: Path, *launchers: "subprocess.Popen[str]") -> None:
    (folder / "enough").touch()
    for one in launchers:
        one.communicate(timeout=LIMIT_S)
    assert [one.returncode for one in launchers] == [0] * len(launchers)


def test_a_rank_on_another_node_is_named_with_what_slows_its_gpu(
    train: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = train.parent
    driver = built_nvml(tmp_path_factory.mktemp("nvml")).parent
    gpus = {"LD_LIBRARY_PATH": str(driver), "CLOCKS": "1755:4 1095:48"}
    options = ("--nnodes", 2, "--rdzv-endpoint", f"127.0.0.1:{free_port()}")
    options += ("--nproc-per-node", 2, *WINDOW)
    key = {"HOLDFAST_LAUNCH_KEY": "0123456789abcdef"}
    first = start(*options, "--node-rank", 0, train, folder, "storage", **key)
    second = start(*options, "--node-rank", 1, train, folder, "storage", **key, **gpus)
    printed = Printed(first)

    wait_for(lambda: printed.has("StragglerFound"), "the straggler", limit_s=300)
    finish(folder, first, second)

    assert re.search(
        r"StragglerFound: round 1: rank 3 on \S+ is slow: its own part of a step takes "
        r"\d\.\d\dx the median of the other ranks; .*; its GPU 1 runs at 1095 of 1980 MHz, those "
        r"of the other ranks on its node at 1755 MHz: HW thermal slowdown",
        printed.text,
    ), printed.text
    assert printed.text.count("StragglerFound") == 1


def test_the_sections_of_a_script_name_the_slow_rank_without_py_spy(train: Path) -> None:
    folder = train.parent
    train.write_text(SECTIONS, encoding="utf-8")
    nowhere = {"PATH": "/nowhere", "PYTHONPATH": str(ROOT)}
    started = start("--nproc-per-node", 3, *WINDOW, train, folder, **nowhere)
    printed = Printed(started)

    wait_for(lambda: printed.has("StragglerFound"), "the straggler", limit_s=300)
    finish(folder, started)

    factor = re.search(
        r"StragglerFound: round 1: rank 2 on \S+ is slow: its own part of a step takes "
        r"(\d\.\d\d)x the median of the other ranks; ",
        printed.text,
    )
    assert factor is not None, printed.text
    assert float(factor[1]) > 1.5


def test_a_straggler_is_exchanged_for_a_hot_spare_if_that_is_asked_for(train: Path) -> None:
    folder = train.parent
    text = SECTIONS.replace("rank == world - 1", "os.environ.get('SLOW')")
    train.write_text(text, encoding="utf-8")
    options = ("--nnodes", "2:3", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", *WINDOW)
    options += ("--suspect-action", "exchange", "--max-restarts", 0, "--lease-timeout", "20s")
    key = {"HOLDFAST_LAUNCH_KEY": "0123456789abcdef", "PYTHONPATH": str(ROOT)}
    first = start(*options, "--node-rank", 0, train, folder, **key)
    slow = start(*options, "--node-rank", 1, train, folder, **key, SLOW="1")
    printed = Printed(first)
    wait_for(lambda: printed.has("RoundStarted: round 1"), "the first round")
    spare = start(*options, "--node-rank", 2, train, folder, **key)

    wait_for(lambda: printed.has("RoundStarted: round 2"), "the exchange", limit_s=300)
    finish(folder, first, spare)
    slow.communicate(timeout=LIMIT_S)

    assert re.search(r"RanksRestarted: spare: .*rank 1 on \S+ is slow", printed.text), printed.text


def test_a_rank_that_is_paused_again_and_again_is_named(train: Path) -> None:
    folder = train.parent
    started = start("--nproc-per-node", 3, *WINDOW, train, folder, "none")
    printed = Printed(started)
    wait_for(lambda: numbers_in(folder, "rank.0.1"), "the rank")
    [pid] = numbers_in(folder, "rank.0.1")

    def is_named() -> bool:
        for _ in range(10):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.15)
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.05)
        return printed.has("StragglerFound")

    wait_for(is_named, "the straggler", limit_s=300)
    finish(folder, started)
    assert "round 1: rank 1 on" in printed.text


def test_a_rank_with_a_cpu_quota_is_named(train: Path) -> None:
    folder = train.parent
    started = start("--nproc-per-node", 3, *WINDOW, train, folder, "computes")
    printed = Printed(started)
    wait_for(lambda: numbers_in(folder, "rank.0.1"), "the rank")
    [pid] = numbers_in(folder, "rank.0.1")

    with limited_to(5, pid, f"holdfast-test-{pid}"):
        wait_for(lambda: printed.has("StragglerFound"), "the straggler", limit_s=300)
        assert "round 1: rank 1 on" in printed.text, printed.text
    finish(folder, started)

    throttled = re.search(r"; its control group was throttled in (\d+)% of periods", printed.text)
    assert throttled is not None, printed.text
    assert int(throttled[1]) >= 50


def test_no_rank_of_a_healthy_job_is_named_and_no_sample_outlives_it(train: Path) -> None:
    folder = train.parent
    started = start("--nproc-per-node", 3, "--straggler-factor", "1.15", *WINDOW,
                    train, folder, "none")  # fmt: skip
    printed = Printed(started)
    until = time.monotonic() + 50  # more than four windows
    while time.monotonic() < until:
        assert not printed.has("StragglerFound"), printed.text
        time.sleep(1)
    finish(folder, started)

    assert "stragglers are not detected" not in printed.text
    assert "py-spy" not in subprocess.run(
        ["ps", "-o", "args", "--ppid", str(started.pid)],
        capture_output=True, check=False, encoding="utf-8",
    ).stdout  # fmt: skip
