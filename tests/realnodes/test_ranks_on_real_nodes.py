"""Ranks that end, or do not end, as only a real kernel and a real kubelet make them."""

from phases import Phases
from site_of_nodes import REPLACE_XID, Site


def test_a_rank_that_takes_too_much_memory_costs_the_application_a_retry(
    site: Site, phases: Phases
) -> None:
    job = site.submit("hungry", memory="64Mi")
    job.until_training(1)

    phases.begin()
    (job.folder / "eats-1-1").touch()
    phases.reach("resumed", lambda: len(job.steps(2)) == job.ranks)

    [attempt] = job.record["attempts"]
    assert attempt["failure"]["kind"] == "application"
    assert "OOMKilled" in attempt["failure"]["evidence"]
    assert len(site.in_service()) == 4
    phases.record("oom", job)
    job.finish()


def test_a_rank_that_ignores_sigterm_is_killed_and_the_job_resumes(
    site: Site, phases: Phases
) -> None:
    job = site.submit(
        "stubborn", environment={"IGNORES_SIGTERM": "1"}, terminationGracePeriodSeconds=10
    )
    job.until_training(1)
    first = job.places
    victim = sorted(first.values())[0]

    phases.begin()
    site.cluster.nodes[victim].log(REPLACE_XID)
    phases.reach("stopped", lambda: not first.keys() & {one["metadata"]["uid"] for one in job.pods})
    phases.reach("resumed", lambda: len(job.steps(2)) == job.ranks)
    phases.reach("joined", lambda: victim not in site.cluster.nodes and len(site.in_service()) == 4)

    [attempt] = job.record["attempts"]
    assert attempt["failure"]["kind"] == "hardware"
    phases.record("ignores-sigterm", job)
    job.finish()
