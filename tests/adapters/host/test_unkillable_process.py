"""A process that SIGKILL does not end, because the kernel waits for its file system."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from launch.launched import clean_environment, command

from holdfast.adapters.host import host_state
from holdfast.decisions.policy import RemediationPolicy
from holdfast.decisions.suspect_nodes import uncorroborated_nodes
from holdfast.detectors.contract import Profile, Readings, Sample
from holdfast.detectors.folding import Health, fold
from holdfast.detectors.process_state import FAMILY, build
from holdfast.kit.processes import end_children
from holdfast.kit.quota import Quota
from holdfast.model.health import Urgency
from holdfast.model.names import Reason
from holdfast.model.requests import Verb
from tests.engines.bad_storage import ext4, frozen_writes
from tests.ports.builders import NOW, a_cluster, a_node

WRITE = "import sys; open(sys.argv[1], 'w').write('x')"


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.01)


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[Path]:
    """A file system that blocks each write until it is thawed."""
    with ext4(tmp_path) as mounted, frozen_writes(mounted):
        yield mounted


def test_a_process_that_sigkill_does_not_end_leads_to_a_check_of_its_node(frozen: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", WRITE, str(frozen / "file")])
    try:
        name = f"{process.pid}:"
        wait_for(lambda: name in host_state.processes(Path("/"))["blocked"], "the block")
        assert name not in host_state.processes(Path("/"))["killed"]
        process.kill()
        wait_for(lambda: name in host_state.processes(Path("/"))["killed"], "the signal")

        before, values = (host_state.processes(Path("/")) for _ in range(2))
        seen = frozenset({*values, *before})
        sample = Sample(name="processes", taken_at=NOW, values=values, before=before, seen=seen)
        found = build(Profile.HYPERPOD).detect(Readings(samples={"processes": sample}))
        health = fold(Health(), found, settled={FAMILY})

        assert [one.reason for one in health.suspects] == [Reason.PROCESSES_UNKILLABLE]
        assert f"({process.pid})" in health.suspects[0].message
        assert health.faults == ()

        node = a_node(suspects=health.suspects)
        policy = RemediationPolicy(max_unavailable=Quota.parse("1"))
        [suspect] = uncorroborated_nodes(a_cluster(node), policy, NOW)
        request = suspect.request
        assert (request.verb, request.urgency) == (Verb.DEEP_CHECK, Urgency.DEFERRED)
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", frozen], check=True)
        process.wait(30)
        subprocess.run(["fsfreeze", "--freeze", frozen], check=True)


@contextmanager
def blocked(frozen: Path, *program: object) -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits for the file system, until the end of the block."""
    process = subprocess.Popen([*map(str, program)])
    try:
        wait_for(lambda: f"{process.pid}:" in host_state.processes(Path("/"))["blocked"], "block")
        yield process
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", frozen], check=True)
        process.wait(30)
        subprocess.run(["fsfreeze", "--freeze", frozen], check=True)


def test_nobody_waits_long_for_killed_children(frozen: Path) -> None:
    with blocked(frozen, sys.executable, "-c", WRITE, frozen / "file") as stuck:
        other = subprocess.Popen(["sleep", "600"])
        began = time.monotonic()
        end_children([stuck, other])

        assert time.monotonic() - began < 5
        assert stuck.returncode is None
        assert other.returncode == -signal.SIGKILL


MODULE = "holdfast.adapters.host.accelerator_memory"
DRIVER = f"""
import os, pathlib, sys
if {MODULE!r} in sys.orig_argv:
    pathlib.Path(os.environ["PID_FILE"]).write_text(str(os.getpid()))
    open(os.environ["FROZEN"], "w").write("x")
"""
"""Blocks the process that asks the driver of the GPUs."""

WITH_GPU = """
mount -t tmpfs none "$1" && touch "$1/nvidia0" && mkdir "$1/shm"
for name in null zero full random urandom; do
    touch "$1/$name" && mount --bind "/dev/$name" "$1/$name"
done
mount --rbind "$1" /dev
shift
exec "$@"
"""


def test_a_launcher_does_not_wait_for_a_driver_that_hangs(frozen: Path, tmp_path: Path) -> None:
    if not shutil.which("unshare"):
        pytest.skip("needs unshare")
    pid, devices = tmp_path / "pid", tmp_path / "dev"
    devices.mkdir()
    (tmp_path / "sitecustomize.py").write_text(DRIVER, encoding="utf-8")
    machine = ("unshare", "--mount", "--propagation", "private", "sh", "-c", WITH_GPU, "sh")
    options = ("--nproc-per-node", 1, "--accelerator-timeout", "0s", "--no-python", "false")
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    printed = tmp_path / "printed"  # a pipe would stay open with the process
    with printed.open("wb") as file:
        launcher = subprocess.Popen(
            [*machine, devices, *command(*options)],
            env=clean_environment(PYTHONPATH=paths, FROZEN=str(frozen / "file"), PID_FILE=str(pid)),
            stderr=file,
        )
    try:
        launcher.wait(90)
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", frozen], check=True)
        launcher.kill()
        wait_for(lambda: not Path(f"/proc/{pid.read_text()}").exists(), "the end of the process")
        subprocess.run(["fsfreeze", "--freeze", frozen], check=True)

    errors = printed.read_text(encoding="utf-8")
    assert launcher.returncode == 1
    assert f"holdfast: process {pid.read_text()} did not end after SIGKILL (" in errors
    assert "RanksRestarted" not in errors


RANK = """
import os, sys, time
from pathlib import Path
if os.environ["RANK"] == "0":
    Path(sys.argv[1]).write_text(str(os.getpid()))
    open(sys.argv[2], "w").write("x")
def is_blocked():
    try:
        stat = Path("/proc", Path(sys.argv[1]).read_text(), "stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[:1] == ["D"]
while not is_blocked():
    time.sleep(0.01)
sys.exit(3)
"""


def test_a_launcher_reports_a_rank_that_sigkill_does_not_end(frozen: Path, tmp_path: Path) -> None:
    script, pid = tmp_path / "train.py", tmp_path / "pid"
    script.write_text(RANK, encoding="utf-8")
    options = ("--nproc-per-node", 2, "--shutdown-timeout", "100ms")
    launcher = subprocess.Popen(
        command(*options, script, pid, frozen / "file"),
        env=clean_environment(),
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    try:
        _, errors = launcher.communicate(timeout=90)
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", frozen], check=True)
        launcher.kill()
        wait_for(lambda: not Path(f"/proc/{pid.read_text()}").exists(), "the end of the rank")
        subprocess.run(["fsfreeze", "--freeze", frozen], check=True)

    assert launcher.returncode == 1
    assert f"holdfast: process {pid.read_text()} did not end after SIGKILL (" in errors
    assert "mnt_want_write" in errors, "its kernel stack"
    assert "RanksRestarted" not in errors
