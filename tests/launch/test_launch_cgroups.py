"""Control groups of the ranks, on the real cgroup file system.

Each test starts its launchers in a control group of its own, so that those of others do not count.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch.launched import (
    LIMIT_S,
    clean_environment,
    command,
    is_running,
    launcher_of,
    numbers_in,
    wait_for,
)

from holdfast.adapters.launch.cgroups import Cgroup
from holdfast.apps.launch.rank_output import RankStreams
from holdfast.apps.launch.ranks import RankProcesses
from holdfast.kit.processes import descendants

pytestmark = pytest.mark.launchers

PLACES = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))

NOBODY = 65534

IN_CGROUP = 'echo $$ > "$0/cgroup.procs" && exec "$@"'


@pytest.fixture
def home() -> Iterator[Path]:
    """A control group for the launchers of a test; nothing is left in it."""
    place = next((one for one in PLACES if os.access(one / "cgroup.procs", os.W_OK)), None)
    if place is None:
        pytest.skip("no cgroup v2 that this user may write")
    home = Cgroup(place).below(f"test-{os.getpid()}-{os.urandom(4).hex()}")
    if home is None or not (home.folder / "cgroup.kill").exists():
        pytest.skip("control groups cannot be created, or this kernel has no cgroup.kill")
    yield home.folder
    home.end()


def start(home: Path, *arguments: object, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["sh", "-c", IN_CGROUP, str(home), *command(*arguments)],
        env=clean_environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


def launch(home: Path, *arguments: object, **variables: str) -> tuple[int, str]:
    """Run to the end; returns the exit code and what it printed."""
    started = start(home, *arguments, **variables)
    _, errors = started.communicate(timeout=LIMIT_S)
    return started.returncode, errors


def made_in(home: Path) -> list[Path]:
    return [path for path in home.rglob("*") if path.is_dir()]


NOTE = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
attempt, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]
def note(name, text):
    (folder / f".{name}.{attempt}.{rank}").write_text(f"{text}\\n", encoding="utf-8")
    os.rename(folder / f".{name}.{attempt}.{rank}", folder / f"{name}.{attempt}.{rank}")
def own_cgroup():
    return next(line[3:] for line in open("/proc/self/cgroup") if line[:3] == "0::").strip()
note("cgroup", own_cgroup())
note("rank", os.getpid())
"""

DAEMON = """
def daemon(each):
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.closerange(0, 1024)
    each()
"""


def script(folder: Path, *parts: str) -> Path:
    path = folder / "train.py"
    path.write_text("\n".join((NOTE, *parts)), encoding="utf-8")
    return path


def cgroups_in(folder: Path, attempt: int) -> set[str]:
    return {path.read_text().strip() for path in folder.glob(f"cgroup.{attempt}.*")}


