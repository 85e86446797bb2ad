"""``srun holdfast launch`` on a real cluster: the step's nodes are those of the job."""

import re
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from final_states import column_of
from launch.agent_at_work import AgentAtWork
from slurm_fleet_at_work import on_both_versions

from tests.engines.matrix import Matrix
from tests.engines.ports import free_port
from tests.engines.slurm_cluster import SlurmCluster, SlurmPrograms

TRAIN = """
import json, os, pathlib, sys, time
folder, kind = pathlib.Path(sys.argv[1]), sys.argv[2]
number, rank = os.environ["HOLDFAST_LAUNCH_ROUND"], os.environ["RANK"]
names = ("NODE_RANK", "WORLD_SIZE", "GROUP_WORLD_SIZE", "SLURMD_NODENAME")
found = {name: os.environ[name] for name in names}
(folder / f"{number}.{rank}.new").write_text(json.dumps(found))
os.rename(folder / f"{number}.{rank}.new", folder / f"{number}.{rank}")
if number == "1":
    while len(list(folder.glob("1.?"))) < 4:
        time.sleep(0.01)
    if rank == "3":
        os.kill(os.getppid() if kind == "launcher" else os.getpid(), 9)
    time.sleep(600)
"""


def ended_with(folder: Path) -> str:
    """The line about the exit code of the step; empty until it is written."""
    path = folder / "code"
    return path.read_text(encoding="utf-8") if path.exists() else ""


@on_both_versions
@pytest.mark.parametrize(
    ("nodes", "options", "kind"),
    [("2", "", "rank"), ("3", "--nnodes 2:3", "launcher")],
    ids=["in place", "hot spare"],
)
def test_a_step_restarts_its_ranks_and_completes(
    slurm: SlurmCluster,
    tmp_path: Path,
    programs: SlurmPrograms,
    matrix: Matrix,
    nodes: str,
    options: str,
    kind: str,
) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN, encoding="utf-8")
    endpoint = f"127.0.0.1:{free_port()}"  # names of this cluster's nodes do not resolve
    launcher = f"{sys.executable} -m holdfast launch {options} --rdzv-endpoint {endpoint}"
    slurm.submit(
        f"-N{nodes}",
        f"--output={tmp_path}/output",
        script=f"""export HOLDFAST_LAUNCH_KEY=0123456789abcdef
srun --no-kill --kill-on-bad-exit=0 --ntasks-per-node=1 \\
  {launcher} --nproc-per-node 2 {script} {tmp_path} {kind}
echo ended with $? > {tmp_path}/code
""",
    )
    slurm.until(lambda: ended_with(tmp_path))

    output = (tmp_path / "output").read_text(encoding="utf-8")
    ended = ended_with(tmp_path)
    assert ended == f"ended with {137 if kind == 'launcher' else 0}\n", output
    assert "JobSucceeded" in output
    assert "RanksRestarted: " + ("spare" if kind == "launcher" else "in-place") in output
    for number in (1, 2):
        found = [(tmp_path / f"{number}.{rank}").read_text() for rank in range(4)]
        assert ['"WORLD_SIZE": "4"' in one for one in found] == [True] * 4
        assert [f'"NODE_RANK": "{rank // 2}"' in one for rank, one in enumerate(found)] == [
            True
        ] * 4
    fault, rung = (
        ("launch-node", "hot-spare") if kind == "launcher" else ("launch-rank", "in-place")
    )
    # The last rank of the first round to start is followed by the kill.
    begun, resumed = (max(map(_written_at, tmp_path.glob(f"{n}.?"))) for n in (1, 2))
    matrix.record(
        fault,
        column_of(programs),
        {"job": "running", "rung": rung},
        {"resumed": resumed - begun},
    )


def _written_at(file: Path) -> float:
    return file.stat().st_mtime


REPAIRED = """
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
name = os.environ["HOLDFAST_LAUNCH_ROUND"] + "." + os.environ["RANK"]
(folder / (name + ".new")).write_text(os.environ["SLURMD_NODENAME"])
os.rename(folder / (name + ".new"), folder / name)
while not (folder / "finish").exists():
    time.sleep(0.01)
"""


