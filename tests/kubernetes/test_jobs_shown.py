"""What people see of jobs on a real cluster."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from controlled import NAMESPACE, installed  # noqa: F401 - a fixture
from machines import REPLACE_XID, Fleet, a_fleet
from real_cluster import Cluster, until
from training import Training

from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.main import run
from holdfast.model.names import Reason

pytestmark = pytest.mark.usefixtures("training_operator")

LLAMA = "pytorchjob/default/llama"


@pytest.fixture
def fleet(installed, cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    with a_fleet(cluster, tmp_path) as fleet:
        yield fleet


class Shown:
    """``holdfast jobs`` for the cluster of a fleet."""

    def __init__(self, fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
        self._options = ["--kubeconfig", str(fleet.cluster.plane.kubeconfig())]
        self._capsys = capsys

    def call(self, *argv: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = run(["jobs", *argv, *self._options])
        return code, *self._capsys.readouterr()

    def overview(self, command: str) -> tuple[int, str]:
        self._capsys.readouterr()
        code = run([command, "--output", "json", *self._options])
        return code, self._capsys.readouterr().out

    def json(self, *argv: str):
        code, out, _ = self.call(*argv, "--output", "json")
        assert code == ExitCode.OK
        return json.loads(out)


@pytest.fixture
def shown(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> Shown:
    return Shown(fleet, capsys)


def test_a_job_is_shown_with_its_attempts_what_they_cost_and_what_was_reported(
    fleet: Fleet, shown: Shown
) -> None:
    fleet.start("a", "b", "c")
    fleet.control()
    fleet.until_schedulable("a", "b", "c")
    job = Training(fleet.cluster, fleet.api)
    job.submit()
    ignored = Training(fleet.cluster, fleet.api, name="ignored", annotations={})
    ignored.submit(runPolicy={"suspend": True})
    job.until_running(1)
    bad = job.nodes[1]
    fleet.machines[bad].log(REPLACE_XID)
    job.until_running(2)
    until(lambda: [one for one in job.events if "recovered in" in one[1]])

    (row,) = shown.json("list")
    assert (row["name"], row["phase"], row["attempt"]) == (LLAMA, "running", 2)
    assert (row["hardware_retries"], row["max_retries"], row["max_app_retries"]) == (1, 2, 3)
    assert shown.json("list", "--namespace", "holdfast") == []
    assert [one["name"] for one in shown.json("list", "-A")] == [LLAMA]

    one = shown.json("describe", "llama")
    first, second = one["attempts"]
    assert (first["kind"], first["node"]) == ("hardware", bad)
    assert first["incident_id"].startswith(bad)
    assert min(first["stopped_in"], second["waited"], second["started_in"]) >= 0
    assert [(rank["name"], rank["state"]) for rank in one["ranks"]] == [
        ("llama-master-0", "Running"),
        ("llama-worker-0", "Running"),
    ]
    assert [rank["node"] for rank in one["ranks"]] == job.nodes
    reported = [event["event"] for event in one["events"]]
    assert (
        reported.index("NodeFault") < reported.index("JobRestarting") < reported.index("Running", 2)
    )
    _, text, _ = shown.call("describe", LLAMA)
    assert f"Attempt 1:  on {bad}: " in text
    assert "Attempt 2:  recovered in " in text
    assert "1 of 2 for hardware, 0 of 3 for the application" in text

    code, text = shown.overview("status")
    status = json.loads(text)
    assert code in (ExitCode.OK, ExitCode.NEEDS_ATTENTION)
    assert LLAMA in [one["ref"] for one in status["jobs"]]
    assert sum(status["fleets"][0]["nodes"].values()) >= 2
    [spent] = json.loads(shown.overview("goodput")[1])["jobs"]
    assert (spent["job"], [loss["node"] for loss in spent["losses"]]) == (LLAMA, [bad])

    code, text, _ = shown.call("doctor", "llama")
    assert (code, "Warning clean-pod-policy:" in text) == (ExitCode.OK, True)
    code, text, _ = shown.call("doctor", "ignored")
    assert (code, "Error auto-resume-off:" in text) == (ExitCode.FAILED, True)

    assert shown.json("describe", "ignored")["phase"] == "unmanaged"
    code, _, said = shown.call("cancel", "llama", "--yes")
    assert code == ExitCode.FAILED
    assert "kubectl delete pytorchjob llama --namespace default" in said
    code, _, said = shown.call("describe", "lama")
    assert code == ExitCode.FAILED
    assert f"Existing jobs: {LLAMA}, pytorchjob/default/ignored" in said


SUSPICIOUS = """
[nodes]
drain_timeout = "20s"
[jobs]
app_backoff = "0s"
[kubernetes.check]
image = "holdfast"
"""


def checks_of(fleet: Fleet, node: str) -> list[str]:
    """Names of the pods that check a node; those of earlier tests may take a while to go."""
    path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
    jobs = {one["metadata"]["uid"] for one in fleet.api.list(path)}
    return [
        pod["metadata"]["name"]
        for pod in fleet.api.list(f"/api/v1/namespaces/{NAMESPACE}/pods")
        if pod["spec"].get("nodeName") == node
        and jobs & {owner["uid"] for owner in pod["metadata"].get("ownerReferences") or ()}
    ]


def test_a_node_on_which_a_job_keeps_dying_is_checked_and_the_job_shows_why_it_waits(
    fleet: Fleet, shown: Shown
) -> None:
    fleet.start("a", "b")
    fleet.control(settings=SUSPICIOUS)
    fleet.until_schedulable("a", "b")
    job = Training(fleet.cluster, fleet.api)
    job.submit()
    job.until_running(1)
    good, bad = job.nodes
    for attempt in (1, 2, 3):
        job.until_running(attempt)
        there = [pod for pod, one in job.pods.items() if one["spec"]["nodeName"] == bad]
        job.container_fails(there[0], 1)

    until(lambda: fleet.phase(bad) == "checking")
    until(lambda: job.phase == "waiting")
    until(lambda: "waiting for nodes" in shown.json("describe", "llama")["reason"])
    (check,) = until(lambda: checks_of(fleet, bad))
    assert fleet.phase(good) == "schedulable"
    fleet.cluster.nodes.finish(check, namespace=NAMESPACE)
    job.until_running(4)

    assert (job.record["app_retries"], fleet.orders) == (3, [])
    incident = fleet.until_recovered(bad)
    assert incident.reason == Reason.JOBS_KEEP_FAILING
    assert f"{LLAMA} attempt 3, {LLAMA} attempt 2, {LLAMA} attempt 1" in incident.message
    reported = fleet.cluster.kubectl("events", "--for", f"node/{bad}")
    assert f"{bad} is suspect: 3 job failures within 1d began on this node" in reported
