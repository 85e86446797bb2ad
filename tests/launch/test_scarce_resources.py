"""What a launcher does without room for files or processes: its ranks run on, and restart."""

import os
import resource
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from launch.launched import launch

from holdfast.adapters.launch.server import LauncherServer
from holdfast.apps.launch.accelerator_wait import AcceleratorWait
from holdfast.apps.launch.options import WarmScript
from holdfast.apps.launch.rank_inspection import RankInspections
from holdfast.apps.launch.rank_output import LogOptions, RankOutput, RankStreams
from holdfast.apps.launch.stderr_relay import StderrRelay
from holdfast.apps.launch.warm_ranks import WarmRanks
from holdfast.decisions.launch_runs import RunName
from holdfast.kit.printed_value import PrintedValue
from holdfast.model.errors import ConfigError

SCRIPT = """
import os, sys

attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if attempt == 0:
    open(os.path.join(sys.argv[1], "none", "attempt_1"), "w").close()
    raise SystemExit(3)
print("out of attempt", attempt)
print("error of attempt", attempt, file=sys.stderr)
"""


@contextmanager
def no_free_descriptors() -> Iterator[None]:
    """Let this process open no more files."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open("/dev/null", os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_coordinator_without_free_descriptors_pauses_and_accepts_launchers_later() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    server = LauncherServer(listener, b"0123456789abcdef", 60.0, lambda _: None, RunName())
    with socket.create_connection(listener.getsockname()):
        with no_free_descriptors():
            server.advance(server.readers())
            assert server.readers() == []
            again_at = server.next_call()
        assert again_at is not None
        time.sleep(max(0.0, again_at - time.monotonic()))
        assert server.readers() == [listener.fileno()]
        server.advance(server.readers())

        assert len(server.readers()) == 2
    server.close()


@pytest.fixture(params=["program", "temporary directory"])
def nothing_starts(request, monkeypatch, tmp_path: Path) -> None:
    """Make each start of a Python process fail, or each temporary file."""
    missing = str(tmp_path / "missing")
    if request.param == "program":
        monkeypatch.setattr(sys, "executable", missing)
    else:
        monkeypatch.setattr(tempfile, "tempdir", missing)


@pytest.mark.parametrize("option", ["--redirects=3", "--tee=3"])
def test_ranks_restart_although_their_log_files_cannot_be_created(
    tmp_path: Path, option: str
) -> None:
    script, logs = tmp_path / "train.py", tmp_path / "logs"
    script.write_text(SCRIPT, encoding="utf-8")

    done = launch("--log-dir", logs, option, script, logs)

    assert done.returncode == 0, done.stderr
    assert "out of attempt 1" in done.stdout
    assert "error of attempt 1" in done.stderr
    warned = f"cannot create {logs}/none/attempt_1/0/stdout.log: Not a directory"
    assert done.stderr.count(warned) == 1


def test_a_log_directory_that_cannot_be_created_is_an_error_before_the_start(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    options = LogOptions(
        directory=str(tmp_path / "file" / "logs"), to_file=3, to_both=0, shown=frozenset()
    )
    with StderrRelay() as relay, pytest.raises(ConfigError, match=r"--log-dir: .*directory"):
        RankOutput(options, "none", "default", relay)


@pytest.mark.usefixtures("nothing_starts")
def test_a_value_whose_program_cannot_be_started_has_the_default() -> None:
    value = PrintedValue(tuple[int, ...], (sys.executable, "-c", "print([1])"), limit_s=60)
    assert value.value((7,)) == (7,)
    assert value.awaited((8,)) == (8,)
    assert (value.pid, value.code) == (-1, 126)
    assert value.errors().startswith(f"cannot start {sys.executable}: No ")
    value.close()


@pytest.mark.usefixtures("nothing_starts")
def test_an_inspection_that_cannot_be_started_reports_no_rank() -> None:
    inspections = RankInspections("gpu-1", 8)
    inspections.begin(1, {0: 1}, 10.0)

    found = inspections.found(is_stalled=lambda: True)

    assert found is not None
    assert (found.number, found.snapshots, found.ras) == (1, (), None)
    assert not inspections.is_running


def test_ranks_restart_although_the_memory_of_accelerators_cannot_be_checked(
    monkeypatch, tmp_path: Path, capsys
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "missing"))
    wait = AcceleratorWait("", timedelta(minutes=1))

    assert wait.seconds() is not None
    assert (wait.is_running(), wait.pid) == (False, -1)
    wait.close()
    assert "GPU memory was not checked; restarting anyway" in capsys.readouterr().err


def test_ranks_start_cold_if_warm_ones_cannot_be_started(
    monkeypatch, tmp_path: Path, capsys
) -> None:
    script = WarmScript(script="train.py", arguments=(), is_module=False, preload=())
    warm = WarmRanks(script)
    with monkeypatch.context() as changed:
        changed.setattr(sys, "executable", str(tmp_path / "missing"))
        warm.prepare(0, {})

    assert warm.pids() == set()
    assert warm.take(0, ("python", "train.py"), {}, RankStreams(None, None), None) is None
    assert "warm rank not started: No such file" in capsys.readouterr().err
    warm.prepare(0, {})
    assert warm.pids()
    warm.close()
