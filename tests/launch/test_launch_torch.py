"""``holdfast launch`` with real frameworks."""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from effort import variants
from launch.launched import TORCH_LIMIT_S, launch, needs_py_spy, start

from tests.engines.ports import free_port

HERE = Path(__file__).parent
FRAMEWORKS = HERE.parent / "local" / "frameworks"
ON_CPU = {
    "CUDA_VISIBLE_DEVICES": "",
    "DS_ACCELERATOR": "cpu",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    # With another ninja than that of `make frameworks`, DeepSpeed compiles its operator again.
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
}


def trained_weights(folder: Path, at: int, kind: str) -> bytes:
    folder.mkdir()
    done = launch(
        "--nproc-per-node",
        2,
        HERE / "ddp_steps.py",
        folder,
        at,
        kind,
        limit_s=TORCH_LIMIT_S,
        **ON_CPU,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("RanksRestarted: in-place") == int(at >= 0), done.stderr
    return (folder / "weights").read_bytes()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Weights after training without faults."""
    return trained_weights(tmp_path_factory.mktemp("undisturbed") / "none", -1, "none")


@pytest.mark.torch
def test_training_restarted_in_place_equals_training_without_faults(
    tmp_path: Path, undisturbed: bytes
) -> None:
    assert trained_weights(tmp_path / "kill", 5, "kill") == undisturbed
    assert trained_weights(tmp_path / "raise", 7, "raise") == undisturbed


@pytest.mark.torch
@needs_py_spy
@pytest.mark.parametrize(
    ("hang", "verdict"),
    [
        ("asleep", r"rank 1 on \S+ never entered .+: it is in falls_asleep \(torch_hang\.py"),
        (
            "dataloader",
            r"rank 1 on \S+ never entered .+: it is in the DataLoader, in \S+ \(.+; its "
            r"worker process \d+ is in [\w.]*__getitem__ \(torch_hang\.py",
        ),
        (
            "mismatch",
            r"rank 0 is in all_reduce, called by hang \(.+ and rank 1 is in barrier, called",
        ),
    ],
)
def test_the_rank_that_hangs_real_training_is_named(hang: str, verdict: str) -> None:
    options = ("--nproc-per-node", 2, "--hang-timeout", "auto", "--stall-floor", "2s")
    done = launch(
        *options, "--max-restarts", 0, FRAMEWORKS / "torch_hang.py", hang,
        limit_s=TORCH_LIMIT_S, HANG_AT="40", **ON_CPU,
    )  # fmt: skip

    assert done.returncode == 1, done.stderr
    assert re.search(rf"RankFailed: round 1: rank [01] on .+; {verdict}", done.stderr), done.stderr


@pytest.mark.torch
@needs_py_spy
@pytest.mark.parametrize(
    ("hang", "verdict"),
    variants(
        [
            (
                "handle",
                r"rank 1 on \S+ is in never_comes .+, while the others sleep in waits_for_the",
            ),
            ("group", r"rank 1 on \S+ never entered barrier: it is in never_comes"),
            ("save", r"rank 1 on \S+ never entered barrier: it is in never_comes"),
            ("exit", r"rank 1 on \S+ never entered barrier: it is in never_comes"),
            (
                "debugger",
                r"rank 1 on \S+ never entered barrier: it is in .+, called by asks_a_person",
            ),
            (
                "receives",
                r"all ranks that could be read wait for others: rank 0 is in recv, called by",
            ),
        ],
        each=3,
    ),
)
def test_a_rank_that_does_not_come_is_named_however_the_others_wait(
    hang: str, verdict: str
) -> None:
    options = ("--nproc-per-node", 3, "--hang-timeout", "auto", "--stall-floor", "2s")
    done = launch(
        *options, "--max-restarts", 0, FRAMEWORKS / "torch_waits.py", hang,
        limit_s=TORCH_LIMIT_S, **ON_CPU,
    )  # fmt: skip

    assert done.returncode == 1, done.stderr
    assert re.search(rf"RankFailed: round 1: rank \d on .+; {verdict}", done.stderr), done.stderr


@pytest.mark.torch
@needs_py_spy
def test_a_timeout_of_gloo_names_the_rank_that_never_came(tmp_path: Path) -> None:
    done = launch(
        "--nproc-per-node", 3, "--max-restarts", 0, "--log-dir", tmp_path,
        FRAMEWORKS / "torch_hang.py", "asleep", limit_s=TORCH_LIMIT_S,
        HANG_AT="3", HANG_TIMEOUT_S="5", HANG_RANK="2", **ON_CPU,
    )  # fmt: skip

    assert done.returncode == 1, done.stderr
    assert re.search(
        r"RankFailed: round 1: rank 2 on \S+: exit code 1: .+; rank 2 on \S+ never entered the "
        r"collective that timed out: it is in falls_asleep \(torch_hang\.py:\d+\)",
        done.stderr,
    ), done.stderr


@contextmanager
def launchers(count: int, *arguments: object) -> Iterator[list[subprocess.Popen[str]]]:
    """Launchers of nodes with one rank each; the first is the coordinator, the third a spare."""
    endpoint = f"127.0.0.1:{free_port()}"
    meeting = ("--nnodes", f"2:{count}", "--rdzv-endpoint", endpoint, "--lease-timeout", "20s")
    variables = {**ON_CPU, "HOLDFAST_LAUNCH_KEY": "0123456789abcdef"}
    guards = [
        start(*meeting, "--node-rank", rank, *arguments, **variables) for rank in range(count)
    ]
    try:
        yield guards
    finally:
        for guard in guards:
            if guard.poll() is None:
                guard.terminate()
            guard.communicate(timeout=TORCH_LIMIT_S)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("hang", "verdict"),
    [
        ("absent", r"rank 1 never entered all_reduce 41 of default_pg, called by hang \(torch_rec"),
        (
            "mismatch",
            r"rank 0 calls all_reduce, called by hang \(torch_recorded\.py:\d+\), and rank 1 calls "
            r"broadcast, called by hang \(torch_recorded\.py:\d+\), in collective 41 of default_pg",
        ),
    ],
)
def test_flight_recorders_of_two_nodes_name_the_rank(hang: str, verdict: str) -> None:
    options = ("--hang-timeout", "auto", "--stall-floor", "2s", "--max-restarts", 0)
    with launchers(2, *options, HERE / "torch_recorded.py", hang) as (first, second):
        _, errors = first.communicate(timeout=TORCH_LIMIT_S)
        second.communicate(timeout=TORCH_LIMIT_S)

    assert first.returncode == 1, errors
    assert re.search(rf"RankFailed: .+; flight recorder: {verdict}", errors), errors
    kept = re.search(r"flight recorder dumps of the ranks are in (\S+)", errors)
    assert kept is not None, errors
    assert [one.name for one in Path(kept[1]).rglob("rank_*")] == ["rank_0"]
    shutil.rmtree(Path(kept[1]).parent)


@pytest.mark.torch
def test_training_continued_on_a_spare_equals_training_without_faults(
    tmp_path: Path, undisturbed: bytes
) -> None:
    folder = tmp_path / "node"
    folder.mkdir()
    with launchers(3, HERE / "ddp_steps.py", folder, 5, "node") as (first, *others):
        _, errors = first.communicate(timeout=TORCH_LIMIT_S)
    assert first.returncode == 0, errors
    assert "RanksRestarted: spare" in errors
    assert 128 + signal.SIGKILL in [one.returncode for one in others]

    assert (folder / "weights").read_bytes() == undisturbed


@pytest.mark.frameworks
def test_lightning_finds_its_nodes() -> None:
    if importlib.util.find_spec("lightning") is None:
        pytest.skip("lightning is not installed: make frameworks")
    with launchers(2, FRAMEWORKS / "lightning_fit.py", 1) as guards:
        ended = [guard.communicate(timeout=TORCH_LIMIT_S) for guard in guards]
    shown = [line for out, _ in ended for line in out.splitlines() if "trained rank" in line]
    assert sorted(shown) == ["trained rank 0 of 2", "trained rank 1 of 2"], ended


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("module", "script"),
    [
        ("accelerate", "accelerate_loop.py"),
        ("transformers", "hf_trainer.py"),
        ("deepspeed", "deepspeed_engine.py"),
    ],
)
def test_frameworks_find_their_ranks(module: str, script: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed: make frameworks")
    done = launch("--nproc-per-node", 2, FRAMEWORKS / script, limit_s=TORCH_LIMIT_S, **ON_CPU)

    assert done.returncode == 0, done.stderr
    # Unbuffered ranks may write into one line. One may fail at its exit, because the other has left
    # already: both then run once more, which the launcher reports.
    trained = Counter(re.findall(r"trained rank (\d) of 2", done.stdout))
    assert set(trained) == {"0", "1"}
    assert max(trained.values()) <= 1 + done.stderr.count("RanksRestarted"), done.stderr


WARM = """
import os, pathlib, sys, time
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    while not pathlib.Path(sys.argv[1], "imported").exists():
        time.sleep(0.01)
    sys.exit(1)
assert "torch._dynamo" in sys.modules, "imported by the first optimizer otherwise"
import torch
torch.optim.SGD([torch.ones(1, requires_grad=True)])
print("optimizer made")
"""


@pytest.mark.torch
def test_a_warm_rank_has_imported_what_its_optimizer_needs(tmp_path: Path) -> None:
    noted = f"import pathlib\npathlib.Path({str(tmp_path)!r}, 'imported').touch()\n"
    (tmp_path / "noted.py").write_text(noted, encoding="utf-8")
    script = tmp_path / "train.py"
    script.write_text(WARM, encoding="utf-8")
    paths = {"PYTHONPATH": f"{tmp_path}:{os.getcwd()}"}

    done = launch("--warm", "--preload", "torch,noted", script, tmp_path, **ON_CPU, **paths)

    assert done.returncode == 0, done.stderr
    assert "optimizer made" in done.stdout
