from datetime import timedelta

import pytest

from holdfast.decisions.incident_updates import advanced, opened, resumed, touched, vanished
from holdfast.decisions.planned_work import level_of
from holdfast.model.actions import (
    Drain,
    Quarantine,
    Reassign,
    Reboot,
    Rejoin,
    Release,
    Replace,
    Retire,
    StartCheck,
)
from holdfast.model.deep_checks import KindResult, Outcome
from holdfast.model.health import Remedy
from holdfast.model.incidents import AffectedJob, Incident
from holdfast.model.names import DeepCheck, Reason
from holdfast.model.nodes import CheckResult, Phase
from holdfast.model.sagemaker import EventLevel
from tests.ports.builders import LONG_AGO, NOW, a_fault, a_node, a_remediation

LATER = NOW + timedelta(hours=1)
NODE = a_node()
INCIDENT = opened(NODE, a_remediation(opened_at=NOW), a_fault(since=LONG_AGO))


def grown(*actions, first=INCIDENT, node=NODE) -> Incident:
    """The incident after these actions, the first at ``NOW``, each a minute after the last."""
    incident = first
    for minute, action in enumerate(actions):
        incident = advanced(incident, action, node, NOW + timedelta(minutes=minute))
    return incident


def at(minute: int):
    return NOW + timedelta(minutes=minute)


def test_an_incident_begins_with_its_fault() -> None:
    assert (
        Incident(
            id="incident-1",
            node="node-1",
            provider_id="i-1",
            reason=a_fault().reason,
            remedy=Remedy.REBOOT,
            message="evidence for reboot",
            detected_at=LONG_AGO,
            quarantined_at=NOW,
        )
        == INCIDENT
    )


def test_nothing_is_detected_after_it_was_acted_on() -> None:
    ahead = opened(a_node(), a_remediation(opened_at=NOW), a_fault(since=LATER))

    assert ahead.detected_at == NOW


def test_an_incident_whose_cause_was_forgotten_begins_with_its_remediation() -> None:
    incident = opened(a_node(), a_remediation(opened_at=NOW), None)

    assert (incident.detected_at, incident.quarantined_at, incident.message) == (NOW, NOW, "")


def test_the_whole_remediation_of_a_reboot() -> None:
    incident = grown(
        Drain(node="n"), Reboot(node="n"), Rejoin(node="n"), Release(node="n", checked=True)
    )

    assert (incident.drained_at, incident.repaired_at) == (at(1), at(2))
    assert (incident.checked_at, incident.released_at) == (at(3), at(3))
    assert incident.remedy == "reboot"


def test_the_whole_remediation_of_a_replacement_by_a_new_node() -> None:
    incident = grown(
        Drain(node="n"),
        Replace(node="n", reason="R"),
        Retire(node="n", successor="m"),
        Release(node="m"),
    )

    assert (incident.drained_at, incident.successor) == (at(1), "m")
    assert (incident.repaired_at, incident.released_at) == (at(3), at(3))
    assert (incident.remedy, incident.checked_at) == ("replace", None)


def test_a_checked_replacement_was_there_when_its_check_began() -> None:
    incident = grown(
        Replace(node="n", reason="R"),
        Retire(node="n", successor="m"),
        StartCheck(node="m"),
        Release(node="m", checked=True),
    )

    assert (incident.repaired_at, incident.checked_at) == (at(2), at(3))


def test_a_deep_check_alone_repairs_nothing() -> None:
    incident = grown(Drain(node="n"), StartCheck(node="n"), Release(node="n", checked=True))

    assert (incident.drained_at, incident.repaired_at) == (at(1), None)
    assert (incident.checked_at, incident.released_at) == (at(2), at(2))


def test_the_machine_that_came_instead_is_known_once_it_is_back() -> None:
    ordered = grown(Replace(node="n", reason="R"))
    back = grown(Rejoin(node="n"), first=ordered, node=a_node(provider_id="i-2"))

    assert (ordered.successor_id, back.successor_id) == ("", "i-2")
    assert grown(Rejoin(node="n")).successor_id == "", "a reboot keeps the machine"


