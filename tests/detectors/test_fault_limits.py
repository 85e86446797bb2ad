"""What a node remembers is bounded, whatever its logs name."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.detectors.folding import Health, fold
from holdfast.detectors.known_findings import FAULTS_KEPT
from holdfast.model.health import Finding, Remedy, Severity, Urgency
from holdfast.model.names import Condition, Reason

NOW = datetime(2025, 11, 20, 12, 0, tzinfo=UTC)
WINDOW = timedelta(minutes=5)


def xid(device: int, remedy: Remedy = Remedy.REBOOT, at: int = 0, **changes: object) -> Finding:
    finding = Finding(
        family="xid",
        condition=Condition.NVIDIA_REBOOT,
        reason=Reason.XID_REBOOT,
        severity=Severity.FATAL,
        remedy=remedy,
        message=f"line of device {device}",
        observed_at=NOW + timedelta(seconds=at),
        code=95,
        device=f"PCI:{device:04x}:00:00",
    )
    return replace(finding, **changes)


def storm(devices: int, **changes: object) -> Health:
    return fold(Health(), [xid(device, **changes) for device in range(devices)])


@pytest.mark.parametrize("devices", [FAULTS_KEPT - 1, FAULTS_KEPT, FAULTS_KEPT + 1, 1000])
def test_of_each_family_so_many_faults_are_kept_and_one_for_the_others(devices: int) -> None:
    health = storm(devices)

    own = [one for one in health.faults if one.reason == Reason.XID_REBOOT]
    others = [one for one in health.faults if one.reason == Reason.FAULTS_OMITTED]
    assert len(own) == min(devices, FAULTS_KEPT)
    assert [one.count for one in others] == [devices - FAULTS_KEPT] * (devices > FAULTS_KEPT)


@pytest.mark.attack
def test_a_fault_of_another_family_is_reported_beside_a_storm() -> None:
    other = replace(xid(0), family="efa", reason=Reason.EFA_COUNT)

    health = fold(storm(1000), [other])

    assert other.key in [one.key for one in health.faults]


def test_a_known_fault_is_counted_although_its_family_is_full() -> None:
    health = fold(storm(1000), [xid(0, at=1)])

    assert next(one.count for one in health.faults if one.device == xid(0).device) == 2


remedies = st.sampled_from([one for one in Remedy if one is not Remedy.NONE])


@given(st.lists(st.tuples(remedies, st.sampled_from(Urgency)), min_size=1, max_size=6))
def test_what_stands_for_the_others_has_their_strongest_remedy(
    rest: list[tuple[Remedy, Urgency]],
) -> None:
    more = [
        xid(1000 + number, remedy, urgency=urgency) for number, (remedy, urgency) in enumerate(rest)
    ]

    health = fold(storm(FAULTS_KEPT), more)

    [summary] = [one for one in health.faults if one.reason == Reason.FAULTS_OMITTED]
    worst = max(rest, key=lambda one: (one[0].strength, one[1] is Urgency.IMMEDIATE))
    assert (summary.remedy, summary.urgency) == worst


def test_suspects_leave_the_places_of_faults_free() -> None:
    forged = [xid(device, corroborated_within=WINDOW) for device in range(1000)]

    health = fold(Health(), [*forged, xid(2000)])

    assert [one.device for one in health.faults] == [xid(2000).device]
    assert len(health.suspects) == FAULTS_KEPT
    assert Reason.FAULTS_OMITTED in [notice.reason for notice in health.notices]
    assert all(one.remedy is Remedy.NONE for one in health.reported)


def test_a_state_that_has_ended_ends_the_fault_for_the_others_too() -> None:
    health = fold(Health(), [xid(device) for device in range(1000)], settled=["xid"])
    assert Reason.FAULTS_OMITTED in [one.reason for one in health.faults]

    left = fold(health, [xid(device) for device in range(10)], settled=["xid"])

    assert len(left.faults) == 10
