"""HyperPod's commands for jobs of this machine, and the choice of a cluster."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from holdfast.adapters.local.layout import cluster_dir
from holdfast.adapters.local.store import LocalStore
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.hyperpod.connection import is_local
from holdfast.apps.hyperpod.job_request import JobRequest
from holdfast.apps.hyperpod.local import LocalHyperPodCluster
from holdfast.apps.main import run

TRAIN = """
import os, sys, time
print("epochs", sys.argv[1:], os.environ["FLAVOR"], "attempt", os.environ["HOLDFAST_ATTEMPT"])
sys.stdout.flush()
while not os.path.exists("finish"):
    time.sleep(0.05)
"""


class Commands:
    def __init__(self, home: Path, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.home, self.folder, self._capfd = home, folder, capfd

    def call(self, *argv: str, group: str = "hyperpod") -> tuple[int, str, str]:
        self._capfd.readouterr()
        code = run([group, *argv])
        return code, *self._capfd.readouterr()

    def json(self, *argv: str):
        code, out, err = self.call(*argv)
        assert code == ExitCode.OK, err
        return json.loads(out)

    def state(self, name: str = "mnist") -> str:
        return str(self.json("get-job", "--job-name", name)["Status"]["state"])

    def log(self) -> str:
        return self.call("get-log", "--job-name", "mnist", "--pod", "mnist-worker-0")[1]


@pytest.fixture
def hyperpod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd) -> Iterator[Commands]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HOLDFAST_PLATFORM", raising=False)
    commands = Commands(tmp_path / "home", tmp_path, capfd)
    assert commands.call("connect-cluster", "--cluster-name", "local")[0] == ExitCode.OK
    yield commands
    (tmp_path / "finish").touch()
    for job in LocalHyperPodCluster(commands.home).jobs("", everywhere=True):
        commands.call("cancel-job", "--job-name", job["Name"])
        until(lambda name=job["Name"]: commands.state(name) in ("Succeeded", "Failed"))


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)


def config(folder: Path, **more: object) -> str:
    (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    content = {
        "training_cfg": {
            "entry_script": "train.py",
            "script_args": [{"--epochs": 3}],
            "run": {"name": "mnist", "nodes": 2},
        },
        "cluster": {
            "cluster_config": {
                "annotations": {
                    "sagemaker.amazonaws.com/enable-job-auto-resume": True,
                    "sagemaker.amazonaws.com/job-max-retry-count": 1,
                }
            }
        },
        "env_vars": {"FLAVOR": "mint"},
        **more,
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return str(path)


def test_a_job_of_the_guide_runs_here_resumes_after_a_fault_and_is_cancelled(hyperpod) -> None:
    file = config(hyperpod.folder)
    start = ["start-job", "--config-file", file, "--command", sys.executable, "--max-retry", "2"]

    code, reported, err = hyperpod.call(*start)

    assert (code, reported.startswith("mnist: started on this machine")) == (ExitCode.OK, True), err
    until(lambda: "epochs" in hyperpod.log())
    assert hyperpod.log() == "epochs ['--epochs', '3'] mint attempt 1\n"
    until(lambda: hyperpod.json("list-jobs", "-A")["jobs"][0]["State"] == "Running")
    [job] = hyperpod.json("list-jobs", "-A")["jobs"]
    assert (job["Name"], job["priority"]) == ("mnist", "NA")
    pods = hyperpod.json("list-pods", "--job-name", "mnist")["pods"]
    assert [(pod["PodName"], pod["Status"]) for pod in pods] == [
        ("mnist-worker-0", "Running"),
        ("mnist-worker-1", "Running"),
    ]
    [instances] = hyperpod.json("get-clusters", "--clusters", "local")[0]["Instances"]
    assert (instances["TotalNodes"], instances["NodeHealthStatus"]) == (2, "Schedulable")
    again, _, refused = hyperpod.call(*start)
    assert (again, "mnist is already running" in refused) == (ExitCode.BAD_INPUT, True)
    shown = hyperpod.json("get-job", "--job-name", "mnist", "--verbose")
    assert (shown["Spec"]["maxRetries"], shown["Spec"]["nodes"]) == (2, 2)

    on = ["exec", "--job-name", "mnist"]
    code, out, _ = hyperpod.call(*on, "--all-pods", "--", "sh", "-c", "basename $PWD; exit 4")
    assert (code, pods[1]["NodeName"] in out) == (ExitCode.FAILED, True)
    assert hyperpod.call("kill-rank", "--node", "0", group="inject")[0] == ExitCode.OK
    until(lambda: hyperpod.log().endswith("attempt 2\n"))
    assert hyperpod.call("cancel-job", "--job-name", "mnist")[0] == ExitCode.OK
    until(lambda: hyperpod.state() == "Failed")


def test_a_job_that_ends_well_has_succeeded_also_at_once(hyperpod) -> None:
    (hyperpod.folder / "finish").touch()
    file = config(hyperpod.folder)

    code, _, err = hyperpod.call("start-job", "--config-file", file, "--command", sys.executable)

    assert code == ExitCode.OK, err
    until(lambda: hyperpod.state() == "Succeeded")
    pods = hyperpod.json("list-pods", "--job-name", "mnist")["pods"]
    assert [pod["Status"] for pod in pods] == ["Succeeded", "Succeeded"]


def test_what_cannot_be_started_is_reported_as_holdfast_run_reports_it(hyperpod) -> None:
    file = config(hyperpod.folder)

    code, _, reported = hyperpod.call("start-job", "--config-file", file, "--command", "no-such")

    assert code == ExitCode.FAILED
    assert "holdfast run exited with 2" in reported
    assert "'no-such' not found in PATH" in reported


@pytest.mark.parametrize(("command", "is_reported"), [("python", True), ("python -m", False)])
def test_a_script_that_is_not_there_is_reported_before_anything_begins(
    hyperpod, command: str, is_reported: bool
) -> None:
    file = config(hyperpod.folder)
    (hyperpod.folder / "train.py").unlink()

    code, _, err = hyperpod.call("start-job", "--config-file", file, "--command", command)

    assert (code == ExitCode.BAD_INPUT) == is_reported
    assert (f"train.py not found in {hyperpod.folder}" in err) == is_reported


def test_a_configuration_that_is_not_there_is_reported(hyperpod) -> None:
    code, _, err = hyperpod.call("start-job", "--config-file", "none.yaml")

    reported = "holdfast: none.yaml: cannot be read: No such file or directory\n"
    assert (code, err) == (ExitCode.BAD_INPUT, reported)


def test_a_cluster_without_a_job_is_not_named_as_one(hyperpod) -> None:
    run = cluster_dir(hyperpod.home, "idle")
    run.create()
    LocalStore(run.state, create=True).close()

    code, _, err = hyperpod.call("get-job", "--job-name", "none")

    assert (code, err) == (ExitCode.FAILED, "holdfast: job 'none' not found; there are no jobs\n")


def test_a_dry_run_shows_the_command(hyperpod) -> None:
    file = config(hyperpod.folder)

    shown = hyperpod.json("start-job", "--config-file", file, "--dry-run")

    assert shown["environment"] == {"FLAVOR": "mint"}
    assert shown["command"].endswith("-- torchrun train.py --epochs 3")
    assert hyperpod.json("list-jobs")["jobs"] == []


@pytest.mark.parametrize(
    ("change", "retries", "app_retries"),
    [
        ({}, 0, 3),
        ({"auto_resume": True}, 1, 3),
        ({"auto_resume": True, "max_retry": 0}, 0, 3),
        ({"auto_resume": True, "max_retry": 5}, 5, 3),
        ({"restart_policy": "Never"}, 0, 0),
    ],
)
def test_auto_resume_and_restarts_are_budgets_of_the_run(
    tmp_path: Path, change: dict[str, object], retries: int, app_retries: int
) -> None:
    fields = {"name": "a", "image": "i", "entry_script": "s", "instance_type": "t", "nodes": 1}

    command = LocalHyperPodCluster(tmp_path).preview(JobRequest(**{**fields, **change}))["command"]

    assert f"--max-retries {retries} --max-app-retries {app_retries} " in command


@pytest.mark.parametrize(
    ("argv", "reported"),
    [
        (("get-job", "--job-name", "none"), "job 'none' not found"),
        (("get-log", "--job-name", "none", "--pod", "x"), "job 'none' not found"),
        (("get-clusters", "--clusters", "other"), "cluster 'other' not found"),
    ],
)
def test_what_is_not_there_is_reported(hyperpod, argv: tuple[str, ...], reported: str) -> None:
    code, _, said = hyperpod.call(*argv)

    assert (code, reported in said) == (ExitCode.FAILED, True), said


def test_a_job_of_this_machine_is_not_suspended(hyperpod) -> None:
    code, _, reported = hyperpod.call("patch-job", "suspend", "--job-name", "mnist")

    assert (code, "cannot be suspended" in reported) == (ExitCode.BAD_INPUT, True)


ARN = "arn:aws:eks:us-west-2:111122223333:cluster/ml"


@pytest.fixture
def kubeconfig(hyperpod, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = hyperpod.folder / "kubeconfig"
    server = {"cluster": {"server": "https://127.0.0.1:1"}}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "other",
        "clusters": [{"name": ARN, **server}, {"name": "c", **server}],
        "contexts": [
            {"name": ARN, "context": {"cluster": ARN, "user": "me"}},
            {"name": "other", "context": {"cluster": "c", "user": "me"}},
            {"name": "third", "context": {"cluster": "c", "user": "me"}},
        ],
        "users": [{"name": "me", "user": {"token": "s3cret"}}],
    }
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@pytest.mark.parametrize(("name", "context"), [("ml", ARN), (ARN, ARN), ("third", "third")])
def test_connecting_switches_the_context_as_kubectl_does(
    hyperpod, kubeconfig: Path, name: str, context: str
) -> None:
    before = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    connect = ["connect-cluster", "--cluster-name", name, "--namespace", "team", "--region", "r"]

    code, reported, err = hyperpod.call(*connect)

    assert (code, reported) == (
        ExitCode.OK,
        f"Connected to {name}: context {context}, namespace team\n",
    ), err
    after = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    assert after["current-context"] == context
    spaces = {one["name"]: one["context"].get("namespace") for one in after["contexts"]}
    assert {name for name, space in spaces.items() if space == "team"} == {context}
    assert after["users"] == before["users"]
    assert os.stat(kubeconfig).st_mode & 0o777 == 0o600
    assert not is_local(hyperpod.home)


@pytest.mark.parametrize(
    ("name", "reported"),
    [
        ("none", "none is not in any kubeconfig; clusters: arn:"),
        ("c", "c is ambiguous (other, third)"),
    ],
)
def test_a_cluster_that_is_not_known_is_reported_and_nothing_changes(
    hyperpod, kubeconfig: Path, name: str, reported: str
) -> None:
    before = kubeconfig.read_text(encoding="utf-8")

    code, _, said = hyperpod.call("connect-cluster", "--cluster-name", name)

    assert (code, reported in said) == (ExitCode.BAD_INPUT, True), said
    assert kubeconfig.read_text(encoding="utf-8") == before
    assert hyperpod.json("list-jobs") == {"jobs": []}
