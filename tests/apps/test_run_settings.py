"""Settings of a local run that contradict each other."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.apps.run.settings import LocalNodePolicy, MachineSettings, RunConfig

SECOND = timedelta(seconds=1)
TICK = timedelta(microseconds=1)
TIMEOUTS = ("join_timeout", "reboot_timeout", "replace_timeout")


@pytest.mark.parametrize("key", TIMEOUTS)
@pytest.mark.parametrize("spare", [timedelta(0), -TICK])
def test_a_machine_that_boots_longer_than_its_node_is_waited_for_is_refused(key, spare) -> None:
    nodes = LocalNodePolicy(**{key: 30 * SECOND}, heartbeat_timeout=5 * SECOND)
    machines = MachineSettings(boot_time=25 * SECOND - spare)

    if spare < timedelta(0):
        with pytest.raises(ValueError, match=f"within nodes.{key}"):
            RunConfig(nodes=nodes, machines=machines)
    else:
        RunConfig(nodes=nodes, machines=machines)


@pytest.mark.parametrize(("heartbeat", "fits"), [(5 * SECOND - TICK, True), (5 * SECOND, False)])
def test_heartbeats_are_closer_together_than_the_silence_of_a_lost_node(heartbeat, fits) -> None:
    nodes, machines = (
        LocalNodePolicy(heartbeat_timeout=5 * SECOND),
        MachineSettings(heartbeat=heartbeat),
    )

    if fits:
        RunConfig(nodes=nodes, machines=machines)
    else:
        with pytest.raises(ValueError, match=r"machines\.heartbeat"):
            RunConfig(nodes=nodes, machines=machines)


durations = st.integers(1, 400).map(lambda seconds: seconds * SECOND)


@given(boot=durations, silence=durations, join=durations, reboot=durations, replace=durations)
def test_what_is_accepted_lets_every_node_report_in_time(
    boot, silence, join, reboot, replace
) -> None:
    nodes = LocalNodePolicy(
        heartbeat_timeout=silence,
        join_timeout=join,
        reboot_timeout=reboot,
        replace_timeout=replace,
    )
    try:
        config = RunConfig(nodes=nodes, machines=MachineSettings(boot_time=boot))
    except ValueError:
        assert boot + silence > min(join, reboot, replace)
    else:
        assert config.machines.boot_time < min(join, reboot, replace)
