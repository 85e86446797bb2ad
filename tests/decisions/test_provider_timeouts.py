"""How long a provider is waited for."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.policy import RemediationPolicy
from holdfast.decisions.provider_timeouts import due_at, pause_after_refusal
from holdfast.model.health import Remedy
from holdfast.model.nodes import Phase
from tests.ports.builders import NOW, a_record, a_remediation

POLICY = RemediationPolicy()
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("replacements", "times"), [(0, 1), (1, 1), (2, 2), (3, 4), (4, 8), (5, 8), (10**9, 8)]
)
def test_each_further_replacement_gets_twice_the_time_up_to_eight_times(
    replacements: int, times: int
) -> None:
    remediation = a_remediation(Remedy.REPLACE, ordered_at=NOW, replacements=replacements)

    due = due_at(a_record(Phase.REPLACING, remediation=remediation), POLICY)

    assert due == NOW + times * POLICY.replace_timeout


def test_a_reboot_gets_its_own_time() -> None:
    remediation = a_remediation(ordered_at=NOW, replacements=3)

    due = due_at(a_record(Phase.REBOOTING, remediation=remediation), POLICY)

    assert due == NOW + POLICY.reboot_timeout


@pytest.mark.parametrize("phase", [Phase.REBOOTING, Phase.REPLACING])
def test_what_was_not_accepted_is_never_overdue(phase: Phase) -> None:
    assert due_at(a_record(phase, remediation=a_remediation(ordered_at=None)), POLICY) is None


@pytest.mark.parametrize("phase", sorted(set(Phase) - {Phase.REBOOTING, Phase.REPLACING}))
def test_nothing_is_overdue_in_other_phases(phase: Phase) -> None:
    assert due_at(a_record(phase, remediation=a_remediation(ordered_at=NOW)), POLICY) is None
    assert due_at(a_record(phase, remediation=None), POLICY) is None


@pytest.mark.parametrize(
    ("waited", "requested", "pause"),
    [
        (timedelta(0), None, 30 * SECOND),
        (30 * SECOND, None, 30 * SECOND),
        (31 * SECOND, None, 31 * SECOND),
        (10 * HOUR, None, HOUR / 6),
        (timedelta(0), 5 * SECOND, 5 * SECOND),
        (4 * SECOND, 5 * SECOND, 5 * SECOND),
        (HOUR / 6 - SECOND, 5 * SECOND, HOUR / 6 - SECOND),
        (10 * HOUR, 5 * SECOND, HOUR / 6),
        (10 * HOUR, HOUR, HOUR),
    ],
)
def test_a_pause_is_as_long_as_was_asked_for_and_as_long_as_the_order_has_waited(
    waited: timedelta, requested: timedelta | None, pause: timedelta
) -> None:
    record = a_record(Phase.REPLACING, phase_since=NOW - waited)

    assert pause_after_refusal(record, requested, POLICY, NOW) == pause


@given(days=st.integers(min_value=1, max_value=30))
def test_a_provider_that_refuses_for_days_is_asked_a_few_times_an_hour(days: int) -> None:
    record, now, requested = a_record(Phase.REPLACING, phase_since=NOW), NOW, 0

    while now < NOW + timedelta(days=days):
        now += pause_after_refusal(record, None, POLICY, now)
        requested += 1

    assert 144 * days - 10 <= requested <= 144 * days + 10
