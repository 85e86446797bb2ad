"""``holdfast launch`` and losses that are not finite, with real processes."""

import json
import os
import re
from pathlib import Path

import pytest
from launch.job_of_nodes import KEY, ends
from launch.launched import LIMIT_S, launch, start

from tests.engines.ports import free_port

pytestmark = pytest.mark.launchers

TRAIN = """
import json, os, pathlib, shutil, sys, time
from holdfast import training

folder, rank = pathlib.Path(sys.argv[1]), int(os.environ["RANK"])
bad = {int(part) for part in os.environ.get("BAD", "").split(",") if part}
number, saves = int(os.environ["HOLDFAST_LAUNCH_ROUND"]), folder / "ckpt"
with open(folder / "environment", "a") as file:
    names = ("SKIP_STEPS", "BAD_LOSS", "RESTART_REASON")
    shown = {name: os.environ.get(f"HOLDFAST_{name}") for name in names}
    file.write(json.dumps({"round": number, "rank": rank, **shown}) + "\\n")

def saved():
    return sorted(int(one.name.partition("-")[2]) for one in saves.glob("checkpoint-*"))

agreed = folder / f"begin.{os.environ['MASTER_PORT']}.{number}"
if rank == 0:
    (folder / "begin.new").write_text(str(saved()[-1] if saved() else 0))
    os.rename(folder / "begin.new", agreed)
while not agreed.exists():
    time.sleep(0.01)
begin = int(agreed.read_text())
state = float((saves / f"checkpoint-{begin}" / "state").read_text()) if begin else 1.0
for step in range(begin + 1, 9):
    if training.is_skipped(step):
        continue
    state = state * 1.0001 + step
    is_bad = step in bad and os.environ.get("ONLY") in (None, "", str(rank))
    if is_bad and (number == 1 or os.environ.get("ALWAYS")):
        state = float("nan")
    training.step(step, loss=state)
    if rank == 0:
        made = saves / f".new-{step}"
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
        weights = len(header).to_bytes(8, "little") + header + b"\\0" * 4
        (made / "model.safetensors").write_bytes(weights)
        (made / "trainer_state.json").write_text(json.dumps({"global_step": step}))
        (made / "state").write_text(repr(state))
        os.rename(made, saves / f"checkpoint-{step}")
    if state != state and os.environ.get("CHECKS"):
        sys.exit(9)
    time.sleep(0.05)
while state != state:
    time.sleep(0.05)
if rank == 0:
    (folder / "final").write_text(repr(state))
"""


class Training:
    """A job that saves each step, and what it has done."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.script = folder / "train.py"
        self.script.write_text(TRAIN, encoding="utf-8")
        (folder / "ckpt").mkdir()

    @property
    def arguments(self) -> tuple[object, ...]:
        return ("--nproc-per-node", 2, self.script, self.folder)

    @property
    def checkpoints(self) -> dict[str, str]:
        return {"HOLDFAST_CHECKPOINT_DIR": str(self.folder / "ckpt")}

    @property
    def final(self) -> str:
        return (self.folder / "final").read_text(encoding="utf-8")

    def seen(self, name: str, number: int) -> str | None:
        lines = (self.folder / "environment").read_text(encoding="utf-8").splitlines()
        found = {one[name] for one in map(json.loads, lines) if one["round"] == number}
        assert len(found) == 1, found
        value: str | None = found.pop()
        return value


@pytest.fixture
def job(tmp_path: Path) -> Training:
    return Training(tmp_path)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    job = Training(tmp_path_factory.mktemp("undisturbed"))
    done = launch(*job.arguments)
    assert done.returncode == 0, done.stderr
    return job.final


@pytest.mark.parametrize("checks", ["", "1"], ids=["runs-on", "ends-itself"])
def test_ranks_restart_in_place_from_the_checkpoint_before_a_nan(
    job: Training, undisturbed: str, checks: str
) -> None:
    options = ("--loss-action", "rollback", *job.arguments)
    done = launch(*options, **job.checkpoints, BAD="4", CHECKS=checks)

    assert done.returncode == 0, done.stderr
    assert job.final == undisturbed
    assert "LossNotFinite: the loss is nan at step 4" in done.stderr
    assert "RanksRestarted: in-place (restarts in place: 1, limit 3)" in done.stderr
    assert "the ranks resume from checkpoint-3" in done.stderr
    assert checks or "checkpoint-3; set aside: checkpoint-" in done.stderr
    assert str(job.seen("BAD_LOSS", 2)).startswith("4@")
    assert job.seen("RESTART_REASON", 2) == "LossNotFinite"
    assert job.seen("BAD_LOSS", 1) is None


DISTURBED = """
import os, sys

if sys.orig_argv[3:5] == ["checkpoint", "verify"]:
    with open(os.environ["TRIES"], "a") as file:
        file.write("verified\\n")
    with open(os.environ["TRIES"]) as file:
        number = len(file.readlines())
    if number == 1:
        os.kill(os.getpid(), 9)
    if os.environ.get("NEVER"):
        sys.stderr.write("holdfast: /fsx cannot be read: Input/output error\\n")
        sys.stderr.flush()
        os._exit(1)
"""


@pytest.fixture
def disturbed(tmp_path: Path) -> dict[str, str]:
    """Variables with which the first verification of checkpoints is killed."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(DISTURBED, encoding="utf-8")
    paths = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return {"PYTHONPATH": paths, "TRIES": str(tmp_path / "tries")}


