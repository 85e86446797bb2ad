from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.slurm.commands.node_text import NodeFacts
from holdfast.adapters.slurm.commands.reasons import our_reason, parse_reason
from holdfast.adapters.slurm.nodes.check_results import faults_of
from holdfast.adapters.slurm.nodes.reports import ReceivedReport
from holdfast.adapters.slurm.nodes.state import Memory, RememberedNode
from holdfast.adapters.slurm.nodes.views import (
    Known,
    closing_reason,
    has_leftovers,
    held_by,
    is_lost,
    is_to_open,
    known_nodes,
    last_response_at,
    node_view,
    remembered,
    request_of,
)
from holdfast.decisions.policy import RemediationPolicy
from holdfast.decisions.remediation import decide_node
from holdfast.model.actions import Release
from holdfast.model.health import Remedy, Urgency
from holdfast.model.names import Condition, Reason
from holdfast.model.nodes import NodeRecord, Phase
from holdfast.model.report import NodeReport
from holdfast.model.requests import Request, Verb
from tests.ports.builders import NOW, a_fault, a_record, a_remediation

EARLIER = NOW - timedelta(minutes=1)
LATER = NOW + timedelta(hours=1)
AWAY = [Phase.REBOOTING, Phase.REPLACING]


def facts(state: str = "IDLE", reason: str = "", **changes) -> NodeFacts:
    values = {"reason_set": "bob@2026-11-21T01:38:11", "slurmd": "boot-1", **changes}
    return NodeFacts("n1", frozenset(state.split("+")), parse_reason(reason), **values)


def received(machine: str = "m1", at=NOW) -> ReceivedReport:
    report = NodeReport(node="n1", boot_id="b1", sequence=1, reported_at=NOW)
    return ReceivedReport(report=report, machine=machine, at=at)


def record_in(phase: Phase, **remediation):
    has_course = phase not in (Phase.SCHEDULABLE, Phase.JOINING)
    return a_record(
        phase, remediation=a_remediation(**remediation) if has_course or remediation else None
    )


def known(node=None, word=None, before=None) -> Known:
    return Known(name="n1", facts=node, received=word, remembered=before)


phases = st.sampled_from(list(Phase))
states = st.sampled_from(
    ["IDLE", "MIXED+FAIL", "IDLE+DRAIN", "DOWN", "DOWN+FAIL+NOT_RESPONDING", "IDLE+POWERED_DOWN"]
)
reasons = st.sampled_from(
    ["", "cabling", "action:replace", "Not responding", "Action:Replace", "holdfast: checking",
     "Action:Reboot holdfast: X : reboot issued"]
)  # fmt: skip


@given(phases, st.sampled_from(list(Remedy)), states, reasons)
def test_a_mark_that_was_put_right_is_right(phase, remedy, state, reason) -> None:
    record = record_in(phase, remedy=remedy)
    node = facts(state, reason)

    wanted = closing_reason(node, record)

    if wanted is not None:
        assert phase is not Phase.SCHEDULABLE
        after = facts("IDLE+FAIL", wanted)
        assert closing_reason(after, record) is None
        assert closing_reason(facts("DOWN+FAIL", f"{wanted} : Not responding"), record) is None


@given(phases, states, st.sampled_from(["cabling", "action:replace"]), st.booleans())
def test_what_somebody_else_has_closed_is_left_to_them(phase, state, reason, was_closed) -> None:
    node = facts(state, reason)

    if node.is_closed:
        assert closing_reason(node, record_in(phase)) is None
        assert not is_to_open(node, record_in(phase), LATER, was_closed=was_closed)
        assert "cabling" in held_by(node, "") or "replace" in held_by(node, "")


@given(phases, states, reasons, st.booleans())
def test_a_node_is_never_both_closed_and_opened(phase, state, reason, was_closed) -> None:
    node, record = facts(state, reason), record_in(phase)

    is_closed = closing_reason(node, record) is not None
    assert not (is_closed and is_to_open(node, record, LATER, was_closed=was_closed))


