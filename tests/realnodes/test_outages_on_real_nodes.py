"""Outages that only real nodes have: of power, of a cable, and of the pods of Holdfast itself."""

from datetime import UTC, datetime
from typing import Any

from leaders import leader, until_led
from phases import Phases
from site_of_nodes import BUDGETS, DEPLOYMENTS, NAMESPACE, REPLACE_XID, Site
from training_job import TrainingJob

from tests.engines.api_connection import Refused
from tests.engines.real_node import KUBELET


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


def test_a_job_continues_while_kubelet_and_agent_of_its_node_are_killed(
    site: Site, phases: Phases
) -> None:
    job = site.submit("steady")
    job.until_training(1)
    first = job.places
    victim = site.cluster.nodes[min(first.values())]

    phases.begin()
    victim.kill(KUBELET)
    killed_at = datetime.now(UTC)
    phases.reach("renewed", lambda: is_renewed(site, victim.name, after=killed_at))
    continues(site, job, first)
    phases.record("kubelet-killed", job)

    phases.begin()
    agents = site.pods("app.kubernetes.io/component=agent", NAMESPACE)
    (agent,) = [pod for pod in agents if pod["spec"]["nodeName"] == victim.name]
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{agent['metadata']['name']}"
    site.cluster.plane.request("DELETE", path, {"gracePeriodSeconds": 0})
    phases.reach("replaced", lambda: has_new_agent(site, agent))
    continues(site, job, first)
    assert victim.name in site.in_service()
    phases.record("agent-killed", job)
    job.finish()


def continues(site: Site, job: TrainingJob, places: dict[str, str]) -> None:
    """Both ranks of the first attempt take further steps, on the same nodes."""
    before = min(job.steps(1).values())
    site.until(lambda: min(job.steps(1).values()) > before + 10, "further steps")
    assert job.places == places


def is_renewed(site: Site, node: str, *, after: datetime) -> bool:
    """Whether the kubelet of a node has renewed its lease since."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}"
    try:
        lease = site.cluster.plane.request("GET", path)
    except Refused:  # a young node has none yet
        return False
    return datetime.fromisoformat(lease["spec"]["renewTime"]) > after


def has_new_agent(site: Site, old: dict[str, Any]) -> bool:
    """Whether another pod has taken the place of an agent's, and is ready."""
    for pod in site.pods("app.kubernetes.io/component=agent", NAMESPACE):
        is_there = pod["spec"].get("nodeName") == old["spec"]["nodeName"]
        if is_there and pod["metadata"]["uid"] != old["metadata"]["uid"]:
            found = pod["status"].get("containerStatuses") or [{}]
            return all(one.get("ready") for one in found)
    return False


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