def test_a_verification_that_is_killed_is_repeated(
    job: Training, undisturbed: str, disturbed: dict[str, str]
) -> None:
    options = ("--loss-action", "rollback", *job.arguments)
    done = launch(*options, **job.checkpoints, **disturbed, BAD="4", CHECKS="1")

    assert done.returncode == 0, done.stderr
    assert job.final == undisturbed
    assert "ckpt: not verified: signal 9 (SIGKILL); trying again" in done.stderr
    assert done.stderr.count("RanksRestarted:") == 1


def test_a_verification_that_fails_twice_says_why_and_the_ranks_restart(
    job: Training, disturbed: dict[str, str]
) -> None:
    options = ("--loss-action", "rollback", "--max-restarts", 1, *job.arguments)
    done = launch(*options, **job.checkpoints, **disturbed, BAD="4", CHECKS="1", NEVER="1")

    why = "exit code 1; last line: holdfast: /fsx cannot be read: Input/output error"
    assert f"CheckpointChosen: {job.folder / 'ckpt'}: not verified: {why}; the ranks" in done.stderr
    assert done.stderr.count("RanksRestarted:") == 1
    assert len((job.folder / "tries").read_text(encoding="utf-8").splitlines()) == 2


def test_a_loss_that_stays_nan_ends_the_job_within_its_budget(job: Training) -> None:
    options = ("--loss-action", "rollback", "--max-restarts", 2, *job.arguments)
    done = launch(*options, **job.checkpoints, BAD="4", CHECKS="1", ALWAYS="1")

    assert done.returncode == 1
    assert done.stderr.count("RanksRestarted:") == 2
    assert "JobFailed: restarts in place exhausted (2 of 2); last failure: LossNotFinite" in (
        done.stderr
    )


def test_a_bad_step_is_skipped_and_one_that_is_not_skipped_ends_the_job(job: Training) -> None:
    options = ("--loss-action", "skip", *job.arguments)
    done = launch(*options, **job.checkpoints, BAD="4", CHECKS="1", ALWAYS="1")
    assert done.returncode == 0, done.stderr
    assert job.seen("SKIP_STEPS", 2) == "3,4"

    text = job.script.read_text(encoding="utf-8").replace("training.is_skipped(step)", "False")
    job.script.write_text(text, encoding="utf-8")
    for path in (job.folder / "ckpt").iterdir():
        path.rename(job.folder / f"old-{path.name}")
    done = launch(*options, **job.checkpoints, BAD="4", CHECKS="1", ALWAYS="1")
    assert done.returncode == 1
    assert done.stderr.count("RanksRestarted:") == 1, done.stderr
    assert "the job did not skip it: call holdfast.training.is_skipped" in done.stderr


def test_the_job_ends_at_a_bad_loss_if_that_is_the_action(job: Training) -> None:
    done = launch("--loss-action", "stop", *job.arguments, BAD="4")

    assert done.returncode == 1
    assert "JobFailed: LossNotFinite: the loss is nan at step 4; loss_action is stop" in done.stderr


@pytest.mark.parametrize(("rank", "who"), [("", "all ranks"), ("1", r"rank 1 on \S+")])
def test_a_bad_loss_is_only_reported_by_default_with_its_ranks(
    job: Training, rank: str, who: str
) -> None:
    started = start("--shutdown-timeout", "1s", *job.arguments, BAD="4", ONLY=rank)
    assert started.stderr is not None
    lines = []
    for line in started.stderr:
        lines.append(line)
        if re.search(f"LossFault: round 1: {who}: the loss is nan at step 4; the ranks con", line):
            break
    started.terminate()
    started.communicate(timeout=LIMIT_S)
    assert started.returncode == 143, lines


def test_a_loss_in_the_log_of_a_rank_counts(job: Training, tmp_path: Path) -> None:
    options = ("--loss-action", "rollback", "--log-dir", tmp_path / "logs", *job.arguments)
    done = launch(*options, **job.checkpoints, BAD="4", HOLDFAST_PROGRESS_FILE="-", limit_s=60)

    assert done.returncode == 0, done.stderr
    assert "LossNotFinite: the loss is nan at step 4" in done.stderr
    assert "the ranks resume from checkpoint-3" in done.stderr


def test_all_nodes_restart_from_the_checkpoint_before(job: Training, undisturbed: str) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    options = ("--nnodes", 2, "--rdzv-endpoint", endpoint, "--loss-action", "rollback")
    guards = [
        start(
            "--node-rank", rank, *options, *job.arguments,
            HOLDFAST_LAUNCH_KEY=KEY, BAD="4", CHECKS="1", **job.checkpoints,
        )
        for rank in (0, 1)
    ]  # fmt: skip

    assert ends(guards) == [0, 0]
    assert job.final == undisturbed
    assert str(job.seen("BAD_LOSS", 2)).startswith("4@")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--loss-action", "retry"),
        ("--loss-tolerance", "nan"),
        ("--loss-window", "20000"),
        ("--loss-window", "0"),
    ],
)
def test_wrong_settings_are_named(job: Training, option: str, value: str) -> None:
    done = launch(option, value, *job.arguments)

    assert done.returncode == 2
    assert option in done.stderr
    assert value in done.stderr
