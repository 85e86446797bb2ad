"""From what Slurm says of a job to what the core gets to see."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.adapters.slurm.commands.comment import CommentRequest, parse
from holdfast.adapters.slurm.commands.job_text import BatchJob
from holdfast.adapters.slurm.commands.node_text import NodeFacts
from holdfast.adapters.slurm.commands.reasons import parse_reason
from holdfast.adapters.slurm.jobs.supervisor_reports import slow_job
from holdfast.adapters.slurm.jobs.views import (
    GIVEN_UP,
    TIMEOUT,
    Case,
    JobDefaults,
    Run,
    auto_resumes,
    deleted_view,
    is_reused,
    job_view,
    run_of,
)
from holdfast.adapters.slurm.nodes.node_state import NodeState
from holdfast.adapters.slurm.nodes.state import RememberedJob
from holdfast.adapters.slurm.settings import RequeueJobs
from holdfast.model.job_views import JobView
from holdfast.model.jobs import Failure, FailureKind, JobPhase, JobRecord
from holdfast.model.nodes import NodeRecord, Phase
from tests.ports.builders import NOW, a_remediation

RESUMED = CommentRequest(auto_resume=True)
STEP = parse("auto-resume=1 mode=step")
DEFAULTS = JobDefaults(
    max_retries=4, kill_wait=timedelta(seconds=3), off_after=timedelta(minutes=2)
)
SLURMD = "boot1/start1"
SEC = timedelta(seconds=1)


def a_job(state: str = "RUNNING", **changes: object) -> BatchJob:
    has_nodes = state in ("RUNNING", "COMPLETING", "CONFIGURING", "FAILED", "NODE_FAIL")
    job = BatchJob(
        id="7", number="7", state=state, why="", restarts=1, can_requeue=True, is_batch=True,
        eligible_at=None, started_at=NOW if has_nodes else None, wants=2,
        nodes=("a", "b") if has_nodes else (),
        pinned="", user="ann", partition="dev", reservation="", exit_status=0, comment="",
    )  # fmt: skip
    return replace(job, **changes)  # type: ignore[arg-type]


def a_node(
    *state: str,
    slurmd: str = SLURMD,
    record: NodeRecord | None = None,
    reason: str = "",
    reason_set: str = "",
) -> NodeState:
    flags = frozenset(state or ("IDLE",))
    facts = NodeFacts("a", flags, parse_reason(reason), reason_set, slurmd=slurmd)
    return NodeState(
        facts=facts, record=record or NodeRecord(phase=Phase.SCHEDULABLE, phase_since=NOW)
    )


def a_record(phase: JobPhase, **changes: object) -> JobRecord:
    failure = Failure(kind=FailureKind.HARDWARE, reason="x", at=NOW, node="a")
    record = JobRecord(
        phase=phase, phase_since=NOW, attempt=2, placement=("a", "b"), started_at=NOW,
        failure=failure if phase in (JobPhase.STOPPING, JobPhase.WAITING) else None,
    )  # fmt: skip
    return replace(record, **changes)  # type: ignore[arg-type]


def remembered(phase: JobPhase, restarts: int = 1, user: str = "ann") -> RememberedJob:
    return RememberedJob(
        record=a_record(phase), user=user, restarts=restarts, machines={"a": SLURMD, "b": SLURMD}
    )


def view(
    job: BatchJob,
    phase: JobPhase,
    *,
    comment_request: CommentRequest = RESUMED,
    at: timedelta = 60 * SEC,
    **nodes: NodeState,
) -> JobView:
    case = Case(
        job=job, request=comment_request, run=Run(record=a_record(phase), restarts=1),
        machines={"a": SLURMD, "b": SLURMD},
        nodes={"a": a_node(), "b": a_node(), **nodes},
    )  # fmt: skip
    return job_view(case, DEFAULTS, None, None, NOW + at)


# Which jobs, and in which attempt


@pytest.mark.parametrize(
    ("job", "comment_request", "setting", "resumes"),
    [
        (a_job(), RESUMED, RequeueJobs.NONE, True),
        (a_job(), CommentRequest(), RequeueJobs.NONE, False),
        (a_job(), CommentRequest(), RequeueJobs.ALL, True),
        (a_job(can_requeue=False), CommentRequest(), RequeueJobs.ALL, False),
        (a_job(can_requeue=False), RESUMED, RequeueJobs.NONE, True),
        (a_job(), CommentRequest(auto_resume=False), RequeueJobs.ALL, False),
        (a_job(is_batch=False), RESUMED, RequeueJobs.ALL, False),
    ],
)
def test_only_batch_jobs_that_want_it_are_resumed(job, comment_request, setting, resumes) -> None:
    assert auto_resumes(job, comment_request, setting) is resumes


@pytest.mark.parametrize(
    ("job", "comment_request", "known", "phase", "attempt", "restarts"),
    [
        # begun by its owner
        (a_job(restarts=0), RESUMED, None, JobPhase.STARTING, 1, 0),
        (a_job("CONFIGURING", restarts=0), RESUMED, None, JobPhase.STARTING, 1, 0),
        # requeued by Slurm before anybody looked
        (a_job("PENDING", why="BeginTime"), RESUMED, None, JobPhase.STARTING, 1, 0),
        (a_job("PENDING", why="BeginTime"), STEP, None, JobPhase.STARTING, 1, 0),
        # ours
        (a_job(), RESUMED, remembered(JobPhase.RUNNING), JobPhase.RUNNING, 2, 1),
        (
            a_job("PENDING", restarts=2),
            RESUMED,
            remembered(JobPhase.WAITING),
            JobPhase.WAITING,
            2,
            1,
        ),
        (a_job("PENDING", restarts=2), STEP, remembered(JobPhase.RUNNING), JobPhase.RUNNING, 2, 1),
        (a_job(), STEP, remembered(JobPhase.STARTING), JobPhase.STARTING, 2, 1),
        # started anew by others
        (a_job(restarts=2), RESUMED, remembered(JobPhase.RUNNING), JobPhase.STARTING, 3, 2),
        (a_job(restarts=2), RESUMED, remembered(JobPhase.WAITING), JobPhase.STARTING, 3, 2),
        (a_job(restarts=2), RESUMED, remembered(JobPhase.FAILED), JobPhase.STARTING, 3, 2),
        # another job of the same number
        (
            a_job(restarts=0),
            RESUMED,
            remembered(JobPhase.RUNNING, user="bob"),
            JobPhase.STARTING,
            1,
            0,
        ),
    ],
)
def test_a_job_is_in_the_attempt_that_it_runs_in(
    job, comment_request, known, phase, attempt, restarts
) -> None:
    run = run_of(job, comment_request, known, NOW)

    assert run is not None
    assert (run.record.phase, run.record.attempt, run.restarts) == (phase, attempt, restarts)


@pytest.mark.parametrize(
    ("phase", "kind", "hardware", "application", "ended"),
    [
        # Slurm started it while no controller ran that could hold it
        (JobPhase.STOPPING, FailureKind.HARDWARE, 2, 0, [2]),
        (JobPhase.STOPPING, FailureKind.APPLICATION, 1, 1, [2]),
        # counted when it was stopped
        (JobPhase.WAITING, FailureKind.HARDWARE, 1, 0, []),
        # requeued by a person
        (JobPhase.RUNNING, None, 1, 0, []),
    ],
)
def test_a_restart_of_a_job_that_is_being_stopped_counts_whoever_starts_it(
    phase, kind, hardware, application, ended
) -> None:
    failure = None if kind is None else Failure(kind=kind, reason="x", at=NOW, node="a")
    record = a_record(phase, failure=failure, hardware_retries=1)
    known = replace(remembered(phase), record=record)

    run = run_of(a_job(restarts=2), RESUMED, known, NOW)

    assert run is not None
    after = run.record
    assert (after.phase, after.attempt) == (JobPhase.STARTING, 3)
    assert (after.hardware_retries, after.app_retries) == (hardware, application)
    assert [one.attempt for one in after.attempts] == ended


@pytest.mark.parametrize(
    ("job", "comment_request", "known"),
    [
        (a_job("PENDING", restarts=0), RESUMED, None),
        (a_job("PENDING", why="Resources"), RESUMED, None),
        (a_job("COMPLETING"), RESUMED, None),
        (a_job("COMPLETED"), RESUMED, None),
        (a_job(), STEP, None),
        (a_job(), STEP, remembered(JobPhase.RUNNING)),
        (a_job(), RESUMED, remembered(JobPhase.FAILED)),
        (a_job("FAILED"), RESUMED, remembered(JobPhase.FAILED)),
        (a_job("COMPLETED", restarts=2), RESUMED, remembered(JobPhase.FAILED)),
        # requeued by its owner, after it had failed for good
        (a_job("PENDING", restarts=2, why="BeginTime"), RESUMED, remembered(JobPhase.FAILED)),
    ],
)
def test_others_are_left_alone(job, comment_request, known) -> None:
    assert run_of(job, comment_request, known, NOW) is None


def test_a_supervisor_that_asks_hands_its_job_over() -> None:
    asks = parse("auto-resume=1 mode=step requeue-request=requeue")

    assert run_of(a_job(), asks, None, NOW) is not None
    seen = view(a_job(), JobPhase.RUNNING, comment_request=asks)
    assert [(one.is_lost, one.is_evicted) for one in seen.ranks] == [(True, False)]


@pytest.mark.parametrize(
    ("job", "is_other"),
    [
        ({"submitted_at": NOW - SEC}, False),
        ({"submitted_at": NOW + 60 * SEC}, False),
        ({"submitted_at": NOW + 61 * SEC}, True),
        ({"submitted_at": NOW + 61 * SEC, "restarts": 0}, True),
        ({"submitted_at": NOW - SEC, "restarts": 0}, False),  # slurmctld has forgotten a requeue
        ({"submitted_at": NOW + 61 * SEC, "restarts": 2}, False),
        ({"submitted_at": None}, False),
        ({"submitted_at": NOW - SEC, "user": "bob"}, True),
    ],
)
@pytest.mark.parametrize("phase", [JobPhase.RUNNING, JobPhase.FAILED])
def test_a_number_that_was_given_again_is_reported_by_the_time_of_the_submission(
    phase, job, is_other
) -> None:
    assert is_reused(a_job(**job), remembered(phase)) is is_other


def test_a_job_is_still_the_same_after_its_record_was_dated_back() -> None:
    """It was submitted and started while the clock was ahead."""
    ahead = NOW + timedelta(hours=3)
    record = a_record(JobPhase.STOPPING, phase_since=NOW, started_at=ahead)
    known = replace(remembered(JobPhase.STOPPING), record=record)

    assert not is_reused(a_job(submitted_at=ahead - SEC, restarts=known.restarts), known)


# While it runs


def test_a_job_that_runs_has_a_rank_on_each_node() -> None:
    seen = view(a_job(), JobPhase.RUNNING)

    assert [(one.rank, one.node, one.exit_code) for one in seen.ranks] == [
        (0, "a", None), (1, "b", None),
    ]  # fmt: skip
    assert (seen.spec.nodes, seen.spec.max_retries, seen.spec.max_app_retries) == (2, 4, 0)
    assert seen.spec.grace == DEFAULTS.kill_wait + TIMEOUT
    assert seen.record.placement == ("a", "b")
    assert (
        view(a_job(), JobPhase.RUNNING, comment_request=parse("max-retry=0")).spec.max_retries == 0
    )


def test_nodes_that_nobody_looks_after_do_not_count_unless_they_are_gone() -> None:
    alone = NodeState(facts=a_node().facts, record=None)
    gone = NodeState(facts=None, record=None)

    assert view(a_job(), JobPhase.RUNNING, b=alone).record.placement == ("a",)
    assert view(a_job(), JobPhase.RUNNING, b=gone).record.placement == ("a", "b")


@pytest.mark.parametrize("job", [a_job("COMPLETING"), a_job("CONFIGURING"), a_job("PENDING")])
def test_what_has_no_ranks_is_waited_for(job: BatchJob) -> None:
    phase = JobPhase.STARTING if job.state == "PENDING" else JobPhase.RUNNING
    seen = view(job, phase)

    assert (seen.ranks, seen.ending) == ((), None)


@pytest.mark.parametrize("state", ["PENDING", "COMPLETING"])
@pytest.mark.parametrize(
    ("b", "is_lost"),
    [
        (a_node(), False),
        (a_node("IDLE", "NOT_RESPONDING"), True),
        (a_node("DOWN"), True),
        (a_node(slurmd="boot2/start2"), True),
        (a_node(slurmd="boot1/start2"), False),
        (a_node(slurmd="/"), False),
        (NodeState(facts=None, record=None), True),
    ],
)
def test_a_requeue_by_others_costs_a_retry_if_a_node_was_lost(state, b, is_lost) -> None:
    (rank,) = view(a_job(state, restarts=2), JobPhase.RUNNING, b=b).ranks

    assert (rank.is_lost, rank.is_evicted) == (is_lost, not is_lost)
    assert rank.node == ("b" if is_lost else "a")


@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "COMPLETING", "FAILED"])
@pytest.mark.parametrize("reason", ["broken fan", "Action:Replace"])
def test_a_node_that_a_person_takes_down_is_not_lost_and_costs_nothing(state, reason) -> None:
    down = a_node("DOWN", reason=reason, reason_set="ann@2026-11-21T03:59:18")
    job = a_job(state, restarts=1 if state == "RUNNING" else 2, why="NodeDown")
    requested = parse("auto-resume=1 requeue-request=requeue:1:1763837400")
    comment_request = requested if state in ("RUNNING", "PENDING", "COMPLETING") else RESUMED

    if state == "FAILED":
        job = replace(job, state="NODE_FAIL")
    (rank,) = view(job, JobPhase.RUNNING, comment_request=comment_request, b=down).ranks

    assert (rank.node, rank.is_lost, rank.is_evicted) == ("b", False, True)
    assert rank.reason.endswith(f"; ann set it to DOWN in Slurm: {reason}")


@pytest.mark.parametrize("state", ["PENDING", "COMPLETING"])
def test_a_requeue_that_the_supervisor_made_itself_costs_a_retry(state) -> None:
    """As the controller was away for longer than its timeout."""
    requested = parse("auto-resume=1 requeue-request=requeue:1:1763837400")

    (rank,) = view(
        a_job(state, restarts=2), JobPhase.RUNNING, comment_request=requested, b=a_node("FAIL")
    ).ranks

    assert (rank.node, rank.is_lost, rank.is_evicted) == ("b", True, False)
    assert rank.ended_at == datetime.fromtimestamp(1763837400, UTC)


def test_a_request_of_an_earlier_run_is_no_request_of_this_one() -> None:
    stale = parse("auto-resume=1 requeue-request=requeue:0:1763837400")

    seen = view(a_job(), JobPhase.RUNNING, comment_request=stale)
    assert [one.exit_code for one in seen.ranks] == [
        None, None,
    ]  # fmt: skip


def test_a_run_that_slurmctld_forgot_is_over() -> None:
    assert view(a_job("PENDING"), JobPhase.RUNNING).ranks[0].is_evicted


def test_a_program_that_failed_is_judged_and_slurms_own_failures_are_not_its() -> None:
    (failed,) = view(a_job("FAILED", exit_status=3 << 8), JobPhase.RUNNING).ranks
    assert (failed.exit_code, failed.is_lost) == (3, False)
    (dead,) = view(a_job("NODE_FAIL"), JobPhase.RUNNING).ranks
    (unlaunched,) = view(a_job("FAILED", why="JobLaunchFailure"), JobPhase.RUNNING).ranks
    assert dead.is_lost
    assert unlaunched.is_lost


@pytest.mark.parametrize(
    ("job", "outcome"),
    [
        (a_job("COMPLETED"), JobPhase.SUCCEEDED),
        (a_job("CANCELLED"), JobPhase.CANCELLED),
        (a_job("TIMEOUT"), JobPhase.FAILED),
        (a_job("OUT_OF_MEMORY"), JobPhase.FAILED),
        (a_job("FAILED", can_requeue=False), JobPhase.FAILED),
        (a_job("NODE_FAIL", can_requeue=False), JobPhase.FAILED),
    ],
)
@pytest.mark.parametrize("phase", [JobPhase.RUNNING, JobPhase.STOPPING, JobPhase.WAITING])
def test_slurms_word_for_the_end_is_the_end(job, outcome, phase) -> None:
    ending = view(job, phase).ending

    assert ending is not None
    assert ending.outcome is outcome
    assert job.state in ending.reason


def test_a_job_that_slurm_forgot_has_failed() -> None:
    ending = deleted_view("7", a_record(JobPhase.RUNNING)).ending
    assert ending is not None
    assert ending.outcome is JobPhase.FAILED


# While it is held: where something of it may run


@pytest.mark.parametrize(
    ("job", "seen"), [(a_job(), False), (a_job("COMPLETING"), False), (a_job("PENDING"), True)]
)
def test_a_stop_is_seen_when_the_job_waits_again(job, seen) -> None:
    assert view(job, JobPhase.STOPPING).is_stop_seen is seen


def test_a_job_that_died_is_let_go_only_when_it_waits_in_the_queue_again() -> None:
    assert view(a_job("FAILED"), JobPhase.STOPPING).is_stop_seen
    assert not view(a_job("FAILED"), JobPhase.WAITING).is_stop_seen
    assert view(a_job("PENDING", restarts=2), JobPhase.WAITING).is_stop_seen


def where(job: BatchJob, at: timedelta = 60 * SEC, **nodes: NodeState) -> list[tuple[str, bool]]:
    seen = view(job, JobPhase.STOPPING, at=at, **nodes)
    return [(one.node, one.is_fenced) for one in seen.ranks]


def ordered(ago: timedelta) -> NodeRecord:
    remediation = a_remediation(ordered_at=NOW - ago)
    return NodeRecord(phase=Phase.REPLACING, phase_since=NOW, remediation=remediation)


@pytest.mark.parametrize(
    ("b", "may_run"),
    [
        (a_node(), False),
        (a_node("DOWN"), False),
        (a_node("IDLE", "NOT_RESPONDING"), True),
        (a_node("DOWN", "NOT_RESPONDING"), True),
        (a_node("DOWN", "NOT_RESPONDING", slurmd="/"), True),
        (a_node("UNKNOWN", slurmd="/"), True),
        (a_node("DOWN", "REBOOT_ISSUED"), True),
        (a_node("IDLE", "POWERING_DOWN"), True),
        (a_node("IDLE", "POWERED_DOWN"), False),
        (a_node("DOWN", "NOT_RESPONDING", slurmd="boot2/start2"), False),
        (a_node("DOWN", "NOT_RESPONDING", slurmd="boot1/start2"), False),
        (NodeState(facts=None, record=None), False),
        (a_node("DOWN", "NOT_RESPONDING", record=ordered(59 * SEC)), True),
        (a_node("DOWN", "NOT_RESPONDING", record=ordered(60 * SEC)), False),
    ],
)
def test_a_node_that_is_not_heard_may_run_ranks_until_it_is_off(b, may_run) -> None:
    job = a_job("PENDING", restarts=2)

    assert where(job, b=b) == ([("b", False)] if may_run else [])


def test_what_slurm_waits_for_on_a_machine_that_booted_anew_will_never_come() -> None:
    job = a_job("COMPLETING", restarts=2, nodes=("a", "b"))

    assert where(job, b=a_node(slurmd="boot2/x")) == [("a", False), ("b", True)]
    assert where(job, b=a_node("DOWN", slurmd="/")) == [("a", False), ("b", False)]


def test_what_slurmctld_forgot_is_given_time_to_end() -> None:
    forgotten, requeued = a_job("PENDING", restarts=1), a_job("PENDING", restarts=2)
    over = DEFAULTS.kill_wait + GIVEN_UP

    assert [name for name, _ in where(forgotten, over - SEC)] == ["a", "b"]
    assert where(forgotten, over) == []
    assert where(requeued, SEC) == []


# what its supervisor reports of a straggler


@pytest.mark.parametrize("attempt", [1000, 1001, 1999])
def test_the_straggler_of_the_present_run_has_the_nodes_of_the_job(attempt: int) -> None:
    found = slow_job(a_job(), parse(f"straggler={attempt}:b"), NOW)

    assert found is not None
    assert (found.spec.name, found.record.phase, found.record.attempt) == (
        "job/7",
        JobPhase.RUNNING,
        attempt,
    )
    assert found.record.placement == ("a", "b")
    assert found.straggler is not None
    assert found.straggler.node == "b"


@pytest.mark.parametrize(
    ("job", "comment"),
    [
        (a_job(), "auto-resume=1"),
        (a_job(), "straggler=999:b"),
        (a_job(), "straggler=2000:b"),
        (a_job("PENDING"), "straggler=1000:b"),
        (a_job("COMPLETING"), "straggler=1000:b"),
        (a_job("COMPLETED"), "straggler=1000:b"),
    ],
)
def test_an_earlier_run_or_a_job_that_has_ended_has_no_straggler(job, comment: str) -> None:
    assert slow_job(job, parse(comment), NOW) is None
