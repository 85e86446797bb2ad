from datetime import timedelta
from typing import get_args, get_type_hints

import pytest

from holdfast.decisions.policy import JobPolicy, RemediationPolicy
from holdfast.model.health import Remedy

MAY_BE_ZERO = {
    *("drain_timeout", "reboot_window", "breaker_close_after"),
    *("wait_for_nodes", "launch_timeout", "settle", "report_timeout", "fault_grace"),
    *("failure_margin", "app_backoff"),
}
"""Durations that turn something off, or let it happen at once."""


def durations(policy):
    hints = get_type_hints(policy)
    return [(policy, key) for key, kind in hints.items() if timedelta in {kind, *get_args(kind)}]


DURATIONS = durations(RemediationPolicy) + durations(JobPolicy)


@pytest.mark.parametrize(("policy", "key"), DURATIONS)
def test_no_duration_is_negative(policy, key) -> None:
    with pytest.raises(ValueError, match=f"{key} must (be longer than 0s|not be negative)"):
        policy(**{key: timedelta(seconds=-1)})


@pytest.mark.parametrize(("policy", "key"), DURATIONS)
def test_a_deadline_that_is_over_at_once_is_refused(policy, key) -> None:
    zero = {key: timedelta(0)}
    if key == "app_backoff_max":
        policy(app_backoff=timedelta(0), **zero)
    elif key in MAY_BE_ZERO:
        policy(**zero)
    else:
        with pytest.raises(ValueError, match=f"{key} must be longer than 0s"):
            policy(**zero)


def test_a_run_that_ends_a_row_of_crashes_takes_time() -> None:
    for span in (timedelta(0), timedelta(seconds=-1)):
        with pytest.raises(ValueError, match="app_backoff_reset must be longer than 0s"):
            JobPolicy(app_backoff_reset=span)


@pytest.mark.parametrize("share", [0.0, -1.0, 100.1])
def test_a_share_is_a_percentage(share) -> None:
    with pytest.raises(ValueError, match="breaker_share must be above 0 and at most 100"):
        RemediationPolicy(breaker_share=share)


@pytest.mark.parametrize("key", ["offender_faults", "breaker_min_nodes", "incidents_kept"])
def test_a_count_is_one_or_more(key) -> None:
    RemediationPolicy(**{key: 1})
    with pytest.raises(ValueError, match=f"{key} must be 1 or more"):
        RemediationPolicy(**{key: 0})


@pytest.mark.parametrize("remedy", [Remedy.NONE, Remedy.RESTART_APP, Remedy.RESET_GPU])
def test_a_silent_node_must_be_repaired(remedy) -> None:
    with pytest.raises(ValueError, match="silent_remedy must be reboot or replace"):
        RemediationPolicy(silent_remedy=remedy)


def test_the_first_pause_of_a_series_is_not_longer_than_its_last() -> None:
    longest = timedelta(minutes=1)
    RemediationPolicy(provider_retry=longest, provider_retry_max=longest)
    JobPolicy(app_backoff=longest, app_backoff_max=longest)

    for kind, key in ((RemediationPolicy, "provider_retry"), (JobPolicy, "app_backoff")):
        with pytest.raises(ValueError, match=f"{key} must not be longer than {key}_max"):
            kind(**{key: longest + timedelta(microseconds=1), f"{key}_max": longest})


def test_groups_to_check_need_a_time_to_check_them() -> None:
    groups = ("gpu",)
    RemediationPolicy(deep_check_groups=groups, deep_check_on_start=True)
    RemediationPolicy(deep_check_groups=groups, deep_check_every=timedelta(days=1))

    with pytest.raises(ValueError, match="deep_check_groups needs deep_check_on_start or"):
        RemediationPolicy(deep_check_groups=groups)


def test_a_job_waits_long_enough_for_two_replacements() -> None:
    assert JobPolicy().wait_for_nodes >= 2 * RemediationPolicy().replace_timeout
