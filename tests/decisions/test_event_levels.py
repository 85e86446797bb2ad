"""Level of each event."""

import pytest

from holdfast.adapters.kubernetes.jobs.notices import KINDS as JOB_KINDS
from holdfast.adapters.kubernetes.nodes.events import KINDS as NODE_KINDS
from holdfast.decisions.event_levels import event_level
from holdfast.model.events import (
    AttemptStarted,
    AttemptStopped,
    BreakerTripped,
    Event,
    JobFinished,
    JobLossFault,
    NodeAgentSilent,
    NodeQuarantined,
    NodeReassigned,
    RepairPostponed,
)
from holdfast.model.jobs import FailureKind, JobPhase
from holdfast.model.names import Reason
from holdfast.model.sagemaker import EventLevel
from tests.ports.builders import NOW

BY_REASON = (NodeQuarantined, NodeReassigned)


def stopped(kind: FailureKind) -> AttemptStopped:
    return AttemptStopped(job="a", attempt=1, kind=kind, reason="r", node="n", evidence="e")


def finished(outcome: JobPhase) -> JobFinished:
    return JobFinished(job="a", outcome=outcome, reason="r")


def quarantined(reason: str) -> NodeQuarantined:
    return NodeQuarantined(node="n", reason=reason, remedy="reboot", message="m")


@pytest.mark.parametrize(
    ("event", "level"),
    [
        (BreakerTripped(reason="r"), EventLevel.ERROR),
        (finished(JobPhase.FAILED), EventLevel.ERROR),
        (finished(JobPhase.SUCCEEDED), EventLevel.INFO),
        (quarantined(Reason.XID_REPLACE), EventLevel.ERROR),
        (quarantined(Reason.JOBS_KEEP_FAILING), EventLevel.WARN),
        (quarantined(Reason.REQUESTED_REBOOT), EventLevel.INFO),
        (stopped(FailureKind.HARDWARE), EventLevel.WARN),
        (stopped(FailureKind.REQUESTED), EventLevel.INFO),
        (NodeAgentSilent(node="n", since=NOW), EventLevel.WARN),
        (JobLossFault(job="a", attempt=1, reason="r", step=1, why="w"), EventLevel.WARN),
        (AttemptStarted(job="a", attempt=1, nodes=("n",)), EventLevel.INFO),
    ],
)
def test_the_level_shows_what_went_wrong(event: Event, level: EventLevel) -> None:
    assert event_level(event) is level


def test_what_kubernetes_reports_as_a_warning_is_one_everywhere() -> None:
    warned = [
        kind
        for kind, one in {**NODE_KINDS, **JOB_KINDS}.items()
        if one.type == "Warning" and kind not in BY_REASON
    ]
    bare = [kind for kind in warned if event_level(object.__new__(kind)) is EventLevel.INFO]

    assert RepairPostponed in warned
    assert bare == []