@on_both_versions
def test_a_step_leaves_a_node_that_is_being_repaired_for_a_hot_spare(
    slurm: SlurmCluster, tmp_path: Path, programs: SlurmPrograms, matrix: Matrix
) -> None:
    script = tmp_path / "train.py"
    script.write_text(REPAIRED, encoding="utf-8")
    endpoint = f"127.0.0.1:{free_port()}"
    launcher = f"{sys.executable} -m holdfast launch --nnodes 2:3 --rdzv-endpoint {endpoint}"
    with ExitStack() as stack:
        agents = {
            name: stack.enter_context(AgentAtWork(tmp_path / name))
            for name in ("node1", "node2", "node3")
        }
        slurm.submit(
            f"-w{','.join(agents)}",
            f"--output={tmp_path}/output",
            script=f"""export HOLDFAST_LAUNCH_KEY=0123456789abcdef
srun --ntasks-per-node=1 sh -c 'exec {launcher} --nproc-per-node 2 \\
  --node-report {tmp_path}/$SLURMD_NODENAME/report.json {script} {tmp_path}'
echo ended with $? > {tmp_path}/code
""",
        )
        slurm.until(lambda: len(list(tmp_path.glob("1.?"))) == 4)
        bad = (tmp_path / "1.3").read_text()
        began = time.monotonic()
        agents[bad].log_xid(74)
        slurm.until(lambda: len(list(tmp_path.glob("2.?"))) == 4)
        seconds = {"resumed": time.monotonic() - began}
    nodes = {(tmp_path / f"2.{rank}").read_text() for rank in range(4)}
    (tmp_path / "finish").touch()
    slurm.until(lambda: ended_with(tmp_path))

    output = (tmp_path / "output").read_text(encoding="utf-8")
    assert nodes == agents.keys() - {bad}
    assert ended_with(tmp_path) == "ended with 0\n", output
    assert re.search(r"RanksRestarted: spare: \S+ is being repaired: Nvidia", output)
    column = column_of(programs)
    matrix.record("launch-repair", column, {"job": "running", "rung": "hot-spare"}, seconds)


FAILS = """
import os, pathlib, sys
folder, run = pathlib.Path(sys.argv[1]), os.environ.get("SLURM_RESTART_COUNT", "0")
(folder / f"{run}.{os.environ['RANK']}").touch()
sys.exit(3 if run == "0" else 0)
"""


@on_both_versions
def test_slurm_restarts_a_job_that_may_not_restart_in_place(
    programs: SlurmPrograms, tmp_path: Path, matrix: Matrix
) -> None:
    """With code 75 of the launcher, and ``RequeueExit=75``; within its budget of such restarts."""
    script = tmp_path / "train.py"
    script.write_text(FAILS, encoding="utf-8")
    endpoint = f"127.0.0.1:{free_port()}"
    budget = "--max-restarts 0 --max-job-restarts 1"
    settings = {"RequeueExit": "75", "JobFileAppend": "1"}
    with SlurmCluster(programs, nodes=("node1", "node2"), settings=settings) as slurm:
        job = slurm.submit(
            "-N2",
            f"--output={tmp_path}/output",
            script=f"""export HOLDFAST_LAUNCH_KEY=0123456789abcdef
exec srun --ntasks-per-node=1 {sys.executable} -m holdfast launch {budget} \\
  --rdzv-endpoint {endpoint} --nproc-per-node 2 {script} {tmp_path}
""",
        )
        slurm.until(lambda: slurm.jobs()[job] == "COMPLETED")

    output = (tmp_path / "output").read_text(encoding="utf-8")
    assert "JobRestartRequested" in output
    assert "JobSucceeded" in output
    ended, resumed = (max(map(_written_at, tmp_path.glob(f"{run}.?"))) for run in (0, 1))
    found = {"job": "running", "rung": "whole-job"}
    matrix.record("launch-spent", column_of(programs), found, {"resumed": resumed - ended})


HANGS = """
import os, time
rank, number = os.environ["RANK"], os.environ["HOLDFAST_LAUNCH_ROUND"]
for step in range(34 if number == "1" else 2):
    if step == 32:
        time.sleep(600)
    with open(os.environ["HOLDFAST_PROGRESS_FILE"], "a") as file:
        file.write(f"{step}\\n")
    time.sleep(0.12)
"""


def test_a_hang_of_a_step_is_found_without_any_setting_of_the_job(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(HANGS, encoding="utf-8")
    launcher = f"{sys.executable} -m holdfast launch --rdzv-endpoint 127.0.0.1:{free_port()}"
    slurm.submit(
        "-N2",
        f"--output={tmp_path}/output",
        script=f"""export HOLDFAST_LAUNCH_KEY=0123456789abcdef
srun --ntasks-per-node=1 {launcher} --nproc-per-node 2 --hang-timeout auto --stall-floor 1s {script}
echo ended with $? > {tmp_path}/code
""",
    )
    slurm.until(lambda: ended_with(tmp_path))

    output = (tmp_path / "output").read_text(encoding="utf-8")
    assert ended_with(tmp_path) == "ended with 0\n", output
    assert re.search(r"RankFailed: round 1: rank [0-3] on \S+: no progress for \S+; the", output)
    assert "ranks 0, 1, 2, 3 are outside of collectives" in output
    assert "RanksRestarted: in-place" in output
