"""HyperPod's commands on a real cluster with the real training operator."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from controlled import installed  # noqa: F401 - a fixture
from machines import REPLACE_XID, Fleet, a_fleet
from real_cluster import Cluster, until
from training import Training

from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.main import run
from tests.engines.kubelet import PodServer

pytestmark = pytest.mark.usefixtures("training_operator")


@pytest.fixture
def fleet(installed, cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    with a_fleet(cluster, tmp_path) as fleet:
        yield fleet


class Commands:
    def __init__(self, fleet: Fleet, capfd: pytest.CaptureFixture[str]) -> None:
        self._access = ["--kubeconfig", str(fleet.cluster.plane.kubeconfig())]
        self._capfd = capfd

    def call(self, name: str, *argv: str) -> tuple[int, str, str]:
        self._capfd.readouterr()
        code = run(["hyperpod", name, *self._access, *argv])
        out, err = self._capfd.readouterr()
        return code, out, err

    def json(self, name: str, *argv: str):
        code, out, err = self.call(name, *argv)
        assert code == ExitCode.OK, err
        return json.loads(out)


@pytest.fixture
def hyperpod(fleet: Fleet, capfd: pytest.CaptureFixture[str]) -> Commands:
    return Commands(fleet, capfd)


START = [
    "start-job", "--job-name", "llama", "--image", "none", "--entry-script", "train.py",
    "--instance-type", "ml.p5.48xlarge", "--node-count", "2", "--namespace", "default",
    "--auto-resume", "true", "--max-retry", "2",
]  # fmt: skip


def test_a_job_is_started_resumes_by_itself_and_is_cancelled(fleet: Fleet, hyperpod) -> None:
    fleet.start("a", "b", "c", group="p5.48xlarge")
    fleet.control()
    fleet.until_schedulable("a", "b", "c")
    [capacity] = hyperpod.json("get-clusters")
    [row] = capacity["Instances"]
    assert (row["TotalNodes"], row["NodeHealthStatus"]) == (3, "Schedulable")

    code, out, _ = hyperpod.call(*START)
    assert (code, out) == (ExitCode.OK, "llama: submitted to the namespace default\n")
    job = Training(fleet.cluster, fleet.api)
    job.until_running(1)
    used = hyperpod.json("get-clusters")[0]["Instances"][0]["AcceleratorDevicesAvailable"]
    assert used == row["AcceleratorDevicesAvailable"] - 16
    again, _, reported = hyperpod.call(*START)
    assert (again, "already" in reported) == (ExitCode.BAD_INPUT, True)

    pods = hyperpod.json("list-pods", "--job-name", "llama", "-n", "default")["pods"]
    fleet.machines[pods[0]["NodeName"]].log(REPLACE_XID)
    job.until_running(2)
    [listed] = hyperpod.json("list-jobs", "-n", "default")["jobs"]
    assert (listed["Name"], listed["Namespace"], listed["State"]) == ("llama", "default", "Running")
    shown = hyperpod.json("get-job", "--job-name", "llama", "-n", "default", "--verbose")
    assert shown["Annotations"]["sagemaker.amazonaws.com/job-max-retry-count"] == "2"

    assert hyperpod.call("cancel-job", "--job-name", "llama", "-n", "default")[0] == ExitCode.OK
    job.until_gone()
    assert hyperpod.json("list-jobs", "-A")["jobs"] == []


def test_logs_are_read_and_commands_run_in_pods(fleet: Fleet, hyperpod) -> None:
    fleet.start("a", "b", group="p5.48xlarge")
    fleet.control()
    fleet.until_schedulable("a", "b")
    hyperpod.call(*START)
    job = Training(fleet.cluster, fleet.api)
    job.until_running(1)
    first, second = sorted(job.pods)
    of = ["--job-name", "llama", "-n", "default"]
    with PodServer(fleet.cluster.plane) as kubelet:
        kubelet.serve("a", "b")
        kubelet.write_lines(first, "step 1")
        kubelet.run = lambda pod, command: (f"{pod} {' '.join(command)}\n", "", int(pod == second))
        code, out, _ = hyperpod.call("get-log", *of, "--pod", first)
        assert (code, out.endswith("step 1\n")) == (ExitCode.OK, True)
        code, out, _ = hyperpod.call("exec", *of, "--pod", first, "--", "ls", "-l")
        assert (code, out) == (ExitCode.OK, f"{first} ls -l\n")
        code, out, reported = hyperpod.call("exec", *of, "--all-pods", "--", "true")
        assert (code, second in reported) == (ExitCode.FAILED, True)
        assert f"{first}:\n{first} true\n" in out

    code, _, reported = hyperpod.call("get-log", *of, "--pod", "nobody")
    assert (code, first in reported) == (ExitCode.FAILED, True)
    hyperpod.call("patch-job", "suspend", *of)
    until(lambda: job.pods == {})
    hyperpod.call("patch-job", "unsuspend", *of)
    until(lambda: len(job.nodes) == 2)


@pytest.mark.parametrize(
    "argv",
    [
        ["get-job", "--job-name", "none", "-n", "default"],
        ["cancel-job", "--job-name", "none", "-n", "default"],
        ["list-pods", "--job-name", "none", "-n", "default"],
    ],
)
def test_a_job_that_is_not_there_is_reported(fleet: Fleet, hyperpod, argv) -> None:
    code, _, reported = hyperpod.call(*argv)

    assert code == ExitCode.FAILED
    assert "job none not found in namespace default" in reported
