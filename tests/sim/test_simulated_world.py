"""The simulated machines, jobs and calls behave as real ones would."""

from datetime import timedelta

import pytest

from holdfast.adapters.sim.call_gate import CallGate, ControllerKilled
from holdfast.adapters.sim.cluster import cluster_view
from holdfast.adapters.sim.machine import Power, SimMachine
from holdfast.adapters.sim.scenario import (
    ControllerFaults,
    Crash,
    Defect,
    DefectAppears,
    FallsSilent,
    Hangs,
    LosesPower,
    MachineFailure,
    Outage,
    Scenario,
    Training,
    Wear,
)
from holdfast.adapters.sim.simulation import START, Simulation
from holdfast.adapters.sim.training import new_job
from holdfast.decisions.policy import RemediationPolicy
from holdfast.kit.quota import Quota
from holdfast.model.errors import BackendError
from holdfast.model.health import Remedy
from holdfast.model.jobs import JobPhase, JobRecord, JobSpec
from holdfast.model.nodes import Phase
from tests.ports.builders import NOW

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


# machines


def a_machine() -> SimMachine:
    machine = SimMachine(provider_id="i-1", heartbeat=10 * SECOND, power=Power.ON)
    machine.send_heartbeat(NOW)
    return machine


@pytest.mark.parametrize(("age", "heard"), [(0, 0), (9, 0), (10, 10), (29, 20)])
def test_an_agent_is_heard_at_every_heartbeat(age, heard) -> None:
    assert a_machine().heartbeat_at(NOW + age * SECOND) == NOW + heard * SECOND


def test_a_silent_agent_was_heard_at_its_last_heartbeat() -> None:
    machine = a_machine()

    machine.fall_silent(NOW + 15 * SECOND)

    assert machine.heartbeat_at(NOW + MINUTE) == NOW + 10 * SECOND


def test_a_silent_agent_reports_nothing_new() -> None:
    machine = a_machine()
    machine.fall_silent(NOW)

    machine.note(Defect(remedy=Remedy.REBOOT), NOW)

    assert machine.report() == ()
    machine.send_heartbeat(NOW)
    assert len(machine.report()) == 1


def test_a_boot_forgets_everything_but_the_machine() -> None:
    machine = a_machine()
    machine.note(Defect(remedy=Remedy.REBOOT), NOW)

    machine.cut(Power.BOOTING)

    assert (machine.boot_id, machine.heartbeat_at(NOW), machine.report()) == ("boot-2", None, ())
    assert machine.powered_on is None


def test_evidence_that_is_seen_again_is_the_same_fault_unless_it_hit_another_application() -> None:
    machine = a_machine()
    for remedy in (Remedy.REBOOT, Remedy.RESTART_APP):
        machine.note(Defect(remedy=remedy), NOW)
        machine.note(Defect(remedy=remedy), NOW + MINUTE)

    reboot, restart = machine.report()

    assert (reboot.since, reboot.seen_at, reboot.count) == (NOW, NOW + MINUTE, 2)
    assert restart.since == NOW + MINUTE


# training

TRAINING = Training(
    spec=JobSpec(name="job", nodes=1),
    steps=100,
    step_time=SECOND,
    load_time=10 * SECOND,
    checkpoint_steps=10,
    checkpoint_time=2 * SECOND,
    crashes=(Crash(step=35, times=1),),
)


def a_running_job(training=TRAINING):
    job = new_job(training, JobRecord(phase=JobPhase.RUNNING, phase_since=NOW))
    job.begin(NOW)
    return job


@pytest.mark.parametrize(
    ("seconds", "step", "saved"),
    [
        (9, None, 0),  # it loads
        (10, 0, 0),
        (19, 9, 0),
        (20, 10, 0),  # it saves the checkpoint
        (21, 10, 0),
        (22, 10, 10),
        (23, 11, 10),
        (34, 20, 20),
        (10 + 1000, 100, 100),
    ],
)
def test_steps_wait_for_checkpoints_and_checkpoints_count_when_they_are_complete(
    seconds, step, saved
) -> None:
    job = a_running_job()
    at = NOW + seconds * SECOND

    assert (job.step(at), job.saved_by(at)) == (step, saved)


