"""Hypothesis strategies for policies, in which every setting varies."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import strategies as st

from holdfast.decisions.loss_faults import LossLimits
from holdfast.decisions.policy import (
    JobPolicy,
    RecoveryMode,
    RemediationPolicy,
    SilentAgentAction,
    StragglerAction,
)
from holdfast.decisions.restart_rungs import RestartBudget
from holdfast.kit.quota import Quota
from holdfast.model.health import Remedy
from holdfast.model.jobs import LossAction

DEFAULT = RemediationPolicy(breaker_min_nodes=2)
"""Small enough for the breaker to trip in the small clusters of the laws."""

TICK = timedelta(microseconds=1)
MINUTE = timedelta(minutes=1)


def _near(default: timedelta) -> st.SearchStrategy[timedelta]:
    """Durations beside the default, on which the ages that the laws draw fall."""
    return st.sampled_from([default, max(TICK, default - TICK), default + TICK, 2 * default])


quotas = st.builds(Quota, count=st.integers(0, 3)) | st.builds(
    Quota, percent=st.sampled_from([0.0, 20.0, 33.4, 50.0, 100.0])
)

NODE_SETTINGS: dict[str, st.SearchStrategy] = {
    "node_recovery": st.sampled_from(list(RecoveryMode)),
    "max_unavailable": quotas,
    "replacements_per_hour": st.none() | st.builds(Quota, count=st.integers(0, 4)),
    "replacements_per_day": st.none() | st.builds(Quota, count=st.integers(0, 4)),
    "drain_timeout": st.just(timedelta(0)) | _near(DEFAULT.drain_timeout),
    "heartbeat_timeout": _near(DEFAULT.heartbeat_timeout),
    "silent_remedy": st.sampled_from([Remedy.REBOOT, Remedy.REPLACE]),
    "silent_agent_action": st.sampled_from(list(SilentAgentAction)),
    "join_timeout": _near(DEFAULT.join_timeout),
    "reboot_timeout": _near(DEFAULT.reboot_timeout),
    "reboot_window": st.just(timedelta(0)) | _near(DEFAULT.reboot_window),
    "replace_timeout": _near(DEFAULT.replace_timeout),
    "offender_faults": st.integers(1, 4),
    "offender_window": _near(DEFAULT.offender_window),
    "breaker_share": st.sampled_from([1.0, 50.0, 100.0]),
    "breaker_window": _near(DEFAULT.breaker_window),
    "breaker_min_nodes": st.integers(1, 5),
    "breaker_close_after": st.sampled_from([timedelta(0), TICK, timedelta(minutes=30)]),
    "provider_retry": st.sampled_from([TICK, timedelta(seconds=30), timedelta(minutes=10)]),
    "provider_retry_max": st.sampled_from([timedelta(minutes=10), timedelta(hours=1)]),
    "deep_check_on_start": st.booleans(),
    "deep_check_groups": st.sampled_from([(), ("",), ("other",)]),
    "deep_check_timeout": _near(DEFAULT.deep_check_timeout),
    "deep_check_pairs": st.booleans(),
    "pair_timeout": _near(DEFAULT.pair_timeout),
    "deep_check_every": st.none() | st.sampled_from([TICK, MINUTE, timedelta(days=1)]),
    "max_checking": st.builds(Quota, count=st.integers(1, 3))
    | st.builds(Quota, percent=st.sampled_from([1.0, 50.0, 100.0])),
    "incident_retention": st.sampled_from([TICK, MINUTE, timedelta(days=90)]),
    "incidents_kept": st.sampled_from([1, 2, 2000]),
}
"""Strategy of each setting of ``RemediationPolicy``."""

_PAUSES = st.sampled_from([timedelta(0), TICK, timedelta(seconds=10), timedelta(minutes=5)])

JOB_SETTINGS: dict[str, st.SearchStrategy] = {
    "wait_for_nodes": _PAUSES | st.just(timedelta(hours=2)),
    "launch_timeout": _PAUSES | st.just(timedelta(minutes=10)),
    "settle": _PAUSES,
    "report_timeout": _PAUSES,
    "fault_grace": _PAUSES,
    "failure_margin": _PAUSES,
    "app_backoff": _PAUSES,
    "app_backoff_max": st.sampled_from([timedelta(minutes=5), timedelta(hours=1)]),
    "app_backoff_reset": st.sampled_from([TICK, timedelta(minutes=10)]),
    "stop_on_permanent_cause": st.booleans(),
    "suspect_failures": st.sampled_from([0, 2, 3]),
    "suspect_window": st.sampled_from([TICK, MINUTE, timedelta(hours=24)]),
    "straggler_action": st.sampled_from(list(StragglerAction)),
}
"""Strategy of each setting of ``JobPolicy``."""

LOSS_SETTINGS: dict[str, st.SearchStrategy] = {
    "action": st.sampled_from(list(LossAction)),
    "window": st.sampled_from([1, 2, 9, 10, 11, 10_000]),
    "tolerance": st.sampled_from([0.0, 0.5, 1.0, 2.0, 10.0]),
}
"""Strategy of each setting of ``LossLimits``."""

BUDGET_SETTINGS: dict[str, st.SearchStrategy] = {
    "in_place": st.integers(0, 4) | st.sampled_from([49, 50, 51, 100]),
    "period": st.sampled_from([TICK, timedelta(hours=1), timedelta(hours=1000)]),
    "exchanges": st.integers(0, 4),
    "job_restarts": st.integers(0, 1),
    "total": st.none() | st.integers(0, 4),
    "offender_failures": st.integers(0, 4),
}
"""Strategy of each setting of ``RestartBudget``."""


def _built(settings: dict[str, object]) -> RemediationPolicy:
    if not (settings["deep_check_on_start"] or settings["deep_check_every"]):
        settings = {**settings, "deep_check_groups": ()}
    return replace(DEFAULT, **settings)


node_policies = st.fixed_dictionaries(NODE_SETTINGS).map(_built)
job_policies = st.builds(JobPolicy, **JOB_SETTINGS)
loss_limits = st.builds(LossLimits, **LOSS_SETTINGS)
restart_budgets = st.builds(RestartBudget, **BUDGET_SETTINGS)
