"""Outages that only real nodes have: of power, of a cable, and of the pods of Holdfast itself."""

from leaders import leader, until_led
from phases import Phases
from site_of_nodes import BUDGETS, DEPLOYMENTS, NAMESPACE, REPLACE_XID, Site
from training_job import TrainingJob


def running_job(site: Site, name: str, on: str) -> TrainingJob:
    """A job with a rank on a node."""
    job = site.submit(name, near=on)
    job.until_training(1)
    assert on in job.places.values()
    return job


def test_another_controller_goes_on_when_the_leaders_pod_is_deleted(
    site: Site, phases: Phases
) -> None:
    job = site.submit("led")
    job.until_training(1)
    victim = sorted(job.places.values())[0]
    first = until_led(site)

    phases.begin()
    site.cluster.plane.request(
        "DELETE",
        f"/api/v1/namespaces/{NAMESPACE}/pods/{first['name']}",
        {"gracePeriodSeconds": 0},
    )
    site.cluster.nodes[victim].log(REPLACE_XID)
    phases.reach("led", lambda: leader(site).get("name") not in (None, first["name"]))
    phases.reach("resumed", lambda: len(job.steps(2)) == job.ranks)
    phases.reach("ordered", lambda: phases.orders)
    phases.reach("joined", lambda: victim not in site.cluster.nodes and len(site.in_service()) == 4)

    assert phases.orders == [("replace", victim)]
    phases.record("leader-deleted", job)
    job.finish()


def test_a_job_resumes_after_a_power_loss_of_a_node_that_also_had_the_leader(
    site: Site, phases: Phases
) -> None:
    victim = until_led(site)["node"]
    job = running_job(site, "dark", victim)

    phases.begin()
    site.cluster.nodes[victim].power_off()
    phases.reach("not ready", lambda: not is_ready(site, victim))
    phases.reach("led", lambda: leader(site).get("node") not in (None, victim))
    phases.reach("ordered", lambda: phases.orders)
    phases.reach("resumed", lambda: len(job.steps(2)) == job.ranks)

    assert phases.orders == [("replace", victim)]
    assert site.cluster.node(victim) is None
    phases.record("power-loss", job)
    job.finish()


def test_a_node_without_network_never_works_beside_the_next_attempt(
    site: Site, phases: Phases
) -> None:
    site.until(lambda: set(site.in_service()) - {until_led(site)["node"]}, "another node")
    victim = sorted(set(site.in_service()) - {until_led(site)["node"]})[0]
    job = running_job(site, "cut", victim)
    rank = next(
        int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"])
        for pod in job.pods
        if pod["spec"]["nodeName"] == victim
    )

    phases.begin()
    site.cluster.network.cut(site.cluster.nodes[victim])
    before = job.steps(1)[rank]
    site.until(lambda: job.steps(1)[rank] > before + 5, "the rank to go on without network")
    phases.reach("ordered", lambda: phases.orders)
    phases.reach("resumed", lambda: job.steps(2))

    last = job.steps(1)[rank]
    site.until(lambda: len(job.steps(2)) == job.ranks, "all ranks of the next attempt")
    assert job.steps(1)[rank] == last, "its machine was ended before the next attempt began"
    phases.record("partition", job)
    job.finish()


def test_pods_that_a_budget_protects_hold_a_repair_no_longer_than_the_drain_timeout(
    site: Site, phases: Phases
) -> None:
    labels = {"app": "protected"}
    container = {"name": "pause", "image": "machine.test/pause:test", "imagePullPolicy": "Never"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }
    deployment = {
        "metadata": {"name": "protected"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }
    budget = {
        "metadata": {"name": "protected"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
    }
    plane = site.cluster.plane
    plane.request("POST", BUDGETS, budget)
    plane.request("POST", DEPLOYMENTS, deployment)
    site.until(lambda: [one for one in protected(site) if "Running" in one], "the pod to run")
    [(_, victim)] = protected(site)

    phases.begin()
    site.cluster.nodes[victim].log(REPLACE_XID)
    phases.reach("draining", lambda: site.phase(victim) == "draining")
    phases.reach("ordered", lambda: phases.orders)
    assert protected(site) == [("Running", victim)], "it was never evicted"
    phases.reach("joined", lambda: victim not in site.cluster.nodes and len(site.in_service()) == 4)

    assert phases.orders == [("replace", victim)]
    phases.record("budget")


def protected(site: Site) -> list[tuple[str, str]]:
    """Phase and node of the pods that the budget protects, of those that are not ending."""
    return [
        (pod["status"]["phase"], pod["spec"].get("nodeName", ""))
        for pod in site.pods("app=protected")
        if "deletionTimestamp" not in pod["metadata"]
    ]


def is_ready(site: Site, name: str) -> bool:
    node = site.cluster.node(name) or {}
    conditions = node.get("status", {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
