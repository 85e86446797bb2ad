"""What becomes of jobs on a real Slurm cluster when nodes vanish, and when none is left."""

import time

from final_states import FinalStates
from slurm_fleet_at_work import REPLACE_XID, Fleet, on_both_versions, stays
from training_at_work import Training

from holdfast.adapters.slurm.commands.job_text import NOT_LAUNCHED
from holdfast.model.names import Reason
from tests.engines.slurm_cluster import SlurmPrograms

REFUSES = """
[provider]
replace = "command"
[provider.command]
reboot = ["false"]
replace = ["false"]
"""
SOON_LOST = 'heartbeat_timeout = "5s"'


@on_both_versions
def test_no_job_starts_anew_before_its_rank_on_a_node_that_vanished_has_ended_for_sure(
    fleet: Fleet, final: FinalStates
) -> None:
    """One loses its power, with the script, and is replaced; one is cut off, and kept as it is."""
    controller = fleet.control(nodes=SOON_LOST, slurm='off_after = "1h"')
    cut = Training(fleet, ranks=1, steps=100_000)
    cut.until_step(5)
    (cut_off,) = cut.nodes()
    hold(fleet, cut_off)
    dies = Training(fleet, f"--exclude={cut_off}", steps=240)
    dies.until_step(5)
    dead = dies.nodes()[0]
    plain = fleet.run_job("-N1", "-w", dead, "--requeue", script="sleep 600")

    fleet.machines[dead].power_off()
    fleet.machines[cut_off].cut_off()

    fleet.until(lambda: "DOWN" in fleet.slurm.state(cut_off) and cut.state == "PENDING")
    lines = len(cut.journal)
    stays(lambda: cut.state == "PENDING", 7.0)  # Slurm alone would start it after six seconds
    assert len(cut.journal) > lines, "the rank runs on"
    assert f"ranks on {cut_off} did not terminate" in controller.log
    fleet.machines[cut_off].reconnect()
    fleet.machines[cut_off].kill_slurmd()  # so that it need not be asked first
    fleet.machines[cut_off].start_slurmd()
    cut.until_attempt(1)
    cut.until_step(cut.begun(1)[0][1] + 10)
    cut.check_laws()
    final.check(fleet, "partition", node=cut_off, job=cut.id)
    dies.until_attempt(1)
    dies.until_done()
    final.check(fleet, "power-loss", node=dead, job=dies.id)
    fleet.until(lambda: is_slurms(fleet, plain))
    (silent,) = [one for one in fleet.incidents if one.node == dead]
    assert silent.reason == Reason.NODE_SILENT


def is_slurms(fleet: Fleet, job: str) -> bool:
    """Whether a job runs again, or Slurm itself has parked it, as a launch in it was refused."""
    state, _, why = fleet.slurm.run("squeue", "-h", "-j", job, "-o", "%T|%r").strip().partition("|")
    return state == "RUNNING" or why == NOT_LAUNCHED


def hold(fleet: Fleet, node: str) -> None:
    store = fleet.store()
    store.hold(node, "its cable is being looked for")
    store.close()


def is_idle_in(fleet: Fleet, node: str, reservation: str) -> bool:
    """Whether a node is in service, without work, and in this reservation only."""
    found = fleet.scontrol("show", "reservation", "--oneliner").splitlines()
    names = [line.split()[0] for line in found if f"Nodes={node} " in line]
    return names == [f"ReservationName={reservation}"] and "IDLE" in fleet.slurm.state(node)


@on_both_versions
def test_a_job_is_given_the_spare_node_and_waits_when_there_is_none(
    fleet: Fleet, programs: SlurmPrograms, final: FinalStates
) -> None:
    controller = fleet.control(provider=fleet.by_command(), slurm="spares = {dev = 1}")
    fleet.until(lambda: "HOT_SPARE_dev" in fleet.scontrol("show", "reservation"))
    job = Training(fleet, ranks=3, steps=1_000)
    job.until_step(20)
    hungry = fleet.slurm.submit("-N1", "--exclusive", script="sleep 600")
    (spare,) = set(fleet.machines) - set(job.nodes())
    assert spare in fleet.scontrol("show", "reservation", "HOT_SPARE_dev")

    first, second, _ = job.nodes()
    fleet.machines[first].log(REPLACE_XID)

    job.until_attempt(1)
    assert spare in job.nodes()
    fleet.machines[second].log(REPLACE_XID)
    fleet.until(lambda: "capacity for 2 of 3 ranks" in controller.log)
    stays(lambda: job.state == "PENDING", 1.0)
    assert fleet.slurm.jobs()[hungry] == "PENDING"
    fleet.machines[first].renew()
    job.until_attempt(2)
    assert set(job.nodes()) == {*fleet.machines} - {second}
    fleet.machines[second].renew()
    back = "NEXT_SPARE_dev" if programs.is_old else "HOT_SPARE_dev"
    fleet.until(lambda: is_idle_in(fleet, second, back))
    stays(lambda: fleet.slurm.jobs()[hungry] == "PENDING", 1.0)
    final.check(fleet, "spares-used", node=second, job=job.id)
    fleet.slurm.run("scancel", job.id)
    job.check_laws()


@on_both_versions
def test_a_fault_while_the_job_still_ends_leaves_it_on_neither_node(
    fleet: Fleet, final: FinalStates
) -> None:
    fleet.control(provider=REFUSES)
    job = fleet.run_job(
        "-N2", "--comment=auto-resume=1", script="srun sh -c 'trap \"\" TERM; sleep 600'"
    )
    fleet.machines["node1"].log(REPLACE_XID)
    fleet.until(lambda: fleet.slurm.jobs()[job] == "COMPLETING")

    time.sleep(0.5)
    fleet.machines["node2"].log(REPLACE_XID)

    fleet.until(lambda: fleet.slurm.jobs()[job] == "RUNNING")
    assert fleet.slurm.run("squeue", "-h", "-j", job, "-o", "%N").strip() == "node[3-4]"
    assert "revoked" not in fleet.slurm.log(lines=100_000)
    final.check(fleet, "fault-while-completing", node="node2", job=job)
    final.check(fleet, "provider-fails", node="node1", job=job)


@on_both_versions
def test_a_job_that_slurm_parks_after_a_failed_prolog_goes_elsewhere(
    fleet: Fleet, final: FinalStates
) -> None:
    fleet.control(provider=REFUSES)
    job = fleet.run_job("-N2", "--comment=auto-resume=1")
    fleet.slurm.fail_prolog("node3")

    fleet.machines["node1"].log(REPLACE_XID)

    fleet.until(lambda: fleet.slurm.node("node3")["Reason"].startswith("Prolog error"))
    fleet.until(lambda: fleet.slurm.jobs()[job] == "RUNNING")
    assert fleet.slurm.run("squeue", "-h", "-j", job, "-o", "%N").strip() == "node[2,4]"
    final.check(fleet, "prolog-while-resumed", node="node3", job=job, counts=False)
