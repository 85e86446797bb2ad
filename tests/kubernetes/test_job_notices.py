"""What ``kubectl describe`` tells of a job that loses nodes."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.adapters.kubernetes.jobs.notices import job_notice
from holdfast.adapters.kubernetes.nodes.pods import PodOwner
from holdfast.model.events import (
    AttemptKilled,
    AttemptStarted,
    AttemptStopped,
    CheckpointChosen,
    Event,
    JobFinished,
    JobHangSuspected,
    JobInputRejected,
    JobLossFault,
    JobRetried,
    JobStragglerFound,
    JobUnwatched,
    JobWaits,
    NodeSuspected,
)
from holdfast.model.events import jobs as job_events
from holdfast.model.jobs import FailureKind, JobPhase

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LLAMA = "pytorchjob/default/llama"
OWNER = PodOwner(
    api_version="kubeflow.org/v1", kind="PyTorchJob", namespace="default", name="llama", uid="u"
)
STOPPED = {"job": LLAMA, "attempt": 2, "node": "gpu-7", "evidence": "NVRM: Xid 79"}
NODES = tuple(f"gpu-{number}" for number in range(10))
TOOK = {
    "stopped_in": timedelta(seconds=1.2),
    "waited": timedelta(seconds=30),
    "started_in": timedelta(seconds=4),
}

TOLD = [
    (
        JobInputRejected(job=LLAMA, key="k", value="x", expected="a number"),
        (
            "Warning",
            "InvalidInput",
            f"{LLAMA}: k rejected: got 'x', expected a number; correct or remove it",
        ),
    ),
    (
        JobUnwatched(job=LLAMA, attempt=2, why="no rank touched /tmp/beat yet"),
        ("Warning", "HangsNotDetected", f"{LLAMA}: no rank touched /tmp/beat yet"),
    ),
    (
        JobStragglerFound(job=LLAMA, attempt=2, why="rank 5 on gpu-7 is slow"),
        ("Warning", "StragglerFound", f"{LLAMA}: rank 5 on gpu-7 is slow"),
    ),
    (
        JobLossFault(job=LLAMA, attempt=2, reason="LossNotFinite", step=7, why="loss nan"),
        ("Warning", "LossFault", f"{LLAMA}: loss nan"),
    ),
    (
        JobHangSuspected(job=LLAMA, attempt=2, why="the job seems to hang: no new step for 3m"),
        (
            "Warning",
            "HangSuspected",
            f"{LLAMA}: the job seems to hang: no new step for 3m",
        ),
    ),
    (
        AttemptStarted(job=LLAMA, attempt=1, nodes=("gpu-1", "gpu-2")),
        ("Normal", "Running", f"{LLAMA}: attempt 1 running on gpu-1, gpu-2"),
    ),
    (
        AttemptStopped(kind=FailureKind.HARDWARE, reason="XidReplace", **STOPPED),
        (
            "Warning",
            "NodeFault",
            f"{LLAMA}: attempt 2 stopped: XidReplace on gpu-7: NVRM: Xid 79",
        ),
    ),
    (
        AttemptStopped(kind=FailureKind.REQUESTED, reason="RebootRequested", **STOPPED),
        (
            "Normal",
            "NodeWithdrawn",
            f"{LLAMA}: attempt 2 stopped: RebootRequested on gpu-7: NVRM: Xid 79",
        ),
    ),
    (
        AttemptStopped(
            kind=FailureKind.APPLICATION,
            reason="RankExited",
            **{**STOPPED, "evidence": "node rank 3 exited with code 1"},
        ),
        (
            "Warning",
            "ApplicationFailure",
            f"{LLAMA}: attempt 2 stopped: RankExited on gpu-7: node rank 3 exited with code 1",
        ),
    ),
    (
        AttemptKilled(job=LLAMA, attempt=2, nodes=("gpu-7",)),
        (
            "Warning",
            "PodsRemoved",
            f"{LLAMA}: attempt 2: ranks on gpu-7 were removed: nothing runs there any more",
        ),
    ),
    (
        AttemptKilled(job=LLAMA, attempt=2, nodes=("gpu-7",), after=timedelta(seconds=5)),
        (
            "Warning",
            "PodsRemoved",
            f"{LLAMA}: attempt 2: ranks on gpu-7 exceeded the grace period: they still ran 5s "
            "after SIGTERM and were sent SIGKILL",
        ),
    ),
    (
        AttemptKilled(job=LLAMA, attempt=2, after=timedelta(seconds=30)),
        (
            "Warning",
            "PodsRemoved",
            f"{LLAMA}: attempt 2: the platform has not confirmed the stop after 30s",
        ),
    ),
    (
        CheckpointChosen(job=LLAMA, attempt=2, why="/ckpt: iter_0000200 is complete"),
        (
            "Warning",
            "CheckpointChosen",
            f"{LLAMA}: before attempt 2: /ckpt: iter_0000200 is complete",
        ),
    ),
    (
        JobRetried(
            job=LLAMA,
            kind=FailureKind.HARDWARE,
            reason="XidReplace",
            hardware_retries=1,
            app_retries=0,
            max_retries=2,
            max_app_retries=3,
            exchanged="node-1",
        ),
        (
            "Normal",
            "NodeExchanged",
            f"{LLAMA} exchanging node-1 (hardware: XidReplace); retries used: hardware 1/2, "
            "application 0/3; its pod there is evicted, and the others stay",
        ),
    ),
    (
        JobRetried(
            job=LLAMA,
            kind=FailureKind.HARDWARE,
            reason="XidReplace",
            hardware_retries=1,
            app_retries=0,
            max_retries=2,
            max_app_retries=3,
        ),
        (
            "Normal",
            "JobRestarting",
            f"{LLAMA} restarting (hardware: XidReplace); retries used: hardware 1/2, application "
            "0/3; its pods are recreated when nodes are available",
        ),
    ),
    (
        JobWaits(job=LLAMA, why="waiting for nodes: capacity for 7 of 8 ranks"),
        (
            "Normal",
            "JobWaiting",
            f"{LLAMA}: waiting for nodes: capacity for 7 of 8 ranks",
        ),
    ),
    (
        AttemptStarted(job=LLAMA, attempt=3, nodes=NODES, **TOOK),
        (
            "Normal",
            "Running",
            f"{LLAMA}: attempt 3 running on gpu-0, gpu-1, gpu-2, gpu-3, gpu-4, gpu-5, gpu-6, gpu-7 "
            "and 2 more; recovered in 35.2s: stopped in 1.2s, waited 30s, started in 4s",
        ),
    ),
    (
        JobFinished(
            job=LLAMA, outcome=JobPhase.FAILED, reason="hardware retries exhausted (2 of 2)"
        ),
        (
            "Warning",
            "RestartsSpent",
            f"{LLAMA} failed: hardware retries exhausted (2 of 2); it is not restarted again",
        ),
    ),
    (
        JobFinished(job=LLAMA, outcome=JobPhase.SUCCEEDED, reason="done"),
        ("Normal", "JobSucceeded", f"{LLAMA} succeeded: done"),
    ),
]


@pytest.mark.parametrize(("event", "reported"), TOLD, ids=lambda one: type(one).__name__)
def test_a_job_reports_why_it_was_restarted_where_and_how_long_it_took(event, reported) -> None:
    notice = job_notice(event, OWNER, NOW)

    assert notice is not None
    assert (notice.kind.type, notice.kind.reason, notice.message) == reported
    assert (notice.about, notice.at) == (OWNER, NOW)


def test_each_event_of_a_job_is_reported() -> None:
    """Add a new one to ``TOLD``, with its kind in ``notices.py``."""
    events = {
        one for one in vars(job_events).values() if isinstance(one, type) and issubclass(one, Event)
    }

    assert {type(event) for event, _ in TOLD} == events - {Event}


@pytest.mark.parametrize(
    "event",
    [
        JobFinished(job=LLAMA, outcome=JobPhase.CANCELLED, reason="cancelled by request"),
        NodeSuspected(node="gpu-7", failures=3, evidence="", is_checked=True),
    ],
)
def test_what_is_not_about_a_job_or_was_asked_for_is_not_reported_on_it(event) -> None:
    assert job_notice(event, OWNER, NOW) is None
