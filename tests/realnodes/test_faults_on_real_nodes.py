"""Faults of real nodes: real agents find them, and real pods of a job run again."""

from phases import Phases
from site_of_nodes import REBOOT_XID, REPLACE_XID, Site


def test_a_job_leaves_a_node_that_is_rebooted_and_released(site: Site, phases: Phases) -> None:
    victim = min(name for name in site.in_service() if not site.incidents(name))  # none escalates
    job = site.submit("reboots", near=victim)
    job.until_training(1)
    first = job.places
    assert victim in first.values()
    boot = site.cluster.nodes[victim].boot_id

    phases.begin()
    site.cluster.nodes[victim].log(REBOOT_XID)
    phases.reach("marked", lambda: site.health(victim) == "UnschedulablePendingReboot")
    phases.reach("stopped", lambda: not first.keys() & job.places.keys())
    phases.reach("resumed", lambda: len(job.steps(2)) == job.ranks)
    phases.reach("rebooted", lambda: site.cluster.nodes[victim].boot_id != boot)
    phases.reach("released", lambda: victim in site.in_service())

    assert victim not in job.places.values()
    assert min(job.steps(2).values()) > 1, "it goes on from what it has saved"
    assert phases.orders == [("reboot", victim)]
    phases.record("xid-reboot", job)
    job.finish()


def test_another_machine_takes_the_place_of_a_replaced_one(site: Site, phases: Phases) -> None:
    job = site.submit("replaces")
    job.until_training(1)
    first = job.places
    victim = sorted(first.values())[0]

    phases.begin()
    machine = site.cluster.nodes[victim]
    machine.log(REPLACE_XID)
    phases.reach("stopped", lambda: not first.keys() & job.places.keys())
    phases.reach("resumed", lambda: len(job.steps(2)) == job.ranks)
    phases.reach("ordered", lambda: phases.orders)
    phases.reach("joined", lambda: victim not in site.cluster.nodes and len(site.in_service()) == 4)

    assert phases.orders == [("replace", victim)]
    assert site.cluster.node(victim) is None
    machine.boot()  # as a test does that ends while its owner replaces it
    assert not machine.is_on
    phases.record("xid-replace", job)
    job.finish()
