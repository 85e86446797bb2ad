"""Daemons of a node on a real Slurm cluster are killed while it trains: nothing may be repaired."""

from datetime import UTC, datetime

from final_states import FinalStates
from slurm_fleet_at_work import Fleet, on_both_versions
from training_at_work import Training


@on_both_versions
def test_a_job_continues_while_slurmd_and_the_agent_of_its_node_are_killed(
    fleet: Fleet, final: FinalStates
) -> None:
    fleet.control(provider=fleet.by_command())
    job = Training(fleet, steps=300, holds=True)
    job.until_step(5)
    first, second = job.nodes()

    slurmd, before = fleet.machines[first], started(fleet, first)
    slurmd.kill_slurmd()
    slurmd.start_slurmd()
    fleet.until(lambda: started(fleet, first) != before)
    job.until_step(100)
    final.check(fleet, "kubelet-killed", node=first, job=job.id)

    agent = fleet.machines[second]
    agent.kill("agent")
    killed_at = datetime.now(UTC).timestamp()
    agent.start("agent", fleet._agent(agent))
    report = fleet.shared / f"{second}.json"
    fleet.until(lambda: report.stat().st_mtime > killed_at)
    job.until_step(200)
    final.check(fleet, "agent-killed", node=second, job=job.id)

    assert not fleet.orders
    assert not fleet.incidents
    job.let_end()
    job.until_done()


def started(fleet: Fleet, node: str) -> str:
    """Time at which the slurmd of a node started, as slurmctld knows it."""
    return fleet.slurm.node(node)["SlurmdStartTime"]
