"""Worlds that Hypothesis draws, and makes as small as it can when one breaks a law."""

from datetime import timedelta

from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.adapters.sim.scenario import (
    Cancels,
    ControllerFaults,
    Crash,
    Defect,
    DefectAppears,
    Delivery,
    FallsSilent,
    Hangs,
    Hardware,
    LosesPower,
    Outage,
    ProviderReply,
    RemedyRequest,
    ResetsBreaker,
    RunsOut,
    Scenario,
    Training,
    Vanishes,
)
from holdfast.decisions.policy import (
    JobPolicy,
    RecoveryMode,
    RemediationPolicy,
    SilentAgentAction,
)
from holdfast.kit.quota import Quota
from holdfast.model.health import Remedy, Urgency
from holdfast.model.jobs import JobSpec
from holdfast.model.requests import Verb
from tests.simulation.trial import judge

# The deadlines of the policy below, and times just beside them.
delays = st.sampled_from([0.0, 0.001, 1, 20, 39.999, 40, 40.001, 60, 120, 240]).map(
    lambda seconds: timedelta(seconds=seconds)
)
short = st.sampled_from([0.0, 0.001, 1, 40, 60]).map(lambda seconds: timedelta(seconds=seconds))
"""What the policy below has patience for: machines that are slower would never come back."""

at = st.builds(
    lambda minutes, delay: timedelta(minutes=minutes) + delay, st.integers(0, 20), delays
)
number = st.integers(0, 5)
urgency = st.sampled_from(list(Urgency))
defects = st.builds(
    Defect,
    remedy=st.sampled_from(list(Remedy)),
    urgency=urgency,
    crashes=st.booleans(),
    seen_after=delays,
    lasts=st.none() | delays,
    relapses=st.integers(0, 2),
    relapse_after=delays,
)
scenario_events = st.one_of(
    st.builds(DefectAppears, at=at, node=number, defect=defects),
    st.builds(LosesPower, at=at, node=number),
    st.builds(Vanishes, at=at, node=number),
    st.builds(Hangs, at=at, node=number, lasts=st.none() | delays),
    st.builds(FallsSilent, at=at, node=number, lasts=delays),
    st.builds(RemedyRequest, at=at, node=number, verb=st.sampled_from(list(Verb)), urgency=urgency),
    st.builds(ResetsBreaker, at=at),
    st.builds(Cancels, at=at, job=st.integers(0, 1)),
    st.builds(RunsOut, at=at, lasts=delays),
    st.builds(Outage, at=at, lasts=delays),
)
policies = st.builds(
    RemediationPolicy,
    node_recovery=st.sampled_from(list(RecoveryMode)),
    max_unavailable=st.sampled_from([Quota(count=1), Quota(count=2), Quota(percent=34.0)]),
    replacements_per_hour=st.sampled_from([None, Quota(count=40)]),
    replacements_per_day=st.sampled_from([None, Quota(count=200)]),
    drain_timeout=delays,
    silent_remedy=st.sampled_from([Remedy.REBOOT, Remedy.REPLACE]),
    silent_agent_action=st.sampled_from(list(SilentAgentAction)),
    incident_retention=st.sampled_from([timedelta(minutes=5), timedelta(days=90)]),
    incidents_kept=st.sampled_from([1, 2000]),
    join_timeout=st.just(timedelta(minutes=2)),
    reboot_timeout=st.just(timedelta(minutes=2)),
    reboot_window=delays,
    replace_timeout=st.just(timedelta(minutes=4)),
    offender_faults=st.integers(1, 3),
    breaker_min_nodes=st.integers(2, 5),
    breaker_close_after=st.sampled_from([timedelta(0), timedelta(minutes=3)]),
    provider_retry=st.just(timedelta(seconds=15)),
    deep_check_on_start=st.booleans(),
    deep_check_timeout=st.just(timedelta(minutes=2)),
)
trainings = st.builds(
    Training,
    spec=st.builds(
        JobSpec,
        name=st.just("job"),
        nodes=st.integers(1, 4),
        max_retries=st.integers(0, 3),
        max_app_retries=st.integers(0, 3),
    ),
    steps=st.integers(1, 50),
    step_time=st.sampled_from([timedelta(seconds=5), timedelta(seconds=20)]),
    load_time=delays,
    checkpoint_steps=st.integers(1, 20),
    crashes=st.lists(
        st.builds(Crash, step=st.integers(0, 40), times=st.integers(1, 4)), max_size=1
    ).map(tuple),
    stop_time=st.sampled_from([timedelta(0), timedelta(seconds=1), timedelta(seconds=5)]),
    handles_sigterm=st.booleans(),
)
hardware = st.builds(
    Hardware,
    boot_time=short,
    reboot_time=short,
    replace_time=short,
    keeps_names=st.booleans(),
    answers=st.lists(st.sampled_from(list(ProviderReply)), max_size=3).map(tuple),
    deliveries=st.lists(st.sampled_from(list(Delivery)), max_size=3).map(tuple),
    lost_reboots=st.lists(st.booleans(), max_size=2).map(tuple),
    failed_checks=st.lists(st.sampled_from([False, True, None]), max_size=3).map(tuple),
)
calls = st.lists(st.tuples(st.integers(1, 300), st.booleans()), max_size=4).map(tuple)
controller_faults = st.builds(
    ControllerFaults,
    kills=calls,
    failures=calls,
    misses_events=st.booleans(),
    jobs_first=st.booleans(),
)
pauses = st.sampled_from([timedelta(0), timedelta(seconds=2), timedelta(minutes=2)])
scenarios = st.builds(
    Scenario,
    nodes=st.integers(2, 6),
    trainings=st.lists(trainings, max_size=1).map(tuple),
    scenario_events=st.lists(scenario_events, max_size=6).map(tuple),
    policy=policies,
    job_policy=st.builds(
        JobPolicy,
        wait_for_nodes=st.just(timedelta(minutes=30)),
        launch_timeout=st.just(timedelta(minutes=2)),
        failure_margin=pauses,
        app_backoff=pauses,
        app_backoff_max=st.just(timedelta(minutes=2)),
        app_backoff_reset=st.sampled_from([timedelta(seconds=1), timedelta(minutes=10)]),
        suspect_failures=st.sampled_from([0, 2, 3]),
    ),
    hardware=hardware,
    controller_faults=controller_faults,
)


@settings(max_examples=examples(500))
@given(scenarios)
def test_every_law_holds_in_every_drawn_world(scenario) -> None:
    judge(scenario)
