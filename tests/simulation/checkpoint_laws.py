"""Laws of checkpoints that were moved in a simulated world."""

from collections.abc import Callable
from datetime import timedelta

from holdfast.adapters.sim.world import World
from holdfast.decisions.checkpoint_incidents import quarantine_id


def judge_moved_checkpoints(world: World, check: Callable[[bool, str], None]) -> None:
    """Each checkpoint that was moved has an incident, unless incidents expire so soon."""
    policy = world.scenario.policy
    if policy.incidents_kept < 2000 or policy.incident_retention < timedelta(days=1):
        return
    for name, job in world.jobs.items():
        for one in job.checkpoints.history.aside if job.checkpoints is not None else ():
            has_incident = quarantine_id(one) in world.incidents
            check(has_incident, f"the move of {one.name} of {name} has no incident")
