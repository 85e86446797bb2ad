"""srun --auto-resume=1 on a real Slurm cluster, in scripts as they are."""

import os
import pickle
import re
import subprocess
import zipfile
from collections.abc import Iterator

import pytest
from slurm_fleet_at_work import on_both_versions
from supervised_cluster import Supervised, own_words, supervised_cluster

from holdfast.model.errors import BackendError
from tests.engines.slurm_cluster import SlurmPrograms

LOST = "Action:Replace holdfast: NvidiaGpuXidErrorPendingReplacement"
DIAGNOSE = "Initiating communication with cluster agent to diagnose health of nodes"

HANGS_AT_FIRST = r"""
srun {options} --auto-resume=1 sh -c '
    echo attempt ${{HOLDFAST_ATTEMPT-first}} on $SLURMD_NODENAME
    [ -n "$HOLDFAST_ATTEMPT" ] || exec sleep 600
'
echo code $?
"""
"""Its ranks end by themselves when they run again."""


@pytest.fixture(scope="module")
def cluster(
    programs: SlurmPrograms, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Supervised]:
    with supervised_cluster(programs, tmp_path_factory.mktemp("supervised")) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _all_nodes_are_good(cluster: Supervised) -> Iterator[None]:
    yield
    slurm = cluster.slurm
    for job, state in slurm.jobs().items():
        if state in ("RUNNING", "PENDING"):
            slurm.run("scancel", job)
    for name, machine in slurm.machines.items():
        if not machine.is_on:
            machine.boot()
        slurm.until(lambda name=name: "NOT_RESPONDING" not in slurm.state(name))
        if slurm.state(name) & {"FAIL", "DOWN", "DRAIN"}:
            cluster.update(name, state="resume")
    slurm.until(lambda: all(slurm.state(name) == {"IDLE"} for name in slurm.machines))


@on_both_versions
def test_the_option_is_0_or_1_and_known_to_srun_sbatch_and_salloc(cluster: Supervised) -> None:
    slurm = cluster.slurm
    for program in ("srun", "sbatch", "salloc"):
        assert "--auto-resume=0|1" in slurm.run(program, "--help")
        for value in ("x", "2", "", "-1"):
            what = "--wrap=true" if program == "sbatch" else "true"
            with pytest.raises(BackendError, match="--auto-resume is 1 to resume the job"):
                slurm.run(program, f"--auto-resume={value}", what)


@on_both_versions
def test_a_step_without_a_fault_is_as_if_there_were_no_supervisor(cluster: Supervised) -> None:
    slurm = cluster.slurm
    plain = cluster.submit("-N2", script="""
        echo in put | srun --auto-resume=1 -N1 cat
        srun --auto-resume=1 -N1 sh -c 'printf "%s," "$@"; echo' sh 'a b' --auto-resume=0 ''
        srun --auto-resume=1 -N2 -l sh -c 'echo ranks have $AUTO_RESUME' 2>/dev/null
        srun --auto-resume=1 -N1 sh -c 'exit 7' 2>/dev/null
        echo code $?
        srun --auto-resume=1 -N1 sh -c 'kill -9 $$' 2>/dev/null
        echo code $?
        srun --auto-resume=1 -N2 sh -c '[ $SLURM_PROCID = 0 ] && exit 4; exec sleep 600' 2>/dev/null
        echo code $?
        srun --auto-resume=0 -N1 false 2>/dev/null
        echo code $?
    """)  # fmt: skip
    of_script = cluster.submit("-N1", "--auto-resume=1", "--comment=team=a", script="""
        echo script has ${AUTO_RESUME-nothing}
        srun sh -c 'echo ranks have $AUTO_RESUME for $HOLDFAST_SUPERVISED'
        srun sh -c 'echo again; exit 3'; echo code $?
    """)  # fmt: skip
    is_noted = "squeue -h -j $SLURM_JOB_ID -o %k | grep -q auto-resume"
    without_srun = cluster.submit(
        "-N1", "--auto-resume=0", '--comment={"APS": {"x": 1}}',
        script=f"until {is_noted}; do sleep 0.1; done",
    )  # fmt: skip

    ours = ("[Auto Resume]", "holdfast:")
    lines = [line for line in cluster.ended(plain).splitlines() if not line.startswith(ours)]
    assert lines[:2] == ["in put", "a b,--auto-resume=0,,"]
    assert sorted(lines[2:4]) == ["0: ranks have 1", "1: ranks have 1"]
    assert lines[4:] == ["code 7", "code 137", "code 4", "code 1"]
    assert cluster.comment(plain) == "auto-resume=1"

    output = cluster.ended(of_script)
    assert "script has nothing" in output
    assert f"ranks have 1 for {of_script}" in output
    assert "code 3" in output
    assert own_words(output).count(DIAGNOSE) == 1
    assert own_words(output)[-1] == (
        f"Response from cluster agent: JobId={of_script}, ResumeAction=NONE"
    )
    assert cluster.comment(of_script) == "team=a auto-resume=1"
    cluster.ended(without_srun)
    assert cluster.comment(without_srun) == '{"APS": {"x": 1}, "holdfast": {"auto-resume": "0"}}'
    assert slurm.jobs()[plain] == "COMPLETED"


