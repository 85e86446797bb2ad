"""Root causes: what the log of a failed rank shows, and whether a restart can help."""

import hashlib
import json
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.crash_text import SHOWN_CHARS, crash_text
from holdfast.decisions.failure_lines import LINES
from holdfast.decisions.failure_signatures import PEER_CAUSES, SIGNATURES, cause_of, is_peer_failure
from holdfast.decisions.job_failures import dated
from holdfast.decisions.job_resume import ResumePolicy, decide_job
from holdfast.decisions.policy import JobPolicy, RemediationPolicy
from holdfast.decisions.rank_failures import application_failure, watched_until
from holdfast.decisions.root_cause import futile_restart
from holdfast.kit.units import one_line
from holdfast.model.actions import Finish, Retry
from holdfast.model.job_views import RankView
from holdfast.model.jobs import AttemptRecord, Failure, FailureKind, JobPhase
from holdfast.model.names import Cause, Reason
from tests.ports.builders import NOW, a_job, by_name, healthy_nodes

RECORDINGS = Path(__file__).parents[1] / "recordings" / "failures"
POLICY = JobPolicy()
TICK = timedelta(microseconds=1)
IMPORT = "ModuleNotFoundError: No module named 'apex'"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB."


def recorded(name: str) -> list[dict]:
    lines = (RECORDINGS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def found_cause(one: dict) -> Cause | None:
    return cause_of(crash_text(one["log"]), one["exit_code"])


NO_CLAIM = {None, *PEER_CAUSES, Cause.EXCEPTION, Cause.CRASHED, Cause.KILLED, Cause.TERMINATED}
"""Results that restate how a rank ended, and claim no cause."""


@pytest.mark.parametrize(
    ("name", "needed", "allowed"), [("development", 112, 0), ("held-out", 52, 2)]
)
def test_the_causes_of_public_failures_are_found(name, needed, allowed, capsys) -> None:
    rows = recorded(name)
    known = [one for one in rows if one["cause"] != "Unknown"]
    unknown = [one for one in rows if one["cause"] == "Unknown"]
    found = sum(found_cause(one) == one["cause"] for one in known)
    claims = sum(found_cause(one) not in NO_CLAIM for one in unknown)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{name}: {found} of {len(known)} root causes found, "
            f"{claims} claims for {len(unknown)} failures without a known cause\n"
        )

    assert found >= needed
    assert claims <= allowed
    assert {one["cause"] for one in known} <= set(Cause)


def test_two_thirds_of_the_failures_with_an_address_are_held_out_by_a_fixed_rule() -> None:
    by_name = {name: recorded(name) for name in ("development", "held-out")}
    sources = [one["source"] for rows in by_name.values() for one in rows]

    assert len(sources) == len(set(sources)) >= 150
    assert 3 * len(by_name["held-out"]) >= len(sources)
    for name, rows in by_name.items():
        for source in (one["source"] for one in rows if one["source"].startswith("https:")):
            is_development = hashlib.sha256(source.encode()).digest()[0] % 3 == 0
            assert is_development == (name == "development")


@pytest.mark.parametrize("row", SIGNATURES, ids=lambda row: f"{row.cause} {row.example[:30]}")
def test_the_example_of_a_signature_matches_it_before_all_others(row) -> None:
    assert next(one for one in SIGNATURES if one.is_in(row.example)) is row
    assert cause_of(one_line(row.example, SHOWN_CHARS)) is row.cause
    assert row.source


@pytest.mark.parametrize(
    ("text", "code", "cause"),
    [
        ("ValueError: bad config: lr=-1", 1, Cause.EXCEPTION),
        ("", -9, Cause.KILLED),
        ("", -11, Cause.CRASHED),
        ("", -15, Cause.TERMINATED),
        ("", 137, Cause.KILLED),
        ("", 139, Cause.CRASHED),
        ("", 128, None),
        ("", 127, Cause.COMMAND_MISSING),
        ("cannot run './train.sh': Permission denied", 126, Cause.COMMAND_MISSING),
        ("cannot run './train.sh': Exec format error", 126, Cause.COMMAND_MISSING),
        ("PermissionError: [Errno 13] Permission denied: '/data'", 1, Cause.PERMISSION_DENIED),
        ("", 1, None),
        ("", None, None),
        ("step 12 done", 1, None),
        ("OOMKilled", -9, Cause.HOST_OUT_OF_MEMORY),
        ("slurmstepd: error: Detected 1 oom_kill event in S", 1, Cause.HOST_OUT_OF_MEMORY),
        ("srun: error: n1: tasks 1-3: Out Of Memory", 1, Cause.HOST_OUT_OF_MEMORY),
        ("RuntimeError: NCCL error in: x.cpp:3, invalid argument", 1, Cause.COLLECTIVE_INVALID),
        ("NCCL WARN Mismatched collective detected", 1, Cause.COLLECTIVE_INVALID),
        ("Detected mismatch between collectives on ranks", 1, Cause.COLLECTIVE_INVALID),
        ("Call to posix_fallocate failed: No space left", 1, Cause.SHARED_MEMORY_FULL),
        ("no file </torch_1> in read-write mode: Too many open files", 1, Cause.FILES_LIMIT),
        ("unable to open file </torch_1> in read-write mode", 1, Cause.SHARED_MEMORY_FULL),
        ("torch.OutOfMemoryError: Allocation on device", 1, Cause.CUDA_OUT_OF_MEMORY),
    ],
)
def test_without_a_signature_the_exit_code_reports_what_it_can(text, code, cause) -> None:
    assert cause_of(text, code) is cause