def test_what_was_not_saved_is_lost() -> None:
    job = a_running_job()
    job.halt(NOW + 30 * SECOND)  # 18 steps are done, 10 are saved

    job.begin(NOW + MINUTE)

    assert job.step(NOW + 70 * SECOND) == 10


def test_a_job_that_froze_goes_on_where_it_stood() -> None:
    job = a_running_job()
    job.halt(NOW + 30 * SECOND)
    assert job.step(NOW + MINUTE) == 18

    job.resume(NOW + MINUTE)

    assert job.step(NOW + MINUTE) == 18
    assert job.step(NOW + MINUTE + SECOND) == 19


def test_a_job_crashes_at_its_step_and_finishes_when_that_is_over() -> None:
    job = a_running_job()
    crash = TRAINING.crashes[0]

    assert job.next_end() == (NOW + (10 + 35 + 3 * 2) * SECOND, crash)
    job.crashes_left[crash] = 0
    assert job.next_end() == (NOW + (10 + 100 + 9 * 2) * SECOND, None)


# the line


class Clock:
    now = START


def a_line(outages=(), **controller_faults) -> CallGate:
    return CallGate(Clock(), ControllerFaults(**controller_faults), outages)


@pytest.mark.parametrize(("has_effect", "expected"), [(False, []), (True, ["effect"])])
@pytest.mark.parametrize(
    ("mishap", "error"), [("kills", ControllerKilled), ("failures", BackendError)]
)
def test_a_call_goes_wrong_before_or_after_its_effect(mishap, error, has_effect, expected) -> None:
    gate = a_line(**{mishap: ((2, has_effect),)})
    effects = []
    with gate.reading():
        pass

    with pytest.raises(error), gate.writing():
        effects.append("effect")

    assert effects == expected


@pytest.mark.parametrize(("begin", "fails"), [(-1, True), (0, True), (1, False)])
def test_in_an_outage_every_call_fails_that_can(begin, fails) -> None:
    gate = a_line(outages=((START + begin * SECOND, START + 2 * SECOND),))

    with gate.safe():
        pass
    if fails:
        with pytest.raises(BackendError), gate.reading():
            pass
    else:
        with gate.reading():
            pass


def test_an_outage_ends() -> None:
    gate = a_line(outages=((START - SECOND, START),))

    with gate.reading():
        pass


# the world


def a_simulation(*scenario_events, **changes) -> Simulation:
    training = Training(spec=JobSpec(name="job", nodes=2), steps=10**6, step_time=SECOND)
    scenario = Scenario(
        **{"nodes": 3, "trainings": (training,), "scenario_events": scenario_events, **changes}
    )
    return Simulation(scenario)


def phases(simulation):
    return [node.record.phase for node in cluster_view(simulation.world).nodes]


def test_a_fleet_boots_and_its_job_runs() -> None:
    simulation = a_simulation()

    simulation.run(5 * MINUTE)

    assert phases(simulation) == [Phase.SCHEDULABLE] * 3
    (job,) = simulation.world.jobs.values()
    assert job.record.phase is JobPhase.RUNNING
    assert simulation.world.now == START + 5 * MINUTE
    # The fleet boots and the job loads for half a minute each.
    assert job.step(simulation.world.now) == 240


def test_nothing_is_asked_of_a_controller_while_all_is_well() -> None:
    simulation = a_simulation()
    simulation.run(5 * MINUTE)
    calls = simulation.gate.calls

    simulation.run(timedelta(days=1))

    assert simulation.gate.calls == calls


def test_a_node_without_power_loses_its_ranks_at_once() -> None:
    simulation = a_simulation(LosesPower(at=5 * MINUTE, node=0))

    simulation.run(5 * MINUTE)

    (job,) = simulation.world.jobs.values()
    assert job.record.failure is not None
    assert [rank.exit_code for rank in job.ranks] == [-9, None]