def test_a_node_is_opened_if_whoever_closed_it_was_ours() -> None:
    free = a_record(Phase.SCHEDULABLE)
    ours = facts("IDLE+FAIL", our_reason(record_in(Phase.REBOOTING)))

    assert is_to_open(ours, free, LATER, was_closed=False)
    assert is_to_open(facts("IDLE+FAIL"), free, LATER, was_closed=True)
    assert not is_to_open(facts("IDLE+FAIL"), free, LATER, was_closed=False)
    assert is_to_open(facts("DOWN", "Node unexpectedly rebooted"), free, LATER, was_closed=True)
    assert not is_to_open(facts("DOWN", "Not responding"), free, LATER, was_closed=False)
    assert not is_to_open(facts("IDLE", "holdfast: x"), free, LATER, was_closed=True)
    assert not is_to_open(ours, record_in(Phase.REPLACING), LATER, was_closed=True)


@pytest.mark.parametrize("reason", ["Node unexpectedly rebooted", ""])
def test_slurm_may_take_a_node_down_for_its_repair_shortly_after_its_release(reason: str) -> None:
    """24.11 does not say why where our release has left a blank reason."""
    free = a_record(Phase.SCHEDULABLE)
    taken, released = facts("DOWN", reason), free.phase_since
    soon, late = released + timedelta(seconds=59), released + timedelta(minutes=1)

    assert is_to_open(taken, free, soon, was_closed=False)
    assert not is_to_open(taken, free, late, was_closed=False)
    by_a_person = facts("DOWN", "Node unexpectedly rebooted, being examined")
    assert not is_to_open(by_a_person, free, soon, was_closed=False)
    assert not is_to_open(facts("DOWN", "Not responding"), free, soon, was_closed=False)
    assert not is_to_open(facts("IDLE+FAIL"), free, soon, was_closed=False)
    assert not is_to_open(taken, record_in(Phase.REPLACING), soon, was_closed=False)


def test_another_word_of_ours_is_put_in_place_of_the_last() -> None:
    back = record_in(Phase.JOINING, reason="X")

    assert closing_reason(facts("IDLE+FAIL", "Action:Reboot holdfast: X"), back) == our_reason(back)
    assert closing_reason(facts("IDLE", our_reason(back)), back) == our_reason(back)


@pytest.mark.parametrize(
    ("state", "urgency"),
    [
        ("IDLE+FAIL", Urgency.DEFERRED),
        ("MIXED+DRAIN", Urgency.DEFERRED),
        ("DOWN", Urgency.IMMEDIATE),
        ("DOWN+FAIL", Urgency.IMMEDIATE),
    ],
)
def test_state_and_reason_together_ask(state: str, urgency: Urgency) -> None:
    request = request_of(facts(state, "Action:Reboot"), NOW)

    assert request is not None
    assert (request.verb, request.urgency, request.requested_by) == (Verb.REBOOT, urgency, "bob")


def test_a_request_has_one_name_until_it_is_made_again() -> None:
    first = request_of(facts("IDLE+FAIL", "Action:Reboot"), NOW)
    same = request_of(facts("DOWN+FAIL", "Action:Reboot : Not responding"), EARLIER)
    again = request_of(
        facts("IDLE+FAIL", "Action:Reboot", reason_set="bob@2026-11-21T01:38:12"), NOW
    )

    assert first.id == same.id != again.id


@pytest.mark.parametrize(
    ("state", "reason"),
    [("IDLE", "Action:Reboot"), ("IDLE+FAIL", "action:reboot"), ("IDLE+FAIL", ""),
     ("IDLE+FAIL", "Action:Reboot holdfast: X")],
)  # fmt: skip
def test_nothing_else_asks(state: str, reason: str) -> None:
    assert request_of(facts(state, reason), NOW) is None


def test_what_a_command_recorded_goes_before_a_reason() -> None:
    request = Request(id="r", verb=Verb.RELEASE, requested_at=NOW)
    memory = Memory(requests={"n1": request})
    one = known(facts("IDLE+FAIL", "Action:Reboot"), received())

    view = node_view(one, record_in(Phase.SCHEDULABLE), memory, heartbeat_at=NOW, jobs=(), now=NOW)

    assert view.request == request