GUIDE = r"""
AUTO_RESUME=""
if [ -d "{prefix}/opt/sagemaker_cluster" ]; then
    echo "Detected Hyperpod cluster.. enabling --auto-resume=1"
    AUTO_RESUME="--auto-resume=1"
fi
srun ${{AUTO_RESUME}} -l sh -c 'echo training'
"""


def test_the_guides_script_finds_its_directory_and_runs_supervised(cluster: Supervised) -> None:
    job = cluster.submit("-N2", "--exclusive", script=GUIDE.format(prefix=cluster.prefix))

    output = cluster.ended(job)

    assert "enabling --auto-resume=1" in output
    assert "0: training" in output
    assert "1: training" in output
    assert cluster.comment(job) == "auto-resume=1"


def test_a_slip_in_plugstack_conf_ends_no_step(cluster: Supervised) -> None:
    before = cluster.plugstack.read_text(encoding="utf-8")
    cluster.plugstack.write_text(before.replace("--grace=1s", "--grace=1"), encoding="utf-8")
    try:
        job = cluster.submit("-N1", "--auto-resume=1", script="srun echo ran")
        output = cluster.ended(job)
    finally:
        cluster.plugstack.write_text(before, encoding="utf-8")

    assert "ran\n" in output
    assert output.count("argument --grace: '1' is not a duration") == 1
    assert "this step runs without auto-resume" in output
    assert cluster.slurm.jobs()[job] == "COMPLETED"


def test_the_task_that_has_the_number_of_its_array_is_not_taken_for_another(
    cluster: Supervised,
) -> None:
    others_first = "while squeue -h -j $SLURM_ARRAY_JOB_ID | grep -q _0; do sleep 0.1; done"

    array = cluster.submit(
        "-n1", "--array=0-1",
        script=f"[ $SLURM_ARRAY_TASK_ID = 0 ] && exit; {others_first}; srun --auto-resume=1 true",
    )  # fmt: skip

    cluster.slurm.until(lambda: "auto-resume=1" in cluster.comment(f"{array}_1"))
    assert cluster.comment(f"{array}_0") == "(null)"


def test_in_salloc_steps_are_supervised_and_alone_srun_says_that_it_is_not(
    cluster: Supervised,
) -> None:
    slurm = cluster.slurm

    inside = slurm.run("salloc", "-N1", "--auto-resume=1", "srun", "sh", "-c",
                       "echo $AUTO_RESUME $HOLDFAST_SUPERVISED")  # fmt: skip
    alone = subprocess.run(
        ["srun", "-N1", "--auto-resume=1", "echo", "ran"], env=slurm.environment,
        capture_output=True, check=True, encoding="utf-8", timeout=30,
    )  # fmt: skip

    assert inside.split()[0] == "1"
    assert inside.split()[1] in slurm.jobs()
    assert alone.stdout == "ran\n"
    assert "has no effect on srun alone" in alone.stderr


def test_the_shell_of_salloc_on_a_node_has_no_supervisor_and_its_steps_have_one(
    cluster: Supervised,
) -> None:
    shell = r"""
        echo "shell [$AUTO_RESUME] [$HOLDFAST_SUPERVISED]"
        srun sh -c 'echo "rank [$AUTO_RESUME] [$HOLDFAST_SUPERVISED]"'
    """

    said = cluster.slurm.run("salloc", "-N1", "--auto-resume=1",
                             "srun", "--interactive", "sh", "-c", shell)  # fmt: skip

    assert re.fullmatch(r"shell \[\] \[\]\nrank \[1\] \[\d+\]\n", said)


