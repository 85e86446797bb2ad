"""Ranks that hang under ``holdfast launch``: the rank for which the others wait is named."""

import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from launch.launched import (
    LIMIT_S,
    arguments_of,
    clean_environment,
    launch,
    needs_py_spy,
    none_runs,
    numbers_in,
    start,
    wait_for,
)

from holdfast.adapters.host.evidence_file import read_evidence
from holdfast.kit.processes import descendants
from tests.engines.ports import free_port

pytestmark = pytest.mark.launchers

TRAIN = """
import os, pathlib, sys, time
folder, hung, hung_rank = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
sys.path.insert(0, str(folder))
from torch.distributed.distributed_c10d import all_reduce
rank, attempt = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
(folder / f"rank.{attempt}.{rank}").write_text(f"{os.getpid()}\\n", encoding="utf-8")
def reads_a_batch():
    (folder / "hangs").touch()
    while not (folder / "continue").exists():
        time.sleep(0.01)
for step in range(34 if attempt == "0" else 2):
    if step == 32 and attempt == "0":
        if rank == hung_rank:
            reads_a_batch()
        elif hung == "all":
            all_reduce(folder / "continue")
    with open(os.environ["HOLDFAST_PROGRESS_FILE"], "a") as file:
        file.write(f"{step}\\n")
    time.sleep(0.12)
"""

COLLECTIVE = """
import time
def all_reduce(path):
    while not path.exists():
        time.sleep(0.01)
"""

ROOT = Path(__file__).parents[2]
QUICK = ("--stall-floor", "1s")
KMSG = Path("/dev/kmsg")


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Path]:
    """A script whose ranks wait in a function that looks like one of PyTorch in a stack."""
    package = tmp_path / "torch" / "distributed"
    package.mkdir(parents=True)
    for folder in (package, package.parent):  # a package comes before an installed one
        (folder / "__init__.py").touch()
    (package / "distributed_c10d.py").write_text(COLLECTIVE, encoding="utf-8")
    script = tmp_path / "train.py"
    script.write_text(TRAIN, encoding="utf-8")
    yield script
    (tmp_path / "continue").touch()  # else ranks of a failed test would hang for ever
    wait_for(lambda: none_runs(numbers_in(tmp_path, "rank.*")), "the end of all ranks")


@needs_py_spy
@pytest.mark.parametrize("timeout", ["auto", "2s"])
def test_a_hang_restarts_the_ranks_and_names_the_one_that_the_others_wait_for(
    train: Path, timeout: str
) -> None:
    folder = train.parent
    options = ("--nproc-per-node", 3, "--hang-timeout", timeout, *QUICK)
    done = launch(*options, train, folder, "all", 2)

    assert done.returncode == 0, done.stderr
    assert re.search(
        r"RankFailed: round 1: rank 2 on \S+: no progress for .+; rank 2 on \S+ never entered "
        r"all_reduce: it is in reads_a_batch \(train\.py:\d+\); the other 2 ranks wait[;\n]",
        done.stderr,
    ), done.stderr
    assert "RanksRestarted: in-place" in done.stderr
    assert len(numbers_in(folder, "rank.1.*")) == 3


@needs_py_spy
def test_the_evidence_of_a_hang_is_kept_and_can_be_bundled(train: Path) -> None:
    folder, logs = train.parent, train.parent / "logs"
    words = f"holdfast test {time.monotonic_ns()}"
    with suppress(OSError):
        KMSG.write_text(f"<4>{words}\n", encoding="utf-8")
    options = ("--nproc-per-node", 3, "--hang-timeout", "2s", "--log-dir", logs, "--rdzv-id", "llm")
    done = launch(*options, *QUICK, train, folder, "all", 2, MY_API_KEY="hunter2")
    assert f"EvidenceSaved: {logs}/llm/attempt_0/evidence.json\n" in done.stderr, done.stderr

    target = folder / "llm.tar.gz"
    saved = subprocess.run(
        [sys.executable, "-m", "holdfast", "jobs", "evidence", "--from", logs, "--file", target],
        capture_output=True, check=False, encoding="utf-8", timeout=LIMIT_S,
    )  # fmt: skip

    assert saved.returncode == 0, saved.stderr
    assert "rank 2 on " in saved.stdout
    with tarfile.open(target, "r:gz") as files:
        content = {one.name: files.extractfile(one).read().decode() for one in files}
    assert [*content][:2] == ["report.md", "evidence.json"]
    assert "### 2 ranks: 0, 1" in content["report.md"]
    assert "reads_a_batch" in content["report.md"]
    assert "hung since: 20" in content["report.md"]
    kernel = content["report.md"].partition("## Kernel logs since the last step\n")[2]
    expected = f" (written by a program) {words}\n" if os.access(KMSG, os.W_OK) else "/dev/kmsg"
    assert expected in kernel, kernel
    assert '"MY_API_KEY": "********"' in content["evidence.json"]
    assert not any("hunter2" in text for text in content.values())


