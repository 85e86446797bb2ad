"""Supervised steps that report no new step, or fail by themselves, and what is said of them."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from supervised_cluster import Supervised, supervised_cluster

from holdfast.adapters.host.evidence_file import read_evidence
from tests.engines.slurm_cluster import SlurmPrograms

needs_py_spy = pytest.mark.skipif(
    not Path(sys.executable).with_name("py-spy").exists() or os.geteuid() != 0,
    reason="py-spy is not installed, or may not read other processes",
)

LAUNCH = Path(__file__).parents[1] / "launch"
TRAINS = """
import os, pathlib, time
hangs = pathlib.Path(os.environ["FOLDER"]) / "has-hung"
for step in range(1, 41):
    print(f"step: {step:2}  loss:  2.50000  grad_norm:  1.2000", flush=True)
    if step == 30 and not hangs.exists():
        hangs.touch()
        while not (hangs.parent / "continue").exists():
            time.sleep(0.1)
    time.sleep(0.4)
print("done", flush=True)
"""


@pytest.fixture(scope="module")
def cluster(
    programs: SlurmPrograms, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Supervised]:
    with supervised_cluster(programs, tmp_path_factory.mktemp("supervised")) as cluster:
        (cluster.prefix / "train.py").write_text(TRAINS, encoding="utf-8")
        yield cluster


def submitted(cluster: Supervised, folder: Path, **variables: object) -> str:
    """Submit a job whose ranks print steps as torchtitan does, and pause after step 30."""
    folder.mkdir()
    exports = {"FOLDER": folder, "HOLDFAST_STALL_FLOOR": "3s", **variables}
    lines = [f"export {key}={value}" for key, value in exports.items()]
    command = f"srun --auto-resume=1 {sys.executable} {cluster.prefix}/train.py"
    return cluster.submit("-N1", script="\n".join([*lines, command, "echo code $?"]))


def silence_s(output: str) -> float:
    """Seconds without a new step before the hang was suspected, as a message has them."""
    (found,) = re.findall(r"no new step for (?:(\d+)m)?(?:([\d.]+)s)?", output)
    return 60 * int(found[0] or 0) + float(found[1] or 0)


def test_a_hang_is_reported_and_restarted_only_if_that_is_asked_for(cluster: Supervised) -> None:
    reports = submitted(cluster, cluster.prefix / "reports")
    restarts = submitted(cluster, cluster.prefix / "restarts", HOLDFAST_HANG_TIMEOUT="auto")

    cluster.until_said(reports, "JobHangSuspected")
    cluster.until_commented(reports, "suspected-hang=0:30:")
    (cluster.prefix / "reports/continue").touch()
    output = cluster.ended(reports)
    assert output.count("JobHangSuspected: the step seems to hang: no new step for ") == 1
    assert "last step 30; the longest pause between two steps was " in output
    assert "it is restarted only with HOLDFAST_HANG_TIMEOUT" in output
    assert "done" in output
    assert "code 0" in output
    comment = cluster.comment(reports)
    assert "suspected-hang" not in comment
    (reported,) = re.findall(r"progress=0:(\d+):(\d+\.\d+)", comment)
    assert int(reported[0]) >= 30
    assert 0 < float(reported[1]) < silence_s(output), "the pause of the hang is no step"

    output = cluster.ended(restarts)
    assert output.count("cancelled: JobHung: the step seems to hang: no new step for ") == 1
    assert "JobHangSuspected" not in output
    assert output.count("done") == 1
    assert "code 0" in output
    assert cluster.restarts(restarts) == 0


RULES = r"""
- name: Ticks
  logPattern: "step: +(\\d+)"
  expectedStartCutOffInSeconds: 60
  expectedRecurringFrequencyInSeconds: 8
- name: Weights
  logPattern: ".*weights are broken"
  faultOnMatch: true
"""

TICKS = """
import os, time
restarts = int(os.environ.get("HOLDFAST_ATTEMPT", "0"))
print("reason", os.environ.get("HOLDFAST_RESTART_REASON"), flush=True)
for number in range(5 if restarts else 30):
    print(f"step: {number:2}  loss:  2.50000  grad_norm:  1.2000", flush=True)
    time.sleep(0.3)
if restarts == 0:
    time.sleep(600)
if restarts == 1:
    print("weights are broken", flush=True)
    time.sleep(600)
"""


def test_log_rules_restart_a_step(cluster: Supervised) -> None:
    folder = cluster.prefix / "rules"
    folder.mkdir()
    (folder / "rules.yaml").write_text(RULES, encoding="utf-8")
    (folder / "train.py").write_text(TICKS, encoding="utf-8")
    command = f"srun --auto-resume=1 {sys.executable} {folder}/train.py"
    lines = [f"cd {folder}", "export HOLDFAST_LOG_RULES=rules.yaml", command, "echo code $?"]
    lines.insert(1, "export HOLDFAST_STALL_FLOOR=2s")  # a hang is suspected before a rule finds it
    job = cluster.submit("-N1", script="\n".join(lines))
    elsewhere = [*lines[:3], command.replace("srun", f"srun --output={folder}/other"), "echo code"]
    other = cluster.submit("-N1", script="\n".join(elsewhere))

    output = cluster.ended(job)
    assert "code 0" in output
    assert "JobHangSuspected: the step seems to hang: no new step for " in output
    assert re.findall(r"reason (\w+)", output) == [
        "None",
        "LogStateHanging_Ticks",
        "LogStateHanging_Weights",
    ]
    assert "cancelled: LogStateHanging_Ticks: no line matched 'step: +(\\\\d+)' for 8s, " in output
    assert "cancelled: LogStateHanging_Weights: the step printed: weights are broken" in output
    ignored = "HOLDFAST_LOG_RULES is 'rules.yaml', which needs srun without --output"
    cluster.until_said(other, ignored)
    cluster.slurm.run("scancel", other)


NAMED = """
import os, pathlib, pickle, sys, time
sys.path[:0] = os.environ["FOLDER"], os.environ["RECORDER"]
from recorder import listen
from torch.distributed.distributed_c10d import all_reduce
def loads_a_batch():
    time.sleep(600)