def test_a_port_in_use_is_no_consequence_of_a_lost_peer() -> None:
    text = "torch.distributed.DistNetworkError: code: -98, name: EADDRINUSE"

    assert not is_peer_failure(text)
    assert is_peer_failure("torch.distributed.DistNetworkError: failed to recv, got 0 bytes")


def traceback(exception: str, prefix: str = "") -> str:
    lines = ("Traceback (most recent call last):", '  File "a.py", line 1', exception)
    return "".join(f"{prefix}{line}\n" for line in lines)


DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        (
            traceback("OSError: [Errno 28] full") + DURING + traceback("RuntimeError: x"),
            "[Errno 28]",
        ),
        (
            traceback("socket.gaierror: [Errno -2] Name or service not known")
            + DURING
            + traceback("urllib3.exceptions.MaxRetryError: HTTPSConnectionPool(host='hub', port=1)")
            + DURING
            + traceback("OSError: We couldn't connect to 'https://hub' to load this file"),
            "HTTPSConnectionPool",
        ),
        (
            traceback("OSError: [Errno 113] No route to host")
            + DURING
            + traceback("RuntimeError: store"),
            "No route to host",
        ),
        (
            traceback("OSError: [Errno 28] full")
            + DURING
            + traceback(
                "urllib3.exceptions.MaxRetryError: HTTPSConnectionPool(host='hub', port=1)"
            ),
            "[Errno 28]",
        ),
        (traceback("KeyError: 'a'") + DURING + traceback("ValueError: b"), "ValueError: b"),
        (traceback("KeyError: 'a'") + traceback("ValueError: b"), "ValueError: b"),
        (traceback(IMPORT, "node-2: ") + "node-2: pdsh is done\n", IMPORT),
        (traceback(IMPORT) + "Killed\n", IMPORT),
        ("train.py: error: unrecognized arguments: --lr\n", "unrecognized arguments"),
        ("step 1\nBus error (core dumped)\n", "Bus error"),
        ('  File "a.py", line 3\n    x =\n       ^\nSyntaxError: invalid syntax\n', "SyntaxError"),
        ("WARNING: No module named apex, using the slow path\n" + traceback("ValueError: b"), "b"),
    ],
)
def test_the_first_cause_is_shown_rather_than_what_follows_from_it(log, shown) -> None:
    assert shown in crash_text(log)


@given(st.text(alphabet="[]rank0123: TracebckTraceback (most recent call last)\nE:", max_size=400))
def test_no_log_breaks_the_search(log) -> None:
    for text in (log, traceback("ValueError: b", log[:40]), log + traceback("ValueError: b")):
        assert crash_text(text).isprintable()
        assert cause_of(crash_text(text)) in (None, *Cause)
    assert LINES.match("") is None


def failed_job(text: str, code: int = 1, *, nodes: int = 1, same: bool = True, **changes):
    """A job of which all nodes failed for the same reason, or only the first one failed."""
    ranks = tuple(
        RankView(
            rank=rank,
            node=f"node-{rank + 1}",
            exit_code=code if same or rank == 0 else None,
            ended_at=NOW - timedelta(seconds=30) if same or rank == 0 else None,
            reason=text if same or rank == 0 else "",
        )
        for rank in range(nodes)
    )
    return a_job(nodes=nodes, ranks=ranks, **changes)


def ended_attempt(cause: Cause, step: int | None = None) -> AttemptRecord:
    """An attempt in which one rank failed."""
    failure = Failure(
        kind=FailureKind.APPLICATION, reason=Reason.RANK_EXITED, at=NOW, cause=cause, step=step
    )
    return AttemptRecord(
        attempt=1,
        placement=("node-1", "node-2"),
        started_at=NOW,
        stopped_at=NOW,
        failure=failure,
    )


def why(job, policy: JobPolicy = POLICY) -> str:
    failure = application_failure(job, policy, NOW)
    assert failure is not None
    return futile_restart(job, replace(dated(failure, job), step=job.step), policy)