@pytest.mark.parametrize("state", ["IDLE+MAINT", "IDLE+MAINTENANCE+RESERVED"])
def test_a_node_in_maintenance_is_held(state: str) -> None:
    assert "maintenance" in held_by(facts(state), "")
    assert held_by(facts(), "") == ""
    assert held_by(facts(state), "mine") == "mine"


# When a node was heard


@pytest.mark.parametrize("phase", [Phase.SCHEDULABLE, Phase.QUARANTINED, Phase.DRAINING])
def test_a_node_is_heard_while_slurmd_or_its_agent_speaks(phase: Phase) -> None:
    record = record_in(phase)
    silent = facts("DOWN+NOT_RESPONDING")

    def at(one: Known, answered_at=None, began=EARLIER):
        return last_response_at(one, record, NOW, answered_at, began)

    assert at(known(facts(), received(at=None))) == NOW
    assert at(known(silent, received(at=NOW))) == NOW
    assert at(known(silent, received(at=None))) == at(known(silent, None)) == EARLIER
    assert at(known(silent, None), answered_at=EARLIER, began=NOW) == EARLIER


@pytest.mark.parametrize("phase", [Phase.QUARANTINED, Phase.DRAINING])
@given(minutes=st.integers(2, 1000), has_report=st.booleans())
def test_a_controller_that_starts_releases_no_lost_node(phase, minutes, has_report) -> None:
    lost, now = a_remediation(condition=Condition.NODE_LOST), NOW + timedelta(minutes=minutes)
    record = NodeRecord(phase=phase, phase_since=lost.opened_at, remediation=lost)
    before = RememberedNode(record=record, machine="m1", slurmd="boot-1")
    report = received(at=None) if has_report else None
    silent = known(facts("DOWN+NOT_RESPONDING+DRAIN", slurmd="boot-1"), report, before)
    heartbeat_at = last_response_at(silent, record, now, None, now)
    view = node_view(silent, record, Memory(), heartbeat_at=heartbeat_at, jobs=(), now=now)

    assert not isinstance(decide_node(view, RemediationPolicy(), now), Release)


def test_a_node_that_power_saving_switched_off_is_not_lost() -> None:
    asleep = known(facts("IDLE+POWERED_DOWN"), received(at=EARLIER))

    assert last_response_at(asleep, a_record(Phase.SCHEDULABLE), NOW, None, EARLIER) == NOW
    assert last_response_at(asleep, record_in(Phase.DRAINING), NOW, None, EARLIER) == EARLIER


@pytest.mark.parametrize("phase", [Phase.JOINING, Phase.REBOOTING])
@pytest.mark.parametrize(
    ("state", "slurmd", "at", "is_back"),
    [
        ("IDLE+FAIL", "boot-2", NOW, True),
        ("DOWN+FAIL", "boot-2", NOW, True),
        ("IDLE+FAIL", "boot-1", NOW, False),
        ("IDLE+FAIL", "boot-2", None, False),
        ("DOWN+FAIL+NOT_RESPONDING", "boot-2", NOW, False),
        ("IDLE+FAIL+INVALID_REG", "boot-2", NOW, False),
        ("IDLE+FAIL+POWERING_UP", "boot-2", NOW, False),
    ],
)
def test_a_repaired_node_is_heard_once_agent_and_a_new_slurmd_speak(
    phase, state, slurmd, at, is_back
) -> None:
    record = record_in(phase, remedy=Remedy.REBOOT)
    before = RememberedNode(record=record, machine="m1", slurmd="boot-1")
    one = known(facts(state, slurmd=slurmd), received(at=at), before)

    assert last_response_at(one, record, NOW, NOW, NOW) == (NOW if is_back else None)


