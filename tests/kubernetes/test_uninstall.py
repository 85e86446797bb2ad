"""What is left of Holdfast in a cluster with nodes under repair, and how it is removed."""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from clean_slate import CleanSlate
from controlled import NAMESPACE, install
from machines import HEALTH, REBOOT_XID, REPLACE_XID, Fleet, a_fleet
from real_cluster import connected, until

from holdfast.adapters.kubernetes.checks.check_jobs import job_object
from holdfast.adapters.kubernetes.client.api import Api, Server
from holdfast.adapters.kubernetes.client.values import compact_json
from holdfast.adapters.kubernetes.settings import CheckSettings
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.main import run
from holdfast.model.jobs import JobPhase, JobRecord
from holdfast.model.names import HOLD, JOB_RECORD, JOB_STATUS, OWN_PREFIX, RECORD_OF
from tests.engines.control_plane import ControlPlane

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
JOBS = "/apis/batch/v1/namespaces/{}/jobs"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/incidents.holdfast.dev"
SETTINGS = '[nodes]\nmax_unavailable = 1\ndrain_timeout = "1s"\n'


@pytest.fixture(scope="module")
def plane(binaries: dict[str, Path]) -> Iterator[ControlPlane]:
    """Of its own: the definition of incidents goes."""
    with ControlPlane(binaries) as plane:
        yield plane


@pytest.fixture
def fleet(plane: ControlPlane, binaries: Mapping[str, Path], tmp_path: Path) -> Iterator[Fleet]:
    slate = CleanSlate(plane)
    with connected(plane, binaries) as cluster:
        install(cluster)
        with a_fleet(cluster, tmp_path) as fleet:
            yield fleet
    slate.restore()


def uninstall(fleet: Fleet, *options: str) -> int:
    kubeconfig = str(fleet.cluster.plane.kubeconfig())
    return run(["uninstall", "--platform", "kubernetes", "--kubeconfig", kubeconfig, *options])


def under_repair(fleet: Fleet) -> None:
    """``a`` is being replaced, ``b`` waits for its reboot, a person has cordoned ``c``."""
    fleet.start("a", "b", "c", "d")
    fleet.carries_out = False
    fleet.control(settings=SETTINGS)
    fleet.until_schedulable("a", "b", "c", "d")
    fleet.cluster.kubectl("cordon", "c")
    fleet.machines["a"].log(REPLACE_XID)
    until(lambda: fleet.phase("a") == "replacing")
    fleet.machines["b"].log(REBOOT_XID)
    until(lambda: fleet.phase("b") == "quarantined" and fleet.is_marked("b"))


def helm_uninstalls(fleet: Fleet) -> None:
    """Nobody writes any more, and the minute has passed for which the agents' Leases last."""
    for controller in fleet.controllers:
        controller.end()
    for machine in fleet.machines.values():
        machine.power_off()
    for lease in fleet.api.list(LEASES):
        path = f"{LEASES}/{lease['metadata']['name']}"
        fleet.api.patch(path, {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}})


def suspended_job(fleet: Fleet) -> None:
    """A job that a controller has suspended until there are nodes for its next attempt."""
    folder = JOBS.format("default")
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}
    spec = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "suspend": True}
    made = fleet.api.create(
        folder, {"metadata": {"name": "llama"}, "spec": {**spec, "template": {"spec": pod}}}
    )
    now = datetime.now(UTC)
    record = JobRecord(phase=JobPhase.WAITING, phase_since=now, attempt=1)
    annotations = {JOB_RECORD: compact_json(record), RECORD_OF: made["metadata"]["uid"]}
    annotations |= {JOB_STATUS: "attempt 1 waiting"}
    fleet.api.patch(f"{folder}/llama", {"metadata": {"annotations": annotations}})


def left_on(node: dict[str, Any]) -> dict[str, Any]:
    """Everything on a node that could be Holdfast's."""
    metadata, spec = node["metadata"], node["spec"]
    prefixes = (OWN_PREFIX, HEALTH.partition("/")[0])
    found = {
        part: sorted(key for key in metadata.get(part, {}) if key.startswith(prefixes))
        for part in ("labels", "annotations")
    }
    found["taints"] = [one["key"] for one in spec.get("taints", ()) if one["key"] == HEALTH]
    found["conditions"] = sorted(one["type"] for one in node["status"]["conditions"])
    found["cordon"] = ["cordon"] if spec.get("unschedulable") else []
    return {part: kept for part, kept in found.items() if kept}