@pytest.mark.parametrize(
    ("text", "code", "is_futile"),
    [
        (IMPORT, 1, True),
        ("SyntaxError: invalid syntax", 1, True),
        ("train.py: error: the following arguments are required: --data", 2, True),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'a'", 1, True),
        ("OSError: [Errno 28] No space left on device", 1, True),
        ("", 127, True),
        (OOM, 1, False),
        ("ValueError: bad config", 1, False),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", 1, False),
        ("", 1, False),
        ("", -9, False),
    ],
)
def test_a_restart_is_useless_where_the_same_must_happen_again(text, code, is_futile) -> None:
    job = failed_job(text, code)

    assert bool(why(job)) == is_futile
    assert not why(job, JobPolicy(stop_on_permanent_cause=False))


@pytest.mark.parametrize(("text", "code"), [(IMPORT, 1), ("OSError: [Errno 28] full", 1)])
def test_of_several_nodes_more_than_one_must_fail_by_itself(text, code) -> None:
    assert why(failed_job(text, code, nodes=3))
    assert not why(failed_job(text, code, nodes=3, same=False))
    assert not why(failed_job(text, code, nodes=3), JobPolicy(failure_margin=timedelta(0)))


@pytest.mark.parametrize(
    ("before", "text", "is_futile"),
    [
        (Cause.DISK_FULL, "OSError: [Errno 28] full", True),
        (Cause.EXCEPTION, "OSError: [Errno 28] full", False),
        (None, "OSError: [Errno 28] full", False),
        (Cause.IMPORT_FAILED, IMPORT, False),
        (Cause.FILE_MISSING, "OSError: [Errno 28] full", False),
    ],
)
def test_a_disk_that_ends_one_rank_twice_in_a_row_is_that_of_all(before, text, is_futile) -> None:
    record = {"attempts": (ended_attempt(before),)} if before is not None else {}

    assert bool(why(failed_job(text, nodes=3, same=False, record=record))) == is_futile


@pytest.mark.parametrize(
    ("first", "step", "is_futile"), [(None, None, True), (5, 5, True), (5, 6, False)]
)
def test_what_is_missing_after_the_first_step_may_come_back(first, step, is_futile) -> None:
    job = failed_job(IMPORT, first_step=first, step=step)
    full = failed_job("OSError: [Errno 28] No space left", first_step=first, step=step)

    assert bool(why(job)) == is_futile
    assert why(full)


def test_a_long_attempt_has_started() -> None:
    began = NOW - timedelta(seconds=30) - POLICY.app_backoff_reset
    job = failed_job(IMPORT, record={"running_at": began})

    assert not why(job)
    assert why(replace(job, record=replace(job.record, running_at=began + TICK)))


@pytest.mark.parametrize(
    ("cause", "before", "step", "is_futile"),
    [
        (Cause.CUDA_OUT_OF_MEMORY, 7, 7, True),
        (Cause.CUDA_OUT_OF_MEMORY, 6, 7, False),
        (Cause.CUDA_OUT_OF_MEMORY, None, None, False),
        (Cause.EXCEPTION, 7, 7, False),
    ],
)
def test_memory_that_is_exhausted_twice_at_one_step_is_so_again(
    cause, before, step, is_futile
) -> None:
    over = ended_attempt(cause, step=before)
    job = failed_job(OOM, nodes=2, same=False, step=step, record={"attempts": (over,)})

    assert bool(why(job)) == is_futile


def test_a_first_failure_waits_for_the_others_if_a_restart_may_be_useless() -> None:
    job = failed_job(IMPORT, nodes=2, same=False)
    ended = NOW - timedelta(seconds=30)

    assert watched_until(job, POLICY, ended) == ended + POLICY.failure_margin
    assert watched_until(job, JobPolicy(stop_on_permanent_cause=False), ended) is None
    assert watched_until(failed_job("KeyError: 'x'", nodes=2, same=False), POLICY, ended) is None


@pytest.mark.parametrize("stops", [True, False])
def test_a_job_fails_at_once_with_the_cause_and_the_remedy(stops) -> None:
    policy = ResumePolicy(job=JobPolicy(stop_on_permanent_cause=stops), nodes=RemediationPolicy())
    failure = application_failure(failed_job(IMPORT), policy.job, NOW - timedelta(minutes=1))
    job = a_job(
        JobPhase.STOPPING, nodes=1, ranks=(), record={"failure": failure, "phase_since": NOW}
    )

    action = decide_job(job, by_name(*healthy_nodes(1)), policy, NOW)

    if stops:
        assert isinstance(action, Finish)
        assert action.outcome is JobPhase.FAILED
        assert "a restart would fail in the same way (ImportFailed): install" in action.reason
        assert IMPORT in action.reason
    else:
        assert isinstance(action, Retry)