@pytest.mark.parametrize("phase", [Phase.QUARANTINED, Phase.DRAINING])
@pytest.mark.parametrize("reason", [Reason.NODE_NEVER_JOINED, Reason.NODE_START_FAILED])
def test_a_node_that_never_joined_is_heard_only_once_its_slurmd_answers(phase, reason) -> None:
    remediation = a_remediation(Remedy.REPLACE, condition=Condition.NODE_LOST, reason=reason)
    record = NodeRecord(phase=phase, phase_since=EARLIER, remediation=remediation)
    before = RememberedNode(record=record, machine="m1", slurmd="boot-1")
    alone = known(facts("DOWN+FAIL+POWERED_DOWN", slurmd="boot-1"), received(at=NOW), before)
    both = known(facts("DOWN+FAIL", slurmd="boot-2"), received(at=NOW), before)

    assert last_response_at(alone, record, NOW, NOW, NOW) is None
    assert last_response_at(both, record, NOW, NOW, NOW) == NOW


@pytest.mark.parametrize(
    ("state", "reason", "is_given_up"),
    [
        ("DOWN+FAIL+POWERED_DOWN+NOT_RESPONDING", "ResumeTimeout reached", True),
        ("DOWN+FAIL+POWERED_DOWN", "holdfast: checking after X : ResumeTimeout reached", True),
        ("DOWN+FAIL", "holdfast: checking after X : ResumeTimeout reached", False),
        ("DOWN+FAIL+POWERED_DOWN", "Not responding", False),
    ],
)
def test_slurms_own_word_on_a_start_that_failed_stays_and_reaches_the_core(
    state, reason, is_given_up
) -> None:
    record = record_in(Phase.JOINING, remedy=Remedy.REPLACE)
    one = known(facts(state, reason), received(at=NOW))

    view = node_view(one, record, Memory(), heartbeat_at=None, jobs=(), now=NOW)

    assert view.join_error == ("Slurm reports: ResumeTimeout reached" if is_given_up else "")
    assert one.facts is not None
    if is_given_up:
        assert closing_reason(one.facts, record) is None


def test_a_repair_that_began_when_slurm_knew_of_no_slurmd_ends_with_any() -> None:
    record = record_in(Phase.JOINING, remedy=Remedy.REPLACE)
    before = RememberedNode(record=record, machine="m1", slurmd="/")  # slurmctld had forgotten it
    one = known(facts(slurmd="boot-1/start-1"), received(at=NOW), before)

    assert last_response_at(one, record, NOW, NOW, NOW) == NOW


# What is stored


@pytest.mark.parametrize("phase", AWAY)
def test_the_slurmd_before_a_repair_is_remembered_until_the_release(phase: Phase) -> None:
    draining = RememberedNode(record=record_in(Phase.DRAINING), machine="m1")
    away = remembered(known(facts(), received(), draining), record_in(phase))
    assert away.slurmd == "boot-1"

    later = known(facts(slurmd="boot-2"), received("m2"), away)
    assert remembered(later, record_in(phase)).slurmd == "boot-1"
    assert remembered(later, record_in(Phase.JOINING, remedy=Remedy.REBOOT)).slurmd == "boot-1"
    free = remembered(later, a_record(Phase.SCHEDULABLE))
    assert (free.slurmd, free.machine) == ("", "m2")


def test_the_agent_names_the_machine_and_slurm_does_where_it_cannot() -> None:
    stored = RememberedNode(record=a_record(Phase.SCHEDULABLE), machine="m0")

    assert known(facts(instance_id="i-1"), received("m1"), stored).machine == "m1"
    assert known(facts(instance_id="i-1"), received(""), stored).machine == "i-1"
    assert known(facts(), None, stored).machine == "m0"
    assert known(facts(), received("")).machine == "slurm:n1"


# Who is looked after


def test_a_node_is_ours_with_an_agent_that_lives_or_a_record() -> None:
    stored = RememberedNode(record=a_record(Phase.SCHEDULABLE), machine="m1")

    assert list(known_nodes({"n1": facts()}, {"n1": received()}, Memory())) == ["n1"]
    assert list(known_nodes({"n1": facts()}, {}, Memory(nodes={"n1": stored}))) == ["n1"]
    assert list(known_nodes({"n1": facts()}, {"n1": received(at=None)}, Memory())) == []
    assert list(known_nodes({}, {"n1": received()}, Memory())) == []
    assert list(known_nodes({"n1": facts()}, {}, Memory())) == []


