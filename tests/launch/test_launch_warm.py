"""Warm ranks: processes that have imported, and become ranks at the next start."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from launch.launched import LIMIT_S, launch, launcher_of, none_runs, numbers_in, start, wait_for

from holdfast.kit.processes import descendants

pytestmark = pytest.mark.launchers

MODULE = """
import os, pathlib
pathlib.Path(os.environ["NOTES"], f"imported.{os.getpid()}").write_text(f"{os.getpid()}\\n")
"""

TRAIN = """
import json, multiprocessing, os, pathlib, sys, time
import heavy

def square(number):
    return number * number

if __name__ == "__main__":
    folder = pathlib.Path(os.environ["NOTES"])
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        squares = pool.map(square, [3])
    found = {
        "pid": os.getpid(),
        "argv": sys.argv,
        "main": sys.modules["__main__"].__file__ == __file__ == sys.argv[0],
        "path": sys.path[0],
        "squares": squares,
        "rank": os.environ["RANK"],
        "session": os.getsid(0) == os.getpid(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
    }
    (folder / f"found.{attempt}.{os.environ['RANK']}").write_text(json.dumps(found))
    print("attempt", attempt)
    if attempt == "0":
        # Both ranks of the next round are warm before this one fails.
        while len(list(folder.glob("imported.*"))) < int(sys.argv[1]):
            time.sleep(0.01)
        sys.exit(1)
"""


def prepared(folder: Path, module: str = MODULE, train: str = TRAIN) -> Path:
    (folder / "modules").mkdir()
    (folder / "modules" / "heavy.py").write_text(module, encoding="utf-8")
    script = folder / "train.py"
    script.write_text(train, encoding="utf-8")
    return script


def variables(folder: Path) -> dict[str, str]:
    return {"NOTES": str(folder), "PYTHONPATH": f"{folder / 'modules'}:{os.getcwd()}"}


FAILING_MODULE = """
import time
time.sleep(1)  # the rank of the next round is to start meanwhile
raise RuntimeError("no driver")
"""

FAIL_EARLY = """
import os, sys
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sys.exit(1)
print("rank has run")
"""


def test_a_module_that_raises_while_a_rank_waits_for_it_is_no_failure_of_the_rank(
    tmp_path: Path,
) -> None:
    script = prepared(tmp_path, FAILING_MODULE, FAIL_EARLY)
    done = launch("--warm", "--preload", "heavy", script, **variables(tmp_path))

    assert done.returncode == 0, done.stderr
    assert done.stderr.count("RanksRestarted:") == 1, done.stderr
    assert "warm rank not used: --preload heavy: RuntimeError: no driver" in done.stderr
    assert "rank has run" in done.stdout


def test_a_warm_rank_has_imported_and_is_like_a_new_process(tmp_path: Path) -> None:
    script = prepared(tmp_path)
    options = ("--warm", "--preload", "heavy", "--nproc-per-node", 2, "--log-dir", tmp_path / "l")
    # Imports: two cold ranks and their children, and two warm ranks.
    done = launch(*options, script, 6, "--flag", **variables(tmp_path))
    assert done.returncode == 0, done.stderr

    for rank in ("0", "1"):
        found = json.loads((tmp_path / f"found.1.{rank}").read_text())
        pid = found.pop("pid")
        assert (tmp_path / f"imported.{pid}").exists()
        assert found == {
            "argv": [str(script), "6", "--flag"],
            "main": True,
            "path": str(tmp_path),
            "squares": [9],
            "rank": rank,
            "session": True,
            "threads": "1",
        }
        log = tmp_path / "l" / "none" / "attempt_1" / rank / "stdout.log"
        assert log.read_text() == "attempt 1\n"


TORCH = """
import os, pathlib
class cuda:
    is_initialized = staticmethod(lambda: True)
pathlib.Path(os.environ["NOTES"], f"torch.{os.getpid()}").write_text(f"{os.getpid()}\\n")
"""

COUNT = """
import os, pathlib, sys, time
folder = pathlib.Path(os.environ["NOTES"])
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
(folder / f"rank.{attempt}").write_text(f"{os.getpid()} {'torch' in sys.modules}")
while attempt == "0" and not list(folder.glob("torch.*")):
    time.sleep(0.01)
sys.exit(attempt == "0")
"""


def test_a_warm_rank_with_cuda_initialized_starts_cold_with_a_reason(tmp_path: Path) -> None:
    script = prepared(tmp_path, train=COUNT)
    (tmp_path / "modules" / "torch.py").write_text(TORCH, encoding="utf-8")
    done = launch("--warm", script, **variables(tmp_path))

    assert done.returncode == 0, done.stderr
    assert "warm rank not used: CUDA is initialized" in done.stderr
    pid, has_torch = (tmp_path / "rank.1").read_text().split()
    assert (has_torch, (tmp_path / f"torch.{pid}").exists()) == ("False", True)


def test_a_missing_module_starts_ranks_cold_with_a_reason(tmp_path: Path) -> None:
    script = prepared(tmp_path, train="import os, sys, time; time.sleep(0.3); sys.exit(0)")
    done = launch("--warm", "--preload", "missing_module", script, **variables(tmp_path))

    assert done.returncode == 0, done.stderr
    assert "--preload missing_module: No module named 'missing_module'" in done.stderr


def test_modules_become_warm_ranks_too(tmp_path: Path) -> None:
    prepared(tmp_path)
    (tmp_path / "modules" / "job.py").write_text(TRAIN.replace(" == __file__", ""), "utf-8")
    done = launch("--warm", "--preload", "heavy", "-m", "job", 3, **variables(tmp_path))

    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.1.0").read_text())
    assert (tmp_path / f"imported.{found['pid']}").exists()


def waiting(tmp_path: Path) -> subprocess.Popen[str]:
    """A launcher whose rank runs while a warm rank waits."""
    script = prepared(tmp_path, train="import time; time.sleep(600)")
    started = start("--warm", "--preload", "heavy", script, **variables(tmp_path))
    wait_for(lambda: numbers_in(tmp_path, "imported.*"), "the import")
    return started


@pytest.mark.parametrize("victim", ["guard", "launcher", "warm rank"])
def test_no_warm_rank_outlives_its_launcher(tmp_path: Path, victim: str) -> None:
    guard = waiting(tmp_path)
    pids = descendants(guard.pid)
    [warm] = numbers_in(tmp_path, "imported.*")
    assert warm in pids
    if victim == "warm rank":  # the next restart is cold
        os.kill(warm, signal.SIGKILL)
        guard.terminate()
    else:
        os.kill(guard.pid if victim == "guard" else launcher_of(guard.pid), signal.SIGKILL)
    guard.communicate(timeout=LIMIT_S)

    wait_for(lambda: none_runs(pids), "the end of all processes")


def test_warm_ranks_need_a_python_script() -> None:
    done = launch("--warm", "--no-python", "true")

    assert done.returncode == 2
    assert "--warm and --no-python exclude each other" in done.stderr