@needs_py_spy
def test_under_holdfast_run_the_evidence_is_that_of_the_job(train: Path) -> None:
    file = train.parent / "run" / "attempt-1.json"
    own = {"HOLDFAST_EVIDENCE_FILE": str(file), "HOLDFAST_JOB": "llama"}
    options = ("--nproc-per-node", 3, "--hang-timeout", "2s")
    launch(*options, *QUICK, train, train.parent, "all", 2, **own)

    kept = read_evidence(file)
    assert (kept.job, kept.verdict.ranks) == ("llama", (2,))


@needs_py_spy
def test_without_a_timeout_a_hang_is_reported_once_and_the_ranks_continue(train: Path) -> None:
    folder = train.parent
    started = start("--nproc-per-node", 2, *QUICK, train, folder, "all", 0)
    assert started.stderr is not None
    os.set_blocking(started.stderr.fileno(), False)
    printed: list[str] = []

    def is_reported() -> bool:
        printed.extend(started.stderr or ())
        return "HangSuspected" in "".join(printed)

    wait_for(is_reported, "the report of the hang")
    assert re.search(
        r"HangSuspected: round 1: no progress for \S+; the longest pause between two steps was "
        r"\S+; rank 0 on \S+ never entered all_reduce: .+; the other rank waits; the ranks "
        r"continue: --hang-timeout is not set, or no step was reported yet",
        "".join(printed),
    ), "".join(printed)
    (folder / "continue").touch()
    _, rest = started.communicate(timeout=LIMIT_S)

    assert started.returncode == 0, rest
    assert ("".join(printed) + rest).count("HangSuspected") == 1
    assert numbers_in(folder, "rank.1.*") == []


INSPECTION = b"holdfast.adapters.host.rank_findings"


def inspections(launcher: int) -> list[int]:
    return [pid for pid in descendants(launcher) if INSPECTION in arguments_of(pid)]


@needs_py_spy
def test_on_a_node_that_delays_an_inspection_beyond_its_limit_another_one_names_the_rank(
    train: Path,
) -> None:
    """Each inspection gets no CPU time for the 10 s that the first one may take."""
    folder = train.parent
    started = start("--nproc-per-node", 2, *QUICK, train, folder, "all", 1)
    assert started.stderr is not None
    os.set_blocking(started.stderr.fileno(), False)
    stopped: dict[int, float] = {}
    printed: list[str] = []

    def is_reported() -> bool:
        for pid in inspections(started.pid):
            if pid not in stopped:
                os.kill(pid, signal.SIGSTOP)
                stopped[pid] = time.monotonic()
            elif time.monotonic() - stopped[pid] > 10:
                os.kill(pid, signal.SIGCONT)
        printed.extend(started.stderr or ())
        return "HangSuspected" in "".join(printed)

    wait_for(is_reported, "the report of the hang")
    (folder / "continue").touch()
    started.communicate(timeout=LIMIT_S)

    text = "".join(printed)
    assert re.search(r"rank 1 on \S+ never entered all_reduce: .+", text), text
    assert len(stopped) > 1


