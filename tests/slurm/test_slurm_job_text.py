"""What Slurm says of jobs and reservations is read."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.slurm.commands.job_text import (
    jobs_format,
    parse_batch_jobs,
    parse_reservations,
)
from holdfast.adapters.slurm.jobs.advice import advice

MARK = "=mark"
# As squeue 22.05 and 24.11 tell it.
TIMES = "2026-11-21T03:59:17|2026-11-21T03:59:18|2026-11-21T03:59:19|2026-11-21T04:59:19"
RUNS = f"7|7|N/A|N/A|RUNNING|None|2|1|1|{TIMES}|2|node[1-2]|node1|n1|ann|dev|HOLDFAST_7|0|"
ENDED = f"2|2|N/A|N/A|FAILED|NonZeroExitCode|0|0|1|{TIMES}|1|node1||n1|ann|dev,big|(null)|768|"
TASKS = (
    "3_[2-9%1]|3|N/A|N/A|PENDING|JobArrayTaskLimit|0|1|1|N/A|N/A|N/A|N/A|1|||n/a|ann|dev|(null)|0|"
)
TASK = (
    "3_1|5|N/A|N/A|PENDING|BeginTime|1|1|1|2026-11-21T04:09:00|2026-11-21T04:10:00|N/A|N/A|1-4"
    "|||n/a|ann|dev|(null)|15|"
)
PARTS = (
    "4+1|6|4|1|COMPLETING|None|1|1|1|N/A|N/A|N/A|N/A|1|node4||node4|ann|dev|(null)|0|",
    "4+0|4|4|0|RUNNING|None|1|1|1|N/A|N/A|N/A|N/A|2|node[2-3]||node2|ann|dev|(null)|9|",
)


def said(*records: str, comment: str = "(null)") -> str:
    return "".join(f"{record}{comment}{MARK}\n" for record in records)


def test_a_job_is_read() -> None:
    (job,) = parse_batch_jobs(said(RUNS, comment="auto-resume=1 a|b"), MARK).values()

    assert (job.id, job.state, job.restarts, job.nodes) == ("7", "RUNNING", 2, ("node1", "node2"))
    assert (job.can_requeue, job.is_batch, job.pinned, job.user) == (True, True, "node1", "ann")
    assert job.started_at == datetime(2026, 11, 21, 3, 59, 19).astimezone()
    assert (job.reservation, job.comment, job.why) == ("HOLDFAST_7", "auto-resume=1 a|b", "")
    assert (job.is_at_work, job.has_nodes, job.is_over) == (True, True, False)


def test_the_end_of_a_job_is_read() -> None:
    (job,) = parse_batch_jobs(said(ENDED), MARK).values()

    assert (job.exit_code, job.is_over, job.can_requeue, job.partition) == (3, True, False, "dev")
    for newer, code in (("3:0", 3), ("0:9", -9), ("0:0", 0)):
        (job,) = parse_batch_jobs(said(ENDED.replace("|768|", f"|{newer}|")), MARK).values()
        assert job.exit_code == code
    (task,) = parse_batch_jobs(said(TASK), MARK).values()
    assert (task.exit_code, task.wants, task.nodes) == (-15, 1, ())


def test_a_batch_job_is_one_also_after_a_launch_that_failed() -> None:
    for flag, is_batch in (("0", False), ("1", True), ("2", True)):
        record = RUNS.replace("|2|1|1|", f"|2|1|{flag}|")
        (job,) = parse_batch_jobs(said(record), MARK).values()
        assert job.is_batch is is_batch


@pytest.mark.parametrize(
    "state", ["PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "EXPEDITING"]
)
def test_a_job_that_waits_has_no_nodes(state: str) -> None:
    """Slurm 22.05 lists the nodes of the run before, if one of them was powered down."""
    (job,) = parse_batch_jobs(said(RUNS.replace("RUNNING", state)), MARK).values()

    assert (job.nodes, job.has_nodes, job.is_over) == ((), False, False)


@pytest.mark.parametrize(
    ("state", "status", "is_held"),
    [
        ("REQUEUE_HOLD", "1:0", True),
        ("REQUEUE_HOLD", "0:15", False),  # by scontrol requeuehold
        ("REQUEUE_HOLD", "0:0", False),
        ("PENDING", "1:0", False),
        ("FAILED", "1:0", False),
    ],
)
def test_a_job_that_slurm_holds_after_its_failure_is_told_from_others(
    state: str, status: str, is_held: bool
) -> None:
    record = ENDED.replace("|768|", f"|{status}|").replace("FAILED", state)
    (job,) = parse_batch_jobs(said(record), MARK).values()

    assert job.is_held_after_failure is is_held


def test_tasks_that_are_no_jobs_yet_are_left_out() -> None:
    assert [*parse_batch_jobs(said(TASKS, TASK), MARK)] == ["3_1"]


def test_the_parts_of_a_heterogeneous_job_are_one() -> None:
    (job,) = parse_batch_jobs(said(*PARTS), MARK).values()

    assert (job.id, job.state, job.wants) == ("4", "COMPLETING", 3)
    assert job.nodes == ("node2", "node3", "node4")
    assert (job.parts, job.exit_code) == (("4+0", "4+1"), -9)


@given(st.text(max_size=200))
def test_no_comment_makes_up_a_job(comment: str) -> None:
    text = said(RUNS, comment=comment.replace(MARK, ""))

    assert [*parse_batch_jobs(text, MARK)] == ["7"]


def test_a_comment_may_look_like_another_job() -> None:
    found = parse_batch_jobs(said(RUNS, comment=f"x\n{ENDED}auto-resume=1"), MARK)

    assert [*found] == ["7"]


@pytest.mark.parametrize("text", ["slurm_load_jobs error", said("7|x"), f"{RUNS}(null)"])
def test_another_answer_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="unexpected output of squeue"):
        parse_batch_jobs(text, MARK)


def test_the_format_has_the_comment_last() -> None:
    assert jobs_format(MARK).startswith("JobArrayID:|,JobID:|,")
    assert jobs_format(MARK).endswith(f",Comment:{MARK}")


def test_reservations_are_read() -> None:
    text = (
        "ReservationName=HOLDFAST_7 StartTime=2026-11-21T03:59:21 EndTime=2026-11-21T04:09:21"
        " Duration=00:10:00 Nodes=node[1-2] NodeCnt=2 Flags=FLEX,OVERLAP Users=ann\n"
        "ReservationName=empty StartTime=2026-11-21T03:59:21 EndTime=Unknown Nodes=(null)\n"
        "ReservationName=later StartTime=2027-01-01T00:00:00 EndTime=2027-01-02T00:00:00"
        " Nodes=node1 Flags=MAINT State=INACTIVE BurstBuffer=(null)\n"
    )

    found = parse_reservations(text)

    assert found["HOLDFAST_7"].nodes == ("node1", "node2")
    assert found["HOLDFAST_7"].ends_at == datetime(2026, 11, 21, 4, 9, 21).astimezone()
    assert (found["empty"].nodes, found["empty"].ends_at) == ((), None)
    assert [name for name, one in found.items() if not one.is_active] == ["later"]
    noted = text.replace(" State=INACTIVE", " State=INACTIVE Comment=a\nb\x85c", 1)
    assert parse_reservations(noted) == found
    assert parse_reservations("No reservations in the system\n") == {}
    with pytest.raises(ValueError, match="unexpected output of scontrol"):
        parse_reservations("slurm error\n")


def test_owners_are_shown_what_a_resume_would_invalidate() -> None:
    (pinned,) = parse_batch_jobs(said(RUNS), MARK).values()
    (free,) = parse_batch_jobs(said(ENDED), MARK).values()

    def reported(job, script: str, *, appends: bool = False) -> list[str]:
        return [one.key for one in advice(job, script, appends=appends)]

    assert reported(pinned, "#!/bin/sh\nsrun x\n") == ["--nodelist", "--open-mode"]
    assert reported(free, "#!/bin/sh\n#SBATCH --open-mode=append\n") == []
    assert reported(free, "#!/bin/sh\n#SBATCH -N2 --open-mode a\n") == []
    assert reported(free, "#!/bin/sh\n#SBATCH --open-mode=truncate\n") == ["--open-mode"]
    assert reported(free, "#!/bin/sh\n", appends=True) == []
    assert reported(free, "") == []