@pytest.mark.parametrize("options", [(), ("--warm", "--preload", "json")])
def test_the_ranks_of_each_round_have_a_control_group_of_their_own(
    home: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    path = script(
        tmp_path, 'while len(list(folder.glob(f"rank.{attempt}.*"))) < 2:\n    time.sleep(0.01)',
        'sys.exit(attempt == "0")',
    )  # fmt: skip
    code, errors = launch(home, "--nproc-per-node", 2, *options, path, tmp_path)

    assert code == 0, errors
    (first,), (second,) = cgroups_in(tmp_path, 0), cgroups_in(tmp_path, 1)
    assert Path(first).name == "round-1"
    assert Path(second).name == "round-2"
    assert Path(first).parent == Path(second).parent
    assert Path(first).parent.parent.name == home.name
    assert made_in(home) == []


def test_a_restart_ends_a_daemon_that_forks_all_the_time(home: Path, tmp_path: Path) -> None:
    path = script(
        tmp_path,
        DAEMON,
        """
def each():
    (folder / "daemon.ready").touch()
    while True:  # at no time, its PID is known for long
        if os.fork():
            os._exit(0)
if attempt == "0":
    daemon(each)
    while not (folder / "daemon.ready").exists():
        time.sleep(0.01)
    sys.exit(1)
rounds = [one for one in pathlib.Path(sys.argv[2]).glob("*/*") if one.is_dir()]
note("rounds", len(rounds))
note("processes", sum(len((one / "cgroup.procs").read_text().split()) for one in rounds))
""",
    )
    code, errors = launch(home, path, tmp_path, home)

    assert code == 0, errors
    assert numbers_in(tmp_path, "rounds.1.*") == [1]
    assert numbers_in(tmp_path, "processes.1.*") == [1], "the new rank alone"
    assert made_in(home) == []


FORKING = """
import os, sys
for _ in range(8):
    if os.fork() == 0:
        os.setsid()
        open(sys.argv[1], "a").write(".")
        while True:
            if os.fork():
                os._exit(0)
import time
time.sleep(600)
"""


@pytest.mark.parametrize("way", ["signal", "kill_left"])
def test_one_kill_ends_all_processes_also_those_that_fork_meanwhile(
    home: Path, tmp_path: Path, way: str
) -> None:
    cgroup = Cgroup(home).below("round-1")
    assert cgroup is not None
    ranks, begun = RankProcesses(cgroup), tmp_path / "begun"
    streams = RankStreams(None, None)
    ranks.start(0, [sys.executable, "-c", FORKING, str(begun)], dict(os.environ), streams)
    wait_for(lambda: begun.exists() and begun.stat().st_size == 8, "the start of all")

    if way == "signal":
        ranks.signal(signal.SIGKILL)
    else:
        ranks.kill_left(spare=descendants(os.getpid()))

    wait_for(lambda: cgroup.processes() == [], "the end of all", 10)
    ended = [ranks.reap() for _ in iter(ranks.are_running, False)]
    assert {rank.code for one in ended for rank in one} == {-signal.SIGKILL}


def test_the_kernel_kills_not_this_process_one_after_the_other(home: Path) -> None:
    """So it is at once for any number of them: this works without permission to signal any."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    cgroup = Cgroup(home).below("round-1")
    assert cgroup is not None
    ranks = RankProcesses(cgroup)
    for number in range(3):
        ranks.start(number, ["sleep", "600"], dict(os.environ), RankStreams(None, None))
    os.chown(cgroup.folder / "cgroup.kill", NOBODY, -1)
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        cgroup.kill()
    finally:
        os.setresuid(0, 0, 0)

    wait_for(lambda: cgroup.processes() == [], "the end of all", 10)
    ended = [ranks.reap() for _ in iter(ranks.are_running, False)]
    assert {rank.code for one in ended for rank in one} == {-signal.SIGKILL}


WITH_DAEMON = f"""{DAEMON}
def each():
    note("daemon", os.getpid())
    time.sleep(600)
daemon(each)
time.sleep(600)
"""


def with_daemon(home: Path, folder: Path) -> tuple[subprocess.Popen[str], int]:
    """A launch, and the PID of a daemon that its rank has started."""
    guard = start(home, script(folder, WITH_DAEMON), folder)
    wait_for(lambda: numbers_in(folder, "daemon.*"), "the start of the daemon")
    (pid,) = numbers_in(folder, "daemon.*")
    return guard, pid


def test_the_guard_removes_what_a_killed_launcher_left(home: Path, tmp_path: Path) -> None:
    guard, pid = with_daemon(home, tmp_path)
    os.kill(launcher_of(guard.pid), signal.SIGKILL)
    guard.communicate(timeout=LIMIT_S)

    assert not is_running(pid)
    assert made_in(home) == []


def test_the_launcher_removes_its_control_group_without_its_guard(
    home: Path, tmp_path: Path
) -> None:
    guard, pid = with_daemon(home, tmp_path)
    guard.kill()
    guard.communicate(timeout=LIMIT_S)

    wait_for(lambda: made_in(home) == [], "the end of the launcher", 10)
    assert not is_running(pid)


def killed_with_its_guard(home: Path, folder: Path) -> int:
    """A launch of which only a daemon is left; returns its PID."""
    guard, pid = with_daemon(home, folder)
    launcher = launcher_of(guard.pid)
    os.kill(launcher, signal.SIGSTOP)
    stat = Path(f"/proc/{launcher}/stat")
    wait_for(
        lambda: stat.read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "T", "its stop"
    )
    guard.kill()
    os.kill(launcher, signal.SIGKILL)
    guard.communicate(timeout=LIMIT_S)
    wait_for(lambda: not is_running(launcher), "the end of the launcher")
    assert is_running(pid), "nobody was left to end it"
    return pid


def test_the_next_launch_ends_what_a_killed_one_left(home: Path, tmp_path: Path) -> None:
    pid = killed_with_its_guard(home, tmp_path)
    is_alone = f"test $(ls -d {home}/holdfast-launch-* | wc -l) = 1"
    code, errors = launch(home, "--no-python", "sh", "-c", is_alone)

    assert code == 0, errors
    assert not is_running(pid)
    assert made_in(home) == []


def test_a_launch_that_ends_ends_what_a_killed_one_left(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    path = other / "wait.py"
    path.write_text(f'{NOTE}\nwhile not (folder / "go").exists():\n    time.sleep(0.01)')
    launcher = start(home, path, other)
    wait_for(lambda: numbers_in(other, "rank.*"), "the start of the other launch")
    pid = killed_with_its_guard(home, tmp_path)
    (other / "go").touch()
    _, errors = launcher.communicate(timeout=LIMIT_S)

    assert launcher.returncode == 0, errors
    assert not is_running(pid)
    assert made_in(home) == []


def test_launchers_in_one_control_group_leave_each_other_alone(home: Path, tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(3)]
    for folder in folders:
        folder.mkdir()
    path = script(
        tmp_path, 'while not (folder / "go").exists():\n    time.sleep(0.01)',
        'note("end", own_cgroup())',
    )  # fmt: skip
    launchers = [start(home, path, folder) for folder in folders]
    wait_for(lambda: all(numbers_in(one, "rank.*") for one in folders), "the start of all")
    groups = [cgroups_in(folder, 0).pop() for folder in folders]

    for folder, launcher in zip(folders, launchers, strict=True):
        (folder / "go").touch()
        _, errors = launcher.communicate(timeout=LIMIT_S)
        assert launcher.returncode == 0, errors
        assert "RankFailed" not in errors

    assert len({Path(one).parent for one in groups}) == len(folders)
    assert made_in(home) == []


def test_ranks_restart_without_control_groups_that_were_removed(home: Path, tmp_path: Path) -> None:
    path = script(
        tmp_path, 'while attempt == "0" and not (folder / "go").exists():\n    time.sleep(0.01)',
        'sys.exit(attempt == "0")',
    )  # fmt: skip
    launcher = start(home, path, tmp_path)
    wait_for(lambda: numbers_in(tmp_path, "rank.0.*"), "the start of the rank")
    for folder in sorted(made_in(home), reverse=True):
        for pid in Cgroup(folder).processes():
            Cgroup(home).add(pid)
        folder.rmdir()
    (tmp_path / "go").touch()
    _, errors = launcher.communicate(timeout=LIMIT_S)

    assert launcher.returncode == 0, errors
    assert [Path(one).name for one in cgroups_in(tmp_path, 1)] == [home.name]
    assert made_in(home) == []


def test_ranks_of_slurm_stay_in_the_control_group_of_their_task(home: Path, tmp_path: Path) -> None:
    by_variable, by_path = tmp_path / "variable", tmp_path / "path"
    task = home / "job_7" / "step_0" / "user" / "task_0"
    for folder in (by_variable, by_path, task):
        folder.mkdir(parents=True)
    path = script(tmp_path)
    first = launch(home, path, by_variable, SLURM_JOB_ID="7")
    second = launch(task, path, by_path)

    assert (first[0], second[0]) == (0, 0), (first, second)
    assert Path(cgroups_in(by_variable, 0).pop()).name == home.name
    assert Path(cgroups_in(by_path, 0).pop()).name == task.name


def test_ranks_start_where_control_groups_cannot_be_written(home: Path, tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed")
    mount = next(one for one in (home, *home.parents) if os.path.ismount(one))
    read_only = f'echo $$ > "$0/cgroup.procs" && mount -o remount,bind,ro {mount} && exec "$@"'
    started = command(script(tmp_path), tmp_path)
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", read_only, str(home), *started],
        env=clean_environment(),
        capture_output=True,
        check=False,
        encoding="utf-8",
        timeout=LIMIT_S,
    )

    assert done.returncode == 0, done.stderr
    assert done.stderr == "holdfast: JobSucceeded: all ranks succeeded\n"
    assert Path(cgroups_in(tmp_path, 0).pop()).name == home.name
