import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.detectors import gpu_driver, gpu_sxid, host_hardware
from holdfast.detectors.causes import WITHIN
from holdfast.detectors.contract import LogLine, Profile, Readings
from holdfast.detectors.folding import ONE_SIGHTING, Health, fold
from holdfast.detectors.gpu_xid import build
from holdfast.detectors.known_findings import NOTICES_KEPT
from holdfast.kit.serial import from_plain, to_plain
from holdfast.model.health import Finding, Remedy, Severity, Urgency
from holdfast.model.names import Condition, Reason
from holdfast.model.report import NodeReport

NOW = datetime(2025, 11, 20, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
DETECTOR = build(Profile.HYPERPOD)


def xid(code: int, text: str = "x", *, at: datetime = NOW, device: str = "b9") -> Finding:
    message = f"NVRM: Xid (PCI:0000:{device}:00): {code}, {text}"
    [finding] = DETECTOR.detect(Readings(kernel_log=(LogLine(message=message, observed_at=at),)))
    return finding


def action(number: int, at: datetime = NOW, device: str = "b9") -> Finding:
    words = f"GPU recovery action changed from 0x0 (None) to 0x{number} (Words)"
    return xid(154, words, at=at, device=device)


def folded(*findings: Finding) -> Health:
    return fold(Health(), findings)


def codes(health: Health) -> list[int | None]:
    return [fault.code for fault in health.faults]


def test_a_finding_with_a_remedy_is_a_fault() -> None:
    finding = xid(74)

    [fault] = folded(finding).faults

    assert fault.since == finding.observed_at
    assert fault.count == 1
    for name in (
        "family",
        "condition",
        "reason",
        "severity",
        "remedy",
        "message",
        "code",
        "device",
    ):
        assert getattr(fault, name) == getattr(finding, name)
    assert fault.urgency is Urgency.IMMEDIATE
    assert folded(xid(63)).faults[0].urgency is Urgency.DEFERRED


@pytest.mark.parametrize("code", [94, 95, 73, 74])
def test_every_remedy_from_a_restart_on_makes_a_fault(code: int) -> None:
    assert codes(folded(xid(code))) == [code]


def test_a_finding_without_remedy_is_a_notice() -> None:
    finding = xid(13)

    health = folded(finding)

    assert health == Health(notices=(finding,))


def test_the_same_event_in_two_logs_is_one_fault() -> None:
    health = folded(xid(74, at=NOW + SECOND), xid(74, at=NOW), xid(74, at=NOW + 2 * SECOND))

    [fault] = health.faults
    assert (fault.since, fault.count) == (NOW, 3)


def test_codes_and_devices_are_faults_of_their_own() -> None:
    health = folded(xid(74), xid(79), xid(74, device="c0"))

    assert len(health.faults) == 3


def test_faults_are_reported_oldest_first() -> None:
    health = folded(xid(79, at=NOW + SECOND), xid(74), xid(95, at=NOW - SECOND))

    assert codes(health) == [95, 74, 79]


def test_the_newest_word_of_the_driver_holds() -> None:
    health = folded(action(4), action(2, NOW + SECOND))

    [fault] = health.faults
    assert (fault.remedy, fault.urgency) == (Remedy.REBOOT, Urgency.IMMEDIATE)
    assert (fault.since, fault.count) == (NOW, 2)


def test_the_driver_takes_its_word_back() -> None:
    health = folded(action(4), action(0, NOW + SECOND))

    assert health.faults == ()
    assert [notice.code for notice in health.notices] == [154]


def test_the_driver_takes_back_its_own_word_and_all_that_it_decides_for_that_gpu_only() -> None:
    health = folded(action(4), action(4, device="c0"), xid(95), action(0))

    assert [(fault.code, fault.device) for fault in health.faults] == [(154, "PCI:0000:c0:00")]


def test_an_unknown_word_takes_nothing_back() -> None:
    assert codes(folded(action(4), action(9))) == [154]


def test_what_was_taken_back_can_come_again() -> None:
    health = folded(action(4), action(0), action(1, NOW + SECOND))

    [fault] = health.faults
    assert (fault.since, fault.count) == (NOW + SECOND, 1)
    assert health.notices == ()


def test_an_application_error_ends_no_fault() -> None:
    assert codes(folded(xid(74), xid(13), xid(45), xid(999))) == [74]


def test_a_restart_is_asked_for_by_the_newest_error() -> None:
    """An application that started after the last error owes it nothing."""
    health = folded(xid(94), xid(94, at=NOW + SECOND), xid(94, at=NOW - SECOND))

    [fault] = health.faults
    assert (fault.since, fault.count) == (NOW + SECOND, 3)


def test_notices_are_the_newest_each_kind_once() -> None:
    storm = [xid(45, f"Ch {number:08}", at=NOW + number * SECOND) for number in range(100)]

    health = folded(xid(13), *storm, xid(31))

    assert [notice.code for notice in health.notices] == [13, 45, 31]
    assert health.notices[1] == storm[-1]


def test_a_notice_that_comes_again_is_the_newest() -> None:
    assert [notice.code for notice in folded(xid(13), xid(31), xid(13)).notices] == [31, 13]


def test_notices_are_bounded() -> None:
    many = [xid(1000 + number) for number in range(NOTICES_KEPT + 5)]

    assert folded(*many).notices == tuple(many[5:])


FINDINGS = st.lists(
    st.builds(
        lambda code, device, seconds: replace(
            action(code - 200, device=device) if code >= 200 else xid(code, device=device),
            observed_at=NOW + seconds * SECOND,
        ),
        st.sampled_from([13, 45, 63, 74, 79, 94, 95, 200, 201, 202]),
        st.sampled_from(["b9", "c0"]),
        st.integers(0, 5),
    ),
    max_size=30,
)


@given(FINDINGS, st.integers(0, 30))
def test_it_does_not_matter_in_how_many_batches_findings_come(
    findings: list[Finding], cut: int
) -> None:
    at_once = folded(*findings)

    assert fold(folded(*findings[:cut]), findings[cut:]) == at_once


@given(FINDINGS)
def test_no_key_is_reported_twice(findings: list[Finding]) -> None:
    health = folded(*findings)

    reported = [entry.key for entry in (*health.faults, *health.notices)]
    assert len(set(reported)) == len(reported)
    unheard = {finding.key for finding in findings} - set(reported)
    acted_on = {finding.device for finding in findings if finding.code == 154}
    assert all(reason == Reason.XID_ECHO or device in acted_on for _, reason, _, device in unheard)
    assert set(reported) <= {finding.key for finding in findings}


@given(FINDINGS)
def test_a_settled_family_has_the_faults_that_were_just_found_and_no_others(
    findings: list[Finding],
) -> None:
    known = folded(xid(74), xid(79, device="c0"))

    health = fold(known, findings, settled={"xid"})

    assert {fault.key for fault in health.faults} == {
        fault.key for fault in folded(*findings).faults
    }


def test_a_state_that_goes_on_keeps_its_beginning() -> None:
    known = folded(xid(74))

    [fault] = fold(known, [xid(74, at=NOW + SECOND)], settled={"xid"}).faults

    assert (fault.since, fault.count) == (NOW, 2)


def test_what_was_not_read_in_full_ends_nothing() -> None:
    known = folded(xid(74), xid(13))

    assert fold(known, [], settled={"gpu-count"}) == known
    assert fold(known, []) == known


def test_notices_of_a_settled_family_that_were_not_found_again_are_over() -> None:
    known = folded(xid(13), xid(31))

    [notice] = fold(known, [xid(31)], settled=["xid"]).notices

    assert notice.code == 31


MINUTE = timedelta(minutes=1)
WINDOW = 10 * MINUTE


def timeout(at: datetime = NOW, device: str = "nvme0") -> Finding:
    """Something that proves nothing until it was seen three times."""
    return Finding(
        family="disk",
        condition=Condition.DISK,
        reason=Reason.NVME_TIMEOUT,
        severity=Severity.FATAL,
        remedy=Remedy.REBOOT,
        message="timeout",
        observed_at=at,
        device=device,
        min_count=3,
        window=WINDOW,
    )


def line(message: str, at: datetime) -> Finding:
    readings = Readings(kernel_log=(LogLine(message=message, observed_at=at),))
    modules = (gpu_sxid, gpu_driver, host_hardware)
    [finding] = [one for m in modules for one in m.build(Profile.HYPERPOD).detect(readings)]
    return finding


def sxid(at: datetime = NOW, switch: int = 1) -> Finding:
    where = f"PCI:0000:c{switch}:00.0"
    return line(f"nvidia-nvswitch{switch}: SXid ({where}): 20034, Fatal, Link 30 LTSSM", at)


def test_what_one_sighting_does_not_prove_is_a_notice_until_it_was_seen_often_enough() -> None:
    moments = [NOW, NOW + MINUTE, NOW + 2 * MINUTE]

    one, two, three = (folded(*map(timeout, moments[:count])) for count in (1, 2, 3))

    assert (one.faults, two.faults) == ((), ())
    assert [notice.seen_at for notice in two.notices] == [(NOW, NOW + MINUTE)]
    assert [(one.severity, one.remedy) for one in two.notices] == [("warning", "none")]
    [fault] = three.faults
    assert (fault.since, fault.remedy, three.notices) == (moments[2], Remedy.REBOOT, ())
    assert fault.count == 3


@pytest.mark.parametrize(("late", "faults"), [(timedelta(0), 1), (timedelta(microseconds=1), 0)])
def test_sightings_count_within_the_window_only(late: timedelta, faults: int) -> None:
    moments = [NOW, NOW + MINUTE, NOW + WINDOW + late]

    assert len(folded(*map(timeout, moments)).faults) == faults


def test_an_old_sighting_does_not_hide_the_new_ones() -> None:
    moments = [NOW, NOW + WINDOW + MINUTE, NOW + WINDOW + 2 * MINUTE, NOW + WINDOW + 3 * MINUTE]

    assert folded(*map(timeout, moments[:3])).faults == ()
    assert len(folded(*map(timeout, moments)).faults) == 1


@pytest.mark.parametrize(("apart", "faults"), [(ONE_SIGHTING, 1), (ONE_SIGHTING - SECOND, 0)])
def test_a_burst_is_one_sighting(apart: timedelta, faults: int) -> None:
    moments = [NOW, NOW + apart, NOW + 2 * apart]

    assert len(folded(*map(timeout, moments)).faults) == faults
    assert folded(*[timeout(NOW)] * 100).faults == ()


def test_sightings_in_any_order_count() -> None:
    moments = [NOW + 2 * MINUTE, NOW, NOW + MINUTE]

    assert len(folded(*map(timeout, moments)).faults) == 1


def test_each_device_is_counted_by_itself() -> None:
    moments = [NOW, NOW + MINUTE, NOW + 2 * MINUTE]

    assert folded(*(timeout(at, f"nvme{at.minute % 2}") for at in moments)).faults == ()


def test_once_proven_every_line_counts() -> None:
    moments = [NOW, NOW + MINUTE, *[NOW + 2 * MINUTE] * 5]

    [fault] = folded(*map(timeout, moments)).faults

    assert fault.count == 3 + 4


def test_what_may_yet_become_a_fault_is_not_pushed_out_by_what_never_does() -> None:
    storm = [xid(1000 + number) for number in range(NOTICES_KEPT + 5)]

    health = Health()
    for minute in range(3):
        health = fold(fold(health, [timeout(NOW + minute * MINUTE)]), storm)

    assert len(health.faults) == 1
    assert len(folded(timeout(), *storm).notices) == NOTICES_KEPT
    many = [timeout(device=f"nvme{number}") for number in range(NOTICES_KEPT + 5)]
    assert [notice.device for notice in folded(*many).notices] == [one.device for one in many[5:]]


def test_a_gpu_off_the_bus_gathers_what_follows_from_it() -> None:
    health = folded(
        xid(79),
        xid(45, at=NOW + SECOND),
        xid(45, at=NOW + SECOND, device="c0"),
        sxid(NOW + 12 * SECOND),
        sxid(NOW + 12 * SECOND, switch=2),
        line("NVRM: GPU 0000:b9:00.0: RmInitAdapter failed! (0x62:0x40:2477)", NOW + 14 * SECOND),
    )

    [fault] = health.faults
    assert (fault.code, fault.count, fault.followers) == (79, 1, 5)
    assert health.notices == ()


def test_the_cause_may_be_reported_last() -> None:
    aer = "pcieport 0000:00:02.0: AER: Uncorrected (Fatal) error received: id=0010"

    health = folded(line(aer, NOW - SECOND), sxid(), sxid(), xid(45), xid(79))

    [fault] = health.faults
    assert (fault.code, fault.count, fault.followers) == (79, 1, 4)
    assert health.notices == ()


@pytest.mark.parametrize("sign", [1, -1])
def test_what_comes_too_late_or_too_soon_is_a_fault_of_its_own(sign: int) -> None:
    assert len(folded(xid(79), sxid(NOW + sign * WITHIN)).faults) == 1
    assert len(folded(xid(79), sxid(NOW + sign * (WITHIN + SECOND))).faults) == 2


def test_other_faults_gather_their_echoes_only() -> None:
    health = folded(xid(74), xid(45), sxid(), xid(13))

    assert [(fault.family, fault.followers) for fault in health.faults] == [("sxid", 0), ("xid", 1)]
    assert [notice.code for notice in health.notices] == [13]


def test_an_application_error_gathers_nothing() -> None:
    assert [notice.code for notice in folded(xid(94), xid(45)).notices] == [45]


def test_one_gpu_off_the_bus_does_not_hide_another() -> None:
    assert len(folded(xid(79), xid(79, device="c0"), xid(95), xid(74)).faults) == 4


def test_a_fault_that_was_there_before_is_counted_on() -> None:
    health = folded(sxid(), sxid(NOW + MINUTE), xid(79, at=NOW + MINUTE), sxid(NOW + MINUTE))

    assert {(fault.code, fault.count, fault.followers) for fault in health.faults} == {
        (20034, 3, 0),
        (79, 1, 0),
    }


MIXED = st.lists(
    st.one_of(
        st.builds(lambda s: timeout(NOW + s * 4 * SECOND), st.integers(0, 300)),
        st.builds(lambda s: sxid(NOW + s * SECOND), st.integers(-20, 40)),
        st.builds(
            lambda s, c: xid(c, at=NOW + s * SECOND),
            st.integers(0, 40),
            st.sampled_from([79, 45, 74, 13]),
        ),
    ),
    max_size=25,
)


@given(MIXED, st.integers(0, 25))
@example([timeout(), xid(79), xid(74)], 2)
def test_a_new_agent_that_knows_the_last_report_goes_on_as_the_old_one_would(
    findings: list[Finding], cut: int
) -> None:
    before = folded(*findings[:cut])
    report = NodeReport(
        node="n",
        boot_id="b",
        sequence=1,
        reported_at=NOW,
        faults=before.faults,
        notices=before.notices,
    )

    read = from_plain(NodeReport, json.loads(json.dumps(to_plain(report))))

    known = Health(faults=read.faults, notices=read.notices)
    assert fold(known, findings[cut:]) == folded(*findings)


def test_a_fault_reports_when_its_newest_event_was_seen() -> None:
    health = folded(xid(74), xid(74, at=NOW + 60 * SECOND), xid(74, at=NOW + 30 * SECOND))

    [fault] = health.faults

    assert (fault.since, fault.seen_at) == (NOW, NOW + 60 * SECOND)


def test_a_state_that_lasts_is_no_new_event() -> None:
    first = replace(xid(74), family="state")
    again = replace(first, observed_at=NOW + 60 * SECOND)
    health = fold(Health(), [first], settled={"state"})

    [fault] = fold(health, [again], settled={"state"}).faults

    assert (fault.since, fault.seen_at) == (NOW, None)


DECIDED = [48, 63, 64, 74, 79, 95]


@pytest.mark.parametrize("code", DECIDED)
@pytest.mark.parametrize(("number", "remedy"), [(1, Remedy.RESET_GPU), (2, Remedy.REBOOT)])
@pytest.mark.parametrize("late", [timedelta(0), WITHIN, -WITHIN])
def test_what_the_driver_asks_for_replaces_the_remedies_of_its_causes(
    code: int, number: int, remedy: Remedy, late: timedelta
) -> None:
    for order in (1, -1):
        health = folded(*[xid(code), xid(code), action(number, NOW + late)][::order])

        [fault] = health.faults
        assert (fault.code, fault.remedy, fault.decides) == (154, remedy, (code,))
        assert (fault.count, fault.followers, health.notices) == (1, 2, ())


@pytest.mark.parametrize("late", [WITHIN + SECOND, -WITHIN - SECOND])
def test_the_driver_decides_nothing_that_it_did_not_cause_just_then(late: timedelta) -> None:
    assert len(folded(xid(95), action(1, NOW + late)).faults) == 2


def test_the_driver_decides_for_that_gpu_and_for_the_node_only() -> None:
    health = folded(xid(95, device="c0"), xid(94), action(1), sxid())

    assert sorted(fault.code or 0 for fault in health.faults) == [94, 95, 154, 20034]


def test_a_fault_that_comes_again_with_the_drivers_word_is_decided() -> None:
    health = folded(xid(95), xid(95, at=NOW + MINUTE), action(2, NOW + MINUTE))
    late = folded(xid(95), action(2, NOW + MINUTE), xid(95, at=NOW + MINUTE))

    for one in (health, late):
        assert [(fault.code, fault.followers) for fault in one.faults] == [(154, 2)]


def test_the_newest_word_of_the_driver_replaces_its_older_one() -> None:
    health = folded(action(1), xid(95), action(2, NOW + SECOND))

    [fault] = health.faults
    assert (fault.code, fault.remedy, fault.count) == (154, Remedy.REBOOT, 2)
    assert (fault.decides, fault.followers) == ((95,), 1)


def test_a_gpu_off_the_bus_gathers_its_followers_also_where_the_driver_decided() -> None:
    health = folded(xid(79), action(2), sxid(NOW + 12 * SECOND), xid(45))

    [fault] = health.faults
    assert (fault.code, fault.decides, fault.followers) == (154, (79,), 3)
    [fault] = folded(sxid(), action(2), xid(79)).faults
    assert (fault.code, fault.decides) == (154, (79,))