def test_all_that_holdfast_has_set_goes_and_what_a_person_has_set_stays(
    fleet: Fleet, capfd: pytest.CaptureFixture[str]
) -> None:
    under_repair(fleet)
    suspended_job(fleet)
    check = job_object("d", "first", CheckSettings(image="check"))
    fleet.api.create(JOBS.format(NAMESPACE), check)
    helm_uninstalls(fleet)
    person = ("label", "node", "d", f"{HEALTH}=UnschedulablePendingReboot", "--overwrite")
    fleet.cluster.kubectl(*person)
    fleet.cluster.kubectl("annotate", "node", "d", f"{HOLD}=cables")
    before = {name: fleet.node(name)["metadata"]["resourceVersion"] for name in "abcd"}

    assert uninstall(fleet, "--dry-run", "--output", "json") == ExitCode.OK
    planned = json.loads(capfd.readouterr().out)
    assert {name: fleet.node(name)["metadata"]["resourceVersion"] for name in "abcd"} == before
    assert uninstall(fleet, "--yes", "--output", "json") == ExitCode.OK
    done = json.loads(capfd.readouterr().out)

    assert [{**one, "done": False} for one in done] == planned
    assert {one["kind"] for one in done} >= {"Job", "Node", "Lease", "ConfigMap"}
    conditions = ["DiskPressure", "MemoryPressure", "PIDPressure", "Ready"]
    assert left_on(fleet.node("a")) == {"conditions": conditions}
    assert left_on(fleet.node("b")) == {"conditions": conditions}
    assert left_on(fleet.node("c")) == {"conditions": conditions, "cordon": ["cordon"]}
    assert left_on(fleet.node("d")) == {
        "conditions": conditions,
        "labels": [HEALTH],
        "annotations": [HOLD],
    }
    assert list(fleet.api.list(LEASES)) == []
    job = fleet.api.get(f"{JOBS.format('default')}/llama")
    assert job["spec"]["suspend"] is False
    assert not [key for key in job["metadata"].get("annotations", {}) if key.startswith(OWN_PREFIX)]
    until(lambda: "incidents.holdfast.dev" not in fleet.cluster.kubectl("get", "crds"))
    found = fleet.cluster.kubectl("get", "jobs,configmaps", "--namespace", NAMESPACE)
    assert "holdfast" not in found

    assert uninstall(fleet, "--output", "json") == ExitCode.OK
    again = json.loads(capfd.readouterr().out)
    assert [(one["name"], one["removes"]) for one in again] == [("c", []), ("d", [])]


def test_it_refuses_while_somebody_is_active_unless_it_is_forced(
    fleet: Fleet, capfd: pytest.CaptureFixture[str]
) -> None:
    fleet.start("a")
    fleet.control(settings=SETTINGS)
    fleet.until_schedulable("a")
    until(lambda: len(list(fleet.api.list(LEASES))) == 2)

    assert uninstall(fleet, "--yes") == ExitCode.FAILED
    said = capfd.readouterr().err
    assert "still active: agent of node a, controller holdfast-controller" in said
    assert "nothing was removed" in said
    assert fleet.phase("a") == "schedulable"
    assert uninstall(fleet, "--dry-run") == ExitCode.OK
    for controller in fleet.controllers:
        controller.end()
    for machine in fleet.machines.values():
        machine.power_off()
    assert uninstall(fleet, "--yes") == ExitCode.FAILED
    assert "still active: agent of node a; nothing" in capfd.readouterr().err

    assert uninstall(fleet, "--yes", "--force", "--keep-incidents") == ExitCode.OK
    assert fleet.phase("a") is None
    assert fleet.api.get(CRD)["metadata"]["name"] == "incidents.holdfast.dev"


def test_nodes_that_are_out_of_service_can_be_left_cordoned(
    fleet: Fleet, capfd: pytest.CaptureFixture[str]
) -> None:
    under_repair(fleet)
    helm_uninstalls(fleet)

    assert uninstall(fleet, "--yes", "--keep-cordoned") == ExitCode.OK

    cordoned = {name for name in "abcd" if left_on(fleet.node(name)).get("cordon")}
    assert cordoned == {"a", "b", "c"}
    assert "taints" not in left_on(fleet.node("b"))


def test_one_that_holdfast_knows_nothing_of_is_left_alone(
    fleet: Fleet, capfd: pytest.CaptureFixture[str]
) -> None:
    fleet.cluster.nodes.join("e", labels={HEALTH: "Unschedulable"}, provider_id="x://e")
    fleet.cluster.kubectl("taint", "node", "e", f"{HEALTH}=Unschedulable:NoSchedule")
    fleet.cluster.kubectl("cordon", "e")
    lease = ("create", "--namespace", NAMESPACE, "configmap", "others", "--from-literal=a=b")
    fleet.cluster.kubectl(*lease)

    assert uninstall(fleet, "--yes", "--keep-incidents", "--output", "json") == ExitCode.OK

    [row] = json.loads(capfd.readouterr().out)
    assert (row["name"], row["removes"]) == ("e", [])
    assert len(row["keeps"]) == 3
    kept = left_on(fleet.node("e"))
    assert (kept["labels"], kept["cordon"]) == ([HEALTH], ["cordon"])
    assert kept["taints"] == [HEALTH]
    assert "others" in fleet.cluster.kubectl("get", "configmaps", "--namespace", NAMESPACE)


def test_leases_of_agents_in_another_namespace_go_and_those_of_others_stay(
    fleet: Fleet, capfd: pytest.CaptureFixture[str]
) -> None:
    fleet.cluster.kubectl("create", "namespace", "agents")
    plane = fleet.cluster.plane
    folder = "/apis/coordination.k8s.io/v1/namespaces/agents/leases"
    server = Server(url=plane.url, ca_file=plane.certificate, token=lambda: plane.token)
    for name, manager in (("a", "holdfast-agent"), ("b", "somebody")):
        with closing(Api(server, user_agent="test", field_manager=manager)) as api:
            api.create(folder, {"metadata": {"name": name}, "spec": {"holderIdentity": "x"}})

    code = uninstall(fleet, "--agent-namespace", "agents", "--yes", "--keep-incidents")

    assert code == ExitCode.OK
    assert [one["metadata"]["name"] for one in fleet.api.list(folder)] == ["b"]


@pytest.mark.parametrize(
    ("platform", "words"),
    [("slurm", "holdfast slurm uninstall"), ("local", "holdfast jobs cancel")],
)
def test_other_platforms_are_answered_with_what_to_do_there(
    platform: str, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["uninstall", "--platform", platform]) == ExitCode.BAD_INPUT
    assert words in capfd.readouterr().err
