"""Which incidents of the past are deleted."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.incident_updates import expired
from holdfast.decisions.policy import RemediationPolicy
from holdfast.model.incidents import Incident
from tests.ports.builders import NOW

POLICY = RemediationPolicy(incident_retention=timedelta(days=90), incidents_kept=3)
TICK = timedelta(microseconds=1)


def an_incident(name: str, ago: timedelta | None) -> Incident:
    """An incident that ended so long ago; None for one that is open."""
    began = NOW - timedelta(days=1000)
    return Incident(
        id=name,
        node="node-1",
        provider_id="i-1",
        reason="reason",
        remedy="replace",
        detected_at=began,
        quarantined_at=began,
        released_at=None if ago is None else NOW - ago,
    )


@pytest.mark.parametrize(
    ("ago", "is_expired"),
    [
        (POLICY.incident_retention - TICK, False),
        (POLICY.incident_retention, True),
        (POLICY.incident_retention + TICK, True),
    ],
)
def test_an_incident_expires_so_long_after_its_end(ago, is_expired) -> None:
    assert bool(expired([an_incident("a", ago)], POLICY, NOW)) is is_expired


def test_beyond_the_count_the_oldest_expire() -> None:
    ended = [an_incident(f"{days}", timedelta(days=days)) for days in (1, 5, 2, 4, 3)]

    assert expired(ended, POLICY, NOW) == ("5", "4")


def test_a_vanished_node_ends_its_incident() -> None:
    gone = replace(an_incident("a", None), vanished_at=NOW - timedelta(days=91))

    assert expired([gone], POLICY, NOW) == ("a",)


@given(st.lists(st.none() | st.integers(0, 200), max_size=12), st.integers(1, 5))
def test_open_incidents_never_expire_and_no_more_are_kept_than_allowed(ages, kept) -> None:
    policy = replace(POLICY, incidents_kept=kept)
    incidents = [
        an_incident(str(number), None if age is None else timedelta(days=age))
        for number, age in enumerate(ages)
    ]

    gone = set(expired(incidents, policy, NOW))

    left = [one for one in incidents if one.id not in gone]
    assert {one.id for one in incidents if one.ended_at is None}.isdisjoint(gone)
    assert sum(one.ended_at is not None for one in left) <= kept