RECORDED = """
import os, pathlib, pickle, sys, time
sys.path.insert(0, sys.argv[1])
from recorder import listen
rank = int(os.environ["RANK"])
def dump():
    entries = [
        {
            "process_group": ("0", "default_pg"), "collective_seq_id": number, "is_p2p": False,
            "profiling_name": "nccl:all_reduce", "input_sizes": [[4]], "input_dtypes": ["Float"],
            "state": "completed" if number < 7 else "started",
            "frames": [{"name": "main", "filename": "/w/train.py", "line": 9}],
        }
        for number in range(1, 7 if rank == 1 else 8)
    ]
    return pickle.dumps({"entries": entries, "pg_config": {}}, protocol=2)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    listen(dump)
for step in range(34):
    with open(os.environ["HOLDFAST_PROGRESS_FILE"], "a") as file:
        file.write(f"{step}\\n")
    time.sleep(0.12)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    time.sleep(600)
"""


@pytest.mark.parametrize("log_dir", [True, False])
def test_the_flight_recorders_of_the_ranks_name_the_one_that_never_came(
    tmp_path: Path, *, log_dir: bool
) -> None:
    script = tmp_path / "train.py"
    script.write_text(RECORDED, encoding="utf-8")
    logs = ("--log-dir", tmp_path / "logs", "--rdzv-id", "llm") if log_dir else ()
    done = launch(
        "--nproc-per-node", 3, "--hang-timeout", "auto", *QUICK, *logs,
        script, Path(__file__).parent,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert re.search(
        r"RankFailed: round 1: rank 1 on \S+: no progress for .+; flight recorder: rank 1 never "
        r"entered all_reduce 7 of default_pg, called by main \(train\.py:9\)\n",
        done.stderr,
    ), done.stderr
    dumps = tmp_path / "logs" / "llm" / "attempt_0" / "flight_recorder"
    kept = ["rank_0", "rank_1", "rank_2"] if log_dir else []
    assert sorted(one.name for one in dumps.glob("rank_*")) == kept
    assert "flight recorder dumps" not in done.stderr, "the launch has succeeded"


ABORTED = """
import os, pathlib, pickle, signal, sys, time
rank, dump = int(os.environ["RANK"]), os.environ["TORCH_FR_DUMP_TEMP_FILE"]
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    entries = [
        {
            "process_group": ("0", "default_pg"), "collective_seq_id": number, "is_p2p": False,
            "profiling_name": "nccl:all_reduce", "input_sizes": [[4]], "input_dtypes": ["Float"],
            "state": "completed" if number < 7 else "started",
            "frames": [{"name": "main", "filename": "/w/train.py", "line": 9}],
        }
        for number in range(1, 7 if rank == 1 else 8)
    ]
    content = pickle.dumps({"entries": entries, "pg_config": {}}, protocol=2)
    pathlib.Path(f"{dump}{rank}").write_bytes(content)
    if rank == 1 and sys.argv[1] == "waits":
        time.sleep(600)
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGABRT)
"""


@pytest.mark.parametrize("absent", ["waits", "aborts"])
@pytest.mark.parametrize("is_set", [False, True])
def test_the_dumps_of_ranks_that_their_watchdogs_aborted_name_the_cause(
    tmp_path: Path, absent: str, *, is_set: bool
) -> None:
    """The rank that never came is alive, or was aborted like the others."""
    script = tmp_path / "train.py"
    script.write_text(ABORTED, encoding="utf-8")
    own = {"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "mine_")} if is_set else {}
    (tmp_path / "mine_0").write_bytes(b"of an earlier run")
    done = launch("--nproc-per-node", 3, script, absent, **own)

    assert done.returncode == 0, done.stderr
    assert re.search(
        r"RankFailed: round 1: rank 1 on \S+: .*signal 6.*; flight recorder: rank 1 never entered "
        r"all_reduce 7 of default_pg, called by main \(train\.py:9\)\n",
        done.stderr,
    ), done.stderr
    assert done.stderr.count("RankFailed") == 1
    assert "RanksRestarted: in-place" in done.stderr


def test_a_rank_that_crashes_without_a_dump_restarts_the_others_at_once(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(ABORTED.replace('f"{dump}{rank}"', '"/dev/null"'), encoding="utf-8")
    done = launch("--nproc-per-node", 2, script, "waits")

    assert done.returncode == 0, done.stderr
    assert re.search(r"RankFailed: round 1: rank 0 on \S+: [^;]*signal 6[^;]*\n", done.stderr)


FIRST = """
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(folder))
from torch.distributed.distributed_c10d import all_reduce
def loads_a_checkpoint():
    while not (folder / "continue").exists():
        time.sleep(0.01)
if os.environ["RANK"] == "1":
    loads_a_checkpoint()
all_reduce(folder / "continue")
"""


@needs_py_spy
def test_a_hang_before_the_first_step_is_reported_and_names_the_rank(train: Path) -> None:
    folder = train.parent
    train.write_text(FIRST, encoding="utf-8")
    options = ("--nproc-per-node", 2, "--stall-start", "3s", "--hang-timeout", "5s")
    started = start(*options, train, folder)
    assert started.stderr is not None
    line = started.stderr.readline()
    (folder / "continue").touch()
    _, rest = started.communicate(timeout=LIMIT_S)

    assert re.search(
        r"HangSuspected: round 1: no step within 3s of the start, or the job reports no steps; "
        r"rank 1 on \S+ never entered all_reduce: it is in (\S+ \(pathlib\.py:\d+\), called by )?"
        r"loads_a_checkpoint \(train\.py:\d+\); "
        r"the other rank waits; the ranks continue",
        line,
    ), line
    assert started.returncode == 0
    assert "HangSuspected" not in rest


WAITS = """
import os, pathlib, queue, signal, sys
folder = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(folder))
from torch.distributed.distributed_c10d import all_reduce
def waits_for_a_batch():
    queue.Queue().get()
print("an epoch begins", flush=True)
if os.environ["RANK"] == "1":
    waits_for_a_batch()
all_reduce()
"""


@needs_py_spy
@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_deadlock_of_a_job_that_reports_no_steps_is_reported_and_names_the_rank(
    train: Path, *, is_stopped: bool
) -> None:
    folder = train.parent
    blocked = "import queue\ndef all_reduce():\n    queue.Queue().get()\n"
    (folder / "torch/distributed/distributed_c10d.py").write_text(blocked, encoding="utf-8")
    stops = "os.kill(os.getpid(), signal.SIGSTOP)" if is_stopped else "queue.Queue().get()"
    train.write_text(WAITS.replace("    queue.Queue().get()", f"    {stops}"), encoding="utf-8")
    started = start(
        "--nproc-per-node", 2, "--stall-silence", "2s", "--hang-timeout", "1s", train, folder
    )
    assert started.stderr is not None
    line = started.stderr.readline()
    started.terminate()
    started.communicate(timeout=LIMIT_S)

    does = r"is stopped by a signal" if is_stopped else r"never entered all_reduce: .+waits_for_a_b"
    assert re.search(
        r"HangSuspected: round 1: no output, no CPU time and no network traffic of the ranks for "
        rf"2s; rank 1 on \S+ {does}.+; the ranks continue",
        line,
    ), line


@needs_py_spy
def test_a_rank_on_another_node_is_named(train: Path) -> None:
    folder = train.parent
    options = ("--nnodes", 2, "--rdzv-endpoint", f"127.0.0.1:{free_port()}")
    options += ("--nproc-per-node", 2, "--hang-timeout", "auto", *QUICK)
    key = {"HOLDFAST_LAUNCH_KEY": "0123456789abcdef"}
    first = start(*options, "--node-rank", 0, train, folder, "all", 3, **key)
    second = start(*options, "--node-rank", 1, train, folder, "all", 3, **key)
    _, printed = first.communicate(timeout=LIMIT_S)
    second.communicate(timeout=LIMIT_S)

    assert (first.returncode, second.returncode) == (0, 0), printed
    assert re.search(
        r"RankFailed: round 1: rank 3 on \S+: .+; rank 3 on \S+ never entered all_reduce: .+; "
        r"the other 3 ranks wait[;\n]",
        printed,
    ), printed
    assert len(numbers_in(folder, "rank.1.*")) == 4


def test_a_warm_rank_that_is_stopped_is_named(train: Path) -> None:
    folder = train.parent
    options = ("--nproc-per-node", 2, "--warm", "--preload", "json", *QUICK)
    started = start(*options, "--hang-timeout", "auto", train, folder, "all", 1)
    wait_for((folder / "hangs").exists, "the hang")
    [pid] = numbers_in(folder, "rank.0.1")
    os.kill(pid, signal.SIGSTOP)
    _, printed = started.communicate(timeout=LIMIT_S)

    assert started.returncode == 0, printed
    assert re.search(r"rank 1 on \S+ is stopped by a signal such as SIGSTOP", printed), printed


def test_stacks_of_warm_ranks_are_read_without_py_spy(train: Path, bare_python: Path) -> None:
    """Those of the second round: the first one starts cold."""
    fails = 'if attempt == "0":\n    time.sleep(1)\n    sys.exit(rank == "0")\nfor step in'
    hangs = TRAIN.replace('attempt == "0"', 'attempt == "1"').replace("for step in", fails)
    train.write_text(hangs, encoding="utf-8")
    options = ("--nproc-per-node", 3, "--warm", "--preload", "json", "--hang-timeout", "auto")
    command = [bare_python, "-m", "holdfast", "launch", *options, *QUICK]
    done = subprocess.run(
        [*map(str, command), train, train.parent, "all", "2"],
        env=clean_environment(PATH="/nowhere", PYTHONPATH=str(ROOT)),
        capture_output=True,
        check=False,
        encoding="utf-8",
        timeout=LIMIT_S,
    )

    assert done.returncode == 0, done.stderr
    assert re.search(
        r"RankFailed: round 2: rank 2 on \S+: .+; rank 2 on \S+ never entered all_reduce: it is in "
        r"(?:[^;]+, called by )?reads_a_batch \(train\.py:\d+\); the other 2 ranks wait[;\n]",
        done.stderr,
    ), done.stderr


def test_a_job_whose_steps_another_system_watches_is_not_watched(train: Path) -> None:
    folder = train.parent
    steps = folder / "steps"
    started = start(
        "--nproc-per-node", 1, "--stall-floor", "100ms", train, folder, "one", 0,
        HOLDFAST_PROGRESS_FILE=str(steps),
    )  # fmt: skip
    wait_for((folder / "hangs").exists, "the hang")
    assert started.poll() is None
    (folder / "continue").touch()
    _, printed = started.communicate(timeout=LIMIT_S)

    assert (started.returncode, "Suspected" in printed) == (0, False), printed
    assert len(steps.read_text(encoding="utf-8").splitlines()) == 34


LOGS = """
import os, sys, time
attempt, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]
for step in range(34 if attempt == "0" else 2):
    if step == 32:
        time.sleep(600)
    if rank == "0":
        print(f"step: {step}  loss:  2.3", flush=True)
    time.sleep(0.12)
"""


@pytest.mark.parametrize(("options", "restarts"), [((), 0), (("--log-dir",), 1)])
def test_steps_in_the_logs_of_a_log_directory_count(
    tmp_path: Path, options: tuple[str, ...], restarts: int
) -> None:
    script = tmp_path / "train.py"
    script.write_text(LOGS.replace("600", "600" if restarts else "3"), encoding="utf-8")
    folders = [tmp_path / "logs" for _ in options]
    done = launch("--hang-timeout", "auto", *QUICK, *options, *folders, script)

    assert done.returncode == 0, done.stderr
    assert done.stderr.count("RanksRestarted") == restarts, done.stderr


ENDS_EARLY = """
import os, time
rank, attempt = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
for step in range(2 if rank == "0" else 40):
    with open(os.environ["HOLDFAST_PROGRESS_FILE"], "a") as file:
        file.write(f"{step}\\n")
    time.sleep(0.05)
"""


def test_a_rank_that_has_succeeded_does_not_hang(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(ENDS_EARLY, encoding="utf-8")
    done = launch("--nproc-per-node", 2, "--hang-timeout", "1s", script)

    assert (done.returncode, done.stderr) == (0, "holdfast: JobSucceeded: all ranks succeeded\n")