def test_a_step_goes_on_within_its_allocation_while_a_node_is_down_or_fails(
    cluster: Supervised,
) -> None:
    slurm = cluster.slurm
    script = HANGS_AT_FIRST.format(options="-N2 --gres=gpu:1")
    dies = cluster.submit("-N3", "--no-kill", "--gres=gpu:1", "--comment=mode=step", script=script)
    cluster.until_said(dies, "TaskID: 0 process_task_init")
    names = slurm.run("squeue", "-h", "-j", dies, "-o", "%N").strip()
    first, bad, spare = slurm.run("scontrol", "show", "hostnames", names).split()
    cluster.until_said(dies, f"attempt first on {bad}")

    slurm.machines[bad].power_off()

    output = cluster.ended(dies)
    assert f"attempt 1 on {first}" in output
    assert f"attempt 1 on {spare}" in output
    assert "code 0" in output
    assert own_words(output)[1:7] == [
        DIAGNOSE,
        f"Response from cluster agent: JobId={dies}, ResumeAction=RETRYSTEP",
        "Job failed - replacing nodes",
        "Job failed - Droping unhealthy nodes",
        f"Updating to new node list {first},{spare}",
        "Retrying step. Attempt number: 1",
    ]
    assert cluster.restarts(dies) == 0


@on_both_versions
def test_ranks_that_hang_on_a_node_that_fails_are_ended_and_run_again(
    cluster: Supervised,
) -> None:
    job = cluster.submit("-N3", "--gres=gpu:2", "--comment=mode=step",
                         script=HANGS_AT_FIRST.format(options="-N2"))  # fmt: skip
    cluster.until_said(job, "TaskID: 0 process_task_init")
    cluster.update("node2", state="fail", reason=f"{LOST} (deferred)")
    cluster.until_said(job, "attempt first on node2")

    cluster.update("node2", state="fail", reason=LOST)

    output = cluster.ended(job)
    assert f"cancelled: node2: FAIL ({LOST})" in output
    assert "deferred" not in output
    assert "attempt 1 on node3" in output
    assert "code 0" in output
    assert cluster.restarts(job) == 0


@on_both_versions
def test_a_step_goes_on_when_the_same_node_is_back(cluster: Supervised) -> None:
    job = cluster.submit("-N2", "--gres=gpu:2", "--comment=mode=swap max-retry=1",
                         script=HANGS_AT_FIRST.format(options=""))  # fmt: skip
    cluster.until_said(job, "TaskID: 0 process_task_init")
    cluster.until_said(job, "attempt first on node2")
    cluster.update("node2", state="fail", reason=LOST)
    cluster.until_said(job, "Job failed - replacing nodes")

    cluster.slurm.machines["node2"].renew()
    cluster.update("node2", state="resume")

    output = cluster.ended(job)
    assert "attempt 1 on node1" in output
    assert "attempt 1 on node2" in output
    assert "code 0" in output
    assert cluster.restarts(job) == 0


@on_both_versions
def test_bad_nodes_are_exchanged_where_slurm_lets_a_job_do_that_for_sure(
    cluster: Supervised, programs: SlurmPrograms
) -> None:
    """Not with GRES, and on 22.05 without slurmdbd not at all: then the job is requeued."""
    slurm = cluster.slurm
    jobs = {
        what: cluster.submit("-N2", f"--gres={gres}", "--comment=mode=resize",
                             script=HANGS_AT_FIRST.format(options=""))
        for what, gres in (("plain", "none"), ("gpus", "gpu:1"))
    }  # fmt: skip
    for job in jobs.values():
        cluster.until_said(job, "attempt first on node2")

    cluster.update("node2", state="fail", reason=LOST)

    output = {what: cluster.ended(job) for what, job in jobs.items()}
    assert "exchange of nodes failed: it has GRES (gpu:h100:" in output["gpus"]
    assert output["gpus"].count("attempt 1000 on") == 2
    if programs.is_old:
        assert "without slurmdbd" in output["plain"]
        assert output["plain"].count("attempt 1000 on") == 2
    else:
        words = [one for one in own_words(output["plain"]) if "process_task_init" not in one]
        assert words[-4:-2] == ["Job Expansion complete", "Job failed - Droping unhealthy nodes"]
        assert words[-1] == "Retrying step. Attempt number: 1"
        assert "attempt 1 on node1" in output["plain"]
        assert output["plain"].count("attempt 1 on") == 2
        assert "attempt 1 on node2" not in output["plain"]
        assert cluster.restarts(jobs["plain"]) == 0
    assert [state for state in slurm.jobs().values() if state == "RUNNING"] == []


def test_where_nothing_else_helps_the_job_is_requeued_without_a_controller(
    cluster: Supervised,
) -> None:
    """Its batch host has the fault; and a job of the mode requeue; side by side."""
    slurm = cluster.slurm
    jobs = {}
    for mode in ("step", "requeue"):
        jobs[mode] = cluster.submit(
            "-N1", "--exclusive", f"--comment=mode={mode}", script=HANGS_AT_FIRST.format(options="")
        )
        cluster.until_said(jobs[mode], "TaskID: 0 process_task_init")
    nodes = {job: slurm.run("squeue", "-h", "-j", job, "-o", "%N").strip() for job in jobs.values()}
    for job, name in nodes.items():
        cluster.until_said(job, "attempt first")
        cluster.update(name, state="fail", reason=LOST)
    slurm.run("scancel", f"{jobs['requeue']}.0")  # as if its ranks had died of the fault

    for job in jobs.values():
        output = cluster.ended(job)
        assert "no response from the controller; requeueing it directly" in output
        assert "attempt 1000 on" in output
        assert "code 0" in output
        assert cluster.restarts(job) == 1
        assert "requeue-request=requeue:0:" in cluster.comment(job)
        assert nodes[job] not in output.split("attempt 1000 on")[1]