@pytest.mark.parametrize("phase", Phase)
def test_a_node_that_slurm_forgot_stays_while_its_repair_keeps_it_away(phase: Phase) -> None:
    stored = RememberedNode(record=record_in(phase), machine="m1")

    found = known_nodes({}, {}, Memory(nodes={"n1": stored}))

    assert list(found) == (["n1"] if phase in AWAY else [])


def test_nothing_is_done_with_a_node_whose_entry_is_damaged() -> None:
    memory = Memory(unreadable=frozenset({"n1"}))

    assert known_nodes({"n1": facts()}, {"n1": received()}, memory) == {}


def test_a_view_has_what_is_known() -> None:
    record = record_in(Phase.DRAINING)
    one = known(facts("MIXED+DRAIN", "cabling"), received("m1"))

    view = node_view(one, record, Memory(), heartbeat_at=NOW, jobs=("7",), now=NOW)

    assert (view.name, view.machine, view.running_jobs) == ("n1", "m1#b1", ("7",))
    assert view.pause_reason == "taken out of service by bob in Slurm: cabling"
    silent = replace(one, received=None)
    assert node_view(silent, record, Memory(), heartbeat_at=None, jobs=(), now=NOW).boot_id == ""


# What a machine that came back may bring with it


@pytest.mark.parametrize(
    ("phase", "state", "slurmd", "are_left"),
    [
        (Phase.JOINING, "IDLE+FAIL+COMPLETING", "boot-1", True),
        (Phase.JOINING, "IDLE+FAIL", "boot-1", False),
        (Phase.DRAINING, "MIXED+FAIL+COMPLETING", "boot-1", False),
        (Phase.JOINING, "IDLE+FAIL+COMPLETING", "boot-2", False),  # it is the one from before
        (Phase.JOINING, "IDLE+FAIL+COMPLETING", "", False),  # it was never away
        (Phase.JOINING, "IDLE+FAIL+COMPLETING+NOT_RESPONDING", "boot-1", False),
    ],
)
def test_jobs_of_the_boot_before_are_left_over_once_another_slurmd_answers(
    phase, state, slurmd, are_left
) -> None:
    record = a_record(phase, remediation=a_remediation())
    before = RememberedNode(record=record, machine="m1", slurmd=slurmd)

    assert has_leftovers(known(facts(state, slurmd="boot-2"), received(), before)) is are_left


@pytest.mark.parametrize(
    ("phase", "state", "ago", "heard_ago", "lost"),
    [
        (Phase.JOINING, "DOWN+NOT_RESPONDING", 120, 0, True),
        (Phase.JOINING, "DOWN+NOT_RESPONDING", 119, 0, False),
        (Phase.JOINING, "IDLE+FAIL", 120, 0, False),
        (Phase.REPLACING, "DOWN+NOT_RESPONDING", 120, 0, False),
        (Phase.JOINING, "DOWN+NOT_RESPONDING", 120, 120, False),
    ],
)
def test_a_machine_whose_agent_alone_is_back_is_lost_for_slurm(
    phase, state, ago, heard_ago, lost
) -> None:
    since = NOW - timedelta(seconds=ago)
    record = a_record(phase, remediation=a_remediation(), phase_since=since)
    word = received(at=NOW - timedelta(seconds=heard_ago))
    one = known(facts(state), word, RememberedNode(record=record, machine="m1"))

    assert is_lost(one, NOW) is lost


@pytest.mark.parametrize(
    ("machine", "boot", "counts"), [("m1", "b1", True), ("m2", "b1", False), ("m1", "b2", False)]
)
def test_a_verdict_holds_for_one_machine_in_one_boot(machine, boot, counts) -> None:
    fault = a_fault()
    said = NodeReport(node="n1.check", boot_id=boot, sequence=0, reported_at=NOW, faults=(fault,))
    verdict = ReceivedReport(report=said, machine=machine)

    assert faults_of(verdict, received()) == ((fault,) if counts else ())
    assert faults_of(None, received()) == faults_of(verdict, None) == ()
    view = node_view(
        replace(known(facts(), received()), verdict=verdict), a_record(), Memory(),
        heartbeat_at=NOW, jobs=(), now=NOW,
    )  # fmt: skip
    assert view.faults == ((fault,) if counts else ())