def test_nothing_can_be_ended_on_a_node_that_hangs_until_it_wakes() -> None:
    simulation = a_simulation(Hangs(at=5 * MINUTE, node=0, lasts=70 * SECOND))

    simulation.run(6 * MINUTE)
    (job,) = simulation.world.jobs.values()
    assert [rank.exit_code for rank in job.ranks] == [None, -15]

    simulation.run(6 * MINUTE + 10 * SECOND)
    assert job.record.phase is not JobPhase.STOPPING
    assert phases(simulation)[0] is Phase.SCHEDULABLE


def test_a_short_hang_goes_unnoticed_and_costs_its_time() -> None:
    simulation = a_simulation(Hangs(at=5 * MINUTE, node=0, lasts=20 * SECOND))

    simulation.run(6 * MINUTE)

    (job,) = simulation.world.jobs.values()
    assert job.record.attempt == 1
    assert job.step(simulation.world.now) == 300 - 20


def test_ranks_work_on_under_an_agent_that_is_silent() -> None:
    simulation = a_simulation(FallsSilent(at=5 * MINUTE, node=0, lasts=20 * SECOND))

    simulation.run(6 * MINUTE)

    (job,) = simulation.world.jobs.values()
    assert job.step(simulation.world.now) == 300


def test_a_defect_comes_back_as_often_as_it_was_reported() -> None:
    defect = Defect(remedy=Remedy.REBOOT, relapses=1)
    simulation = a_simulation(DefectAppears(at=5 * MINUTE, node=2, defect=defect))

    simulation.run(15 * MINUTE)

    assert (simulation.world.owner.reboots, simulation.world.owner.deliveries) == (1, 1)
    assert phases(simulation) == [Phase.SCHEDULABLE] * 3


def test_an_outage_is_sat_out() -> None:
    simulation = a_simulation(
        LosesPower(at=5 * MINUTE, node=0), Outage(at=5 * MINUTE, lasts=2 * MINUTE)
    )

    simulation.run(6 * MINUTE)
    assert phases(simulation)[0] is Phase.SCHEDULABLE
    simulation.run(15 * MINUTE)
    assert simulation.world.owner.deliveries == 1


def test_a_controller_that_dies_is_followed_by_another() -> None:
    controller_faults = ControllerFaults(kills=((1, False), (30, True)), downtime=MINUTE)
    simulation = a_simulation(controller_faults=controller_faults)

    simulation.run(10 * MINUTE)

    assert phases(simulation) == [Phase.SCHEDULABLE] * 3


# wear


def worn(**changes) -> Simulation:
    wear = Wear(
        **{
            "per_machine_day": 1.0,
            "kinds": ((Defect(remedy=Remedy.RESTART_APP), 1),),
            **changes,
        }
    )
    often = Quota(count=1000)  # far more machines fail than the default limits let be replaced
    policy = RemediationPolicy(replacements_per_hour=often, replacements_per_day=often)
    simulation = Simulation(Scenario(nodes=50, wear=wear, policy=policy))
    simulation.run(timedelta(days=10))
    return simulation


def fault_counts(simulation) -> list[int]:
    machines = [node.machine for node in simulation.world.nodes.values()]
    return sorted(sum(1 for _ in machine.report()) for machine in machines)


def test_faults_come_at_their_rate() -> None:
    simulation = worn(kinds=((MachineFailure.POWER, 1),))

    # 500 are expected; sigma is 22.
    assert 400 < simulation.world.owner.deliveries < 600


def test_without_wear_nothing_breaks() -> None:
    assert fault_counts(worn(per_machine_day=0.0)) == [0] * 50


def test_lemons_have_most_of_the_faults() -> None:
    alike = sum(fault_counts(worn(per_machine_day=0.3)))
    lemons = sum(fault_counts(worn(per_machine_day=0.3, shape=0.2)))

    assert lemons < alike  # the same number of faults on fewer machines


def test_the_same_seed_wears_out_the_same_machines() -> None:
    assert fault_counts(worn(per_machine_day=0.1)) == fault_counts(worn(per_machine_day=0.1))
