"""The chart, its checks and what it offers to jobs, in real pods."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from leaders import until_led
from phases import Phases
from site_of_nodes import IMAGE, NAMESPACE, REPLACE_XID, Site

from tests.archives import opened

ROOT = Path(__file__).parents[2]
CHECKPOINTS = ROOT / "tests/recordings/checkpoints/dcp.tar.xz"
EVENTS = "/api/v1/namespaces/default/events"
INCIDENTS = "/apis/holdfast.dev/v1/incidents"


def test_a_deep_health_check_runs_as_a_pod_on_the_node_of_the_leader(
    site: Site, phases: Phases
) -> None:
    name = until_led(site)["node"]
    command = ("check", "deep", name, "--platform", "kubernetes", "--kubeconfig")
    before = checks(site)

    phases.begin()
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *command, str(site.kubeconfig), "--yes"],
        check=False,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    phases.reach("check started", lambda: checks(site) - before)
    phases.reach("released", lambda: name in site.in_service())

    assert [node for _, node in checks(site) - before] == [name]
    assert phases.orders == []
    events = site.cluster.plane.request("GET", EVENTS)["items"]
    passed = [one for one in events if one["reason"] == "DeepHealthCheckPassed"]
    assert name in [one["involvedObject"]["name"] for one in passed]


def checks(site: Site) -> set[tuple[str, str]]:
    """Pods of deep health checks that have started, and their nodes; the pods may be gone."""
    events = site.cluster.plane.request("GET", f"/api/v1/namespaces/{NAMESPACE}/events")["items"]
    return {
        (one["involvedObject"]["name"], one["source"]["host"])
        for one in events
        if one["reason"] == "Started"
        and one["involvedObject"]["name"].startswith("holdfast-check-")
    }


def test_the_guard_verifies_checkpoints_in_an_init_container(site: Site) -> None:
    guard = {
        "name": "checkpoint-guard",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["holdfast", "checkpoint", "guard", "/shared/dcp/sync"],
        "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
    }
    job = site.prepare("guarded")
    with opened(CHECKPOINTS) as archive:
        archive.extractall(job.folder / "dcp")
    for path in (job.folder / "dcp", *(job.folder / "dcp").rglob("*")):
        path.chmod(0o777)
    damaged = job.folder / "dcp/sync/step_3/__1_0.distcp"
    os.truncate(damaged, 1000)
    os.utime(damaged, (0, 0))  # no process is writing it
    job.submit(initContainers=[guard])
    job.until_training(1)

    def chosen() -> list[str]:
        events = site.cluster.plane.request("GET", EVENTS)["items"]
        return [one["message"] for one in events if one["reason"] == "CheckpointChosen"]

    site.until(chosen, "the Event")
    broken, *_, result = chosen()
    assert "step_3 is damaged" in broken + result
    site.until(lambda: moved(site), "the incident")
    [incident] = moved(site)
    evidence = incident["checkpoint"]
    assert (incident["node"], incident["job"].rpartition("/")[2]) == ("", "guarded")
    assert (evidence["name"], evidence["step"], evidence["state"]) == ("step_3", 3, "damaged")
    assert evidence["path"] == "/shared/dcp/sync.set-aside/step_3"
    assert evidence["problems"][0].startswith("__1_0.distcp has 1000 bytes instead of")
    assert evidence["resumed"] == "step_2"
    job.finish()


def moved(site: Site) -> list[dict[str, Any]]:
    """Incidents of checkpoints."""
    items = site.cluster.plane.request("GET", INCIDENTS)["items"]
    return [one["spec"] for one in items if one["spec"].get("checkpoint")]


def test_a_job_trains_through_an_upgrade_and_while_holdfast_is_away(
    site: Site, phases: Phases
) -> None:
    job = site.submit("upgraded")
    job.until_training(1)
    first = job.places
    victim = sorted(first.values())[0]

    phases.begin()
    site.helm("upgrade", "--set", "controller.config.log=json")
    phases.reach("upgraded", lambda: set(site.in_service()) == {*site.cluster.nodes})
    site.uninstall()
    phases.reach("uninstalled", lambda: not site.pods("app.kubernetes.io/name=holdfast", NAMESPACE))
    assert job.places == first
    site.cluster.nodes[victim].log(REPLACE_XID)
    site.helm("install")
    phases.reach("installed", lambda: site.health(victim) != "Schedulable")  # or replaced since
    phases.reach("resumed", lambda: len(job.steps(2)) == job.ranks)
    phases.reach("joined", lambda: victim not in site.cluster.nodes and len(site.in_service()) == 4)

    assert [one["attempt"] for one in job.record["attempts"]] == [1]
    phases.record("holdfast-away", job)
    job.finish()