def test_what_a_check_did_not_run_is_kept_with_the_incident() -> None:
    skipped = KindResult(
        kind=DeepCheck.CONNECTIVITY, outcome=Outcome.SKIPPED, detail="no other node"
    )
    check = CheckResult(passed=True, ended_at=NOW, kinds=(skipped,))
    checking = a_node(Phase.CHECKING, check=check)

    incident = grown(Release(node="n"), node=checking)

    assert incident.check_remarks == "InstanceConnectivity skipped: no other node"
    assert incident.checked_at is None


def test_planned_work_is_no_error_and_a_suspicion_a_warning() -> None:
    planned = [Reason.REQUESTED_REPLACE, Reason.SCHEDULED_DEEP_CHECK, Reason.DEEP_CHECK_PARTNER]

    assert [level_of(reason) for reason in planned] == [EventLevel.INFO] * 3
    assert level_of(Reason.JOBS_KEEP_FAILING) == EventLevel.WARN
    assert level_of(Reason.XID_REPLACE) == level_of(Reason.NODE_LOST) == EventLevel.ERROR


def test_a_fault_that_clears_repairs_nothing() -> None:
    incident = grown(Drain(node="n"), Release(node="n"))

    assert (incident.drained_at, incident.repaired_at, incident.released_at) == (None, None, at(1))


@pytest.mark.parametrize("kind", [Quarantine, Reassign])
def test_a_repair_that_did_not_help_has_not_happened(kind) -> None:
    worse = a_fault(Remedy.REPLACE)
    incident = grown(
        Reboot(node="n"),
        Rejoin(node="n"),
        Release(node="n", checked=True),  # recorded, but the controller died before the release
        kind(node="n", fault=worse, remedy=Remedy.REPLACE),
    )

    assert (incident.reason, incident.message) == (worse.reason, worse.message)
    assert incident.remedy == Remedy.REPLACE
    assert (incident.repaired_at, incident.checked_at, incident.released_at) == (None, None, None)
    assert incident.drained_at == at(0)


def test_the_first_drain_counts() -> None:
    incident = grown(Reboot(node="n"), Replace(node="n", reason="R"), StartCheck(node="n"))

    assert incident.drained_at == at(0)


TOUCH = AffectedJob(job="a", attempt=1, stopped_at=NOW, step=7)
OTHERS = (
    AffectedJob(job="b", attempt=1, stopped_at=NOW),
    AffectedJob(job="a", attempt=2, stopped_at=NOW),
)


def test_an_attempt_is_touched_once() -> None:
    later = AffectedJob(job="a", attempt=1, stopped_at=LATER)
    incident = INCIDENT
    for touch in (TOUCH, *OTHERS, later):
        incident = touched(incident, touch)

    assert incident.jobs == (*OTHERS, later)


def test_a_job_resumes_once() -> None:
    incident = touched(touched(INCIDENT, TOUCH), OTHERS[0])

    incident = resumed(resumed(incident, "a", NOW), "a", LATER)

    assert [touch.resumed_at for touch in incident.jobs] == [NOW, None]


def test_an_incident_ends_with_its_node_but_only_once() -> None:
    ended = vanished(INCIDENT, NOW)

    assert (ended.vanished_at, ended.released_at, ended.ended_at) == (NOW, None, NOW)
    assert vanished(ended, LATER) == ended


def test_an_incident_that_was_released_does_not_vanish() -> None:
    released = grown(Release(node="node-1"))

    assert vanished(released, LATER) == released
    assert released.ended_at == NOW


def test_an_incident_that_goes_on_has_not_ended() -> None:
    again = advanced(
        vanished(INCIDENT, NOW),
        Quarantine(node="node-1", fault=a_fault(), remedy=Remedy.REBOOT),
        NODE,
        LATER,
    )

    assert (again.vanished_at, again.ended_at) == (None, None)