for step in range(1, 31):
    print(f"step: {step:2}  loss:  2.50000  grad_norm:  1.2000", flush=True)
    time.sleep(0.3)
entries = [
    {"process_group": ("0", "default_pg"), "collective_seq_id": number, "is_p2p": False,
     "profiling_name": "nccl:all_reduce", "input_sizes": [[1]], "state": state}
    for number, state in ((30, "completed"), (31, "started"))
]
if os.environ["RANK"] == "1":
    listen(lambda: pickle.dumps({"entries": entries[:1]}))
    loads_a_batch()
listen(lambda: pickle.dumps({"entries": entries}))
all_reduce()
"""


@needs_py_spy
def test_the_rank_that_hangs_a_step_is_named_and_the_evidence_is_kept(cluster: Supervised) -> None:
    folder = cluster.prefix / "named"
    library = folder / "torch/distributed"
    library.mkdir(parents=True)
    for one in (library, library.parent):
        (one / "__init__.py").touch()
    waits = "import time\ndef all_reduce():\n    time.sleep(600)\n"
    (library / "distributed_c10d.py").write_text(waits, encoding="utf-8")
    (folder / "train.py").write_text(NAMED, encoding="utf-8")
    rank = f"RANK=\\$SLURM_PROCID exec {sys.executable} {folder}/train.py"
    lines = [
        f"cd {folder}", f"export FOLDER={folder} HOLDFAST_STALL_FLOOR=3s MY_API_KEY=hunter2",
        f"export PATH={Path(sys.executable).parent}:$PATH RECORDER={LAUNCH}",
        f"export TORCH_FR_DUMP_TEMP_FILE={folder}/rank_",
        f"export TORCH_NCCL_DEBUG_INFO_PIPE_FILE={folder}/ask_",
        f'srun --auto-resume=1 --ntasks=2 --overcommit sh -c "{rank}"', "echo code $?",
    ]  # fmt: skip
    job = cluster.submit("-N1", script="\n".join(lines))

    cluster.slurm.until(lambda: re.search("JobHangSuspected|code", cluster.output(job)))
    file = folder / f"holdfast-evidence-{job}.json"
    output = cluster.output(job)
    assert "; rank 1 on " in output, output
    assert "never entered all_reduce: it is in loads_a_batch (train.py:" in output
    assert "; flight recorder: rank 1 never entered all_reduce 31 of default_pg" in output
    assert f"; evidence: {file}; it is restarted only with HOLDFAST_HANG_TIMEOUT" in output
    kept = read_evidence(file)
    assert (kept.job, kept.verdict.ranks) == (job, (1,))
    [log] = kept.kernel
    assert log.node == kept.ranks[0].snapshot.node
    is_read = os.access("/dev/kmsg", os.R_OK)
    assert log.note == ("" if is_read else "/dev/kmsg could not be read")
    assert "hunter2" not in file.read_text(encoding="utf-8")
    cluster.slurm.run("scancel", job)


FAILS = """
import os, sys
from pathlib import Path
if sys.argv[1] == "output":
    def load():
        raise FileNotFoundError("no shard 7 in /data")
    load()
Path(os.environ["TORCHELASTIC_ERROR_FILE"]).write_text(
    '{"message": {"message": "ValueError: bad batch", "extraInfo": {"timestamp": "1"}}}'
)
sys.exit(1)
"""


def test_why_the_ranks_failed_is_reported(cluster: Supervised) -> None:
    """Of the exceptions in the output, and in the error file of torchrun, those of this step."""
    program, error_file = cluster.prefix / "fails.py", cluster.prefix / "error.json"
    program.write_text(FAILS, encoding="utf-8")
    error_file.write_text('{"message": "OSError: of an earlier step"}', encoding="utf-8")
    command = f"srun --auto-resume=1 {sys.executable} {program}"
    before = "echo 'Traceback (most recent call last):'; echo 'KeyError: of the script'"
    lines = [before, f"{command} output", f"export TORCHELASTIC_ERROR_FILE={error_file}"]
    job = cluster.submit("-N1", script="\n".join([*lines, f"{command} output", f"{command} file"]))

    said = [line for line in cluster.ended(job).splitlines() if "not resumed" in line]

    no_fault = "not resumed: no node of the step has a fault; the ranks failed with: "
    assert [line.split(no_fault)[-1] for line in said] == [
        "FileNotFoundError: no shard 7 in /data",
        "FileNotFoundError: no shard 7 in /data",
        "ValueError: bad batch",
    ]
