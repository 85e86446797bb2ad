"""The controller is killed, or a call fails, at each single call of a story in turn."""

from dataclasses import replace
from datetime import timedelta

import pytest
from effort import positions

from holdfast.adapters.sim.scenario import (
    ControllerFaults,
    Defect,
    DefectAppears,
    Hardware,
    LosesPower,
    RemedyRequest,
    Scenario,
    Training,
)
from holdfast.decisions.policy import JobPolicy, RemediationPolicy
from holdfast.kit.quota import Quota
from holdfast.model.health import Remedy
from holdfast.model.jobs import JobPhase, JobSpec
from holdfast.model.requests import Verb
from tests.simulation.trial import judge

FIVE_MINUTES = timedelta(minutes=5)
POLICY = RemediationPolicy(max_unavailable=Quota(count=1))
TRAINING = Training(spec=JobSpec(name="job", nodes=2), steps=60, step_time=timedelta(seconds=10))
STORIES = {
    "a reboot": (DefectAppears(at=FIVE_MINUTES, node=0, defect=Defect(remedy=Remedy.REBOOT)),),
    "a reboot in vain": (
        DefectAppears(at=FIVE_MINUTES, node=0, defect=Defect(remedy=Remedy.REBOOT, relapses=1)),
    ),
    "a replacement": (
        DefectAppears(at=FIVE_MINUTES, node=0, defect=Defect(remedy=Remedy.REPLACE, crashes=True)),
    ),
    "power lost": (LosesPower(at=FIVE_MINUTES, node=1),),
    "a request": (RemedyRequest(at=FIVE_MINUTES, node=0, verb=Verb.REBOOT),),
}
CASES = [(story, keeps_names) for story in STORIES for keeps_names in (False, True)]


def scenario(story: str, *, keeps_names: bool, controller_faults: ControllerFaults) -> Scenario:
    return Scenario(
        nodes=2,
        trainings=(TRAINING,),
        scenario_events=STORIES[story],
        policy=replace(POLICY, deep_check_on_start=keeps_names),
        job_policy=JobPolicy(),
        hardware=Hardware(keeps_names=keeps_names),
        controller_faults=replace(controller_faults, downtime=timedelta(seconds=1)),
    )


def outcome(simulation) -> tuple:
    """What must not depend on where the controller died."""
    (job,) = simulation.world.jobs.values()
    return (
        job.record.phase,
        job.record.hardware_retries,
        job.record.app_retries,
        len(simulation.world.incidents),
        simulation.world.owner.reboots,
        simulation.world.owner.deliveries,
        [incident.remedy for incident in simulation.world.incidents.values()],
        [len(incident.jobs) for incident in simulation.world.incidents.values()],
    )


@pytest.mark.parametrize(("story", "keeps_names"), CASES)
@pytest.mark.parametrize("has_taken_effect", [False, True])
@pytest.mark.parametrize("mishap", ["kills", "failures"])
def test_a_story_ends_the_same_wherever_it_is_interrupted(
    story, keeps_names, has_taken_effect, mishap
) -> None:
    undisturbed = judge(
        scenario(story, keeps_names=keeps_names, controller_faults=ControllerFaults())
    )
    expected = outcome(undisturbed)
    assert expected[0] is JobPhase.SUCCEEDED

    for number in positions(undisturbed.gate.calls):
        controller_faults = ControllerFaults(**{mishap: ((number, has_taken_effect),)})
        disturbed = judge(
            scenario(story, keeps_names=keeps_names, controller_faults=controller_faults)
        )
        assert outcome(disturbed) == expected, f"{mishap} in call {number}"