def test_what_cannot_be_requeued_ends_with_the_code_of_its_step(cluster: Supervised) -> None:
    script = "srun --auto-resume=1 sh -c 'sleep 1; exit 9'; echo code $?"
    job = cluster.submit("-N1", "--no-requeue", script=script)
    cluster.until_said(job, "process_task_init")
    cluster.update("node1", state="fail", reason=LOST)

    output = cluster.ended(job)

    assert "; submit it with sbatch --requeue" in output
    assert "code 9" in output


def test_a_job_whose_owner_disables_auto_resume_is_not_resumed(cluster: Supervised) -> None:
    script = "srun --auto-resume=1 sh -c 'sleep 2; exit 9'; echo code $?"
    job = cluster.submit("-N1", script=script)
    cluster.until_said(job, "process_task_init")
    cluster.slurm.run("scontrol", "update", f"jobid={job}", "comment=auto-resume=0")
    node = cluster.slurm.run("squeue", "-h", "-j", job, "-o", "%N").strip()
    cluster.update(node, state="fail", reason=LOST)

    output = cluster.ended(job)

    assert "not resumed: its Comment has auto-resume=0" in output
    assert "code 9" in output
    assert cluster.restarts(job) == 0


def test_a_step_that_a_requeue_ended_is_not_reported_as_not_resumed(
    cluster: Supervised,
) -> None:
    script = "SLURM_RESTART_COUNT=1 srun --auto-resume=1 false; echo code $?"  # as if of before
    output = cluster.ended(cluster.submit("-N1", script=script))

    assert "code 1" in output
    assert not re.search("not resumed|ResumeAction=NONE", output)


def test_whoever_ends_srun_ends_the_step_for_good(cluster: Supervised) -> None:
    job = cluster.submit("-N1", script="""
        srun --auto-resume=1 sh -c 'echo attempt; exec sleep 600' &
        while ! grep -q attempt slurm-$SLURM_JOB_ID.out; do sleep .1; done
        scontrol update nodename=$SLURMD_NODENAME state=fail reason=Action:Replace
        kill -TERM $!
        wait $!
        echo code $?
    """)  # fmt: skip

    output = cluster.ended(job)

    assert "code 137" in output  # srun kills its ranks then
    assert output.count("attempt") == 1
    assert DIAGNOSE not in output


def test_a_restart_of_slurmctld_does_not_disturb_a_step(cluster: Supervised) -> None:
    script = "srun --auto-resume=1 sh -c 'sleep 2; exit 5'; echo code $?"
    job = cluster.submit("-N1", "--comment=mode=step", script=script)
    cluster.until_said(job, "process_task_init")

    cluster.slurm.stop_controller()
    cluster.slurm.start_controller()

    assert "code 5" in cluster.ended(job)


def test_a_checkpoint_that_was_cut_off_is_put_aside_before_the_step_begins(
    cluster: Supervised,
) -> None:
    folder = cluster.prefix / "checkpoints"
    for number in (1, 2):
        rank = folder / f"iter_000000{number}/mp_rank_00"
        rank.mkdir(parents=True)
        with zipfile.ZipFile(rank / "model_optim_rng.pt", "w") as file:
            file.writestr("archive/data.pkl", pickle.dumps(number, protocol=2))
    os.truncate(rank / "model_optim_rng.pt", 0)
    tracker = folder / "latest_checkpointed_iteration.txt"
    tracker.write_text("2", encoding="utf-8")

    job = cluster.submit("-N1", f"--comment=checkpoint={folder}",
                         script=f"srun --auto-resume=1 true; cat {tracker}")  # fmt: skip

    output = cluster.ended(job)
    assert (
        "iter_0000002 is incomplete: mp_rank_00/model_optim_rng.pt is empty; moved to"
        f" {folder}.set-aside/iter_0000002"
    ) in output
    assert "latest_checkpointed_iteration.txt (was '2') was set to iter_0000001" in output
    assert output.splitlines()[-1] == "1"
    assert (cluster.prefix / "checkpoints.set-aside/iter_0000002").is_dir()
    assert not (folder / "iter_0000002").exists()
