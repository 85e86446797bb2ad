"""What the controller knows of a job reaches the job's output and its Comment."""

import pytest
from slurm_fleet_at_work import REPLACE_XID, Fleet, on_both_versions

from holdfast.adapters.slurm.commands.comment import parse
from holdfast.adapters.slurm.jobs.advice import stop_message
from holdfast.model.jobs import Failure, FailureKind
from holdfast.model.names import Reason
from tests.ports.builders import NOW, a_job

SPENT = "no hardware retries allowed"


@pytest.mark.parametrize(
    ("kind", "used", "step", "says"),
    [
        (FailureKind.HARDWARE, 0, None, "; job restarting: hardware retries 1 of 2"),
        (FailureKind.REQUESTED, 2, None, "; job restarting: hardware retries 2 of 2"),
        (
            FailureKind.HARDWARE,
            2,
            None,
            "; job cancelled: hardware retries exhausted (2 of 2)",
        ),
        (
            FailureKind.APPLICATION,
            0,
            None,
            "; job cancelled: no application retries allowed",
        ),
        (FailureKind.HARDWARE, 0, 7, "; job cancelled: no progress: 3 failures in a row"),
    ],
)
def test_the_message_of_a_stop_says_why_and_what_follows(kind, used, step, says) -> None:
    job = a_job(
        spec={"max_retries": 2, "max_app_retries": 0, "needs_progress": True},
        record={"hardware_retries": used, "best_step": step, "same_step_failures": 2},
    )
    failure = Failure(
        kind=kind, reason="Cause", at=NOW, node="node-2", evidence="it broke", step=step
    )

    message = stop_message(job, failure)

    assert message.startswith("attempt 1 stopped: Cause on node-2: it broke;")
    assert says in message


@on_both_versions
def test_exhausted_retries_and_a_log_that_will_be_truncated_are_in_output_and_comment(
    fleet: Fleet,
) -> None:
    fleet.control(provider=fleet.by_command())
    job = fleet.run_job("-N1", "-n1", "--comment=team=a auto-resume=1 max-retry=0")
    array = fleet.slurm.submit(
        "-n1", "--array=1-2", "--comment=auto-resume=1", script="srun sleep 600"
    )
    for name, file in ((job, job), (f"{array}_1", f"{array}_1"), (f"{array}_2", f"{array}_2")):
        fleet.until(lambda file=file: "--open-mode is 'truncate'" in output(fleet, file))
        fleet.until(lambda name=name: "[holdfast: --open-mode" in comment(fleet, name))
        assert output(fleet, file).count("--open-mode is 'truncate'") == 1
        assert parse(comment(fleet, name)).auto_resume
    bad = fleet.slurm.run("squeue", "-h", "-j", job, "-o", "%N").strip()

    fleet.machines[bad].log(REPLACE_XID)

    fleet.until(lambda: fleet.slurm.jobs()[job] == "CANCELLED")
    said = output(fleet, job)
    assert f"holdfast: attempt 1 stopped: {Reason.XID_REPLACE} on {bad}" in said
    assert f"job cancelled: {SPENT}" in said
    noted = comment(fleet, job)
    assert noted.startswith(
        f"team=a auto-resume=1 max-retry=0 [holdfast: failed: {SPENT}; last failure:"
    )
    assert parse(noted).rejected == ()


def output(fleet: Fleet, job: str) -> str:
    path = fleet.slurm.folder / f"slurm-{job}.out"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def comment(fleet: Fleet, job: str) -> str:
    return fleet.slurm.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%k").strip()
