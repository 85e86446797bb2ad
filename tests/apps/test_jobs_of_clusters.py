"""Jobs and clusters that share names, made with the AWS command line and ``holdfast run``."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from aws_command_line import AwsCommandLine
from served_api import Served, holdfast, serving, with_keys

from tests.chaos.schedules import Disk
from tests.engines.waiting import until

DEADLINE_S = 180.0
RUN = (sys.executable, "-m", "holdfast", "run", "--output", "json")
SLEEP = ("sleep", "600")
LIST = "ls $HOLDFAST_CHECKPOINT_DIR"
SAVING = """
touch $HOLDFAST_CHECKPOINT_DIR/x
trap 'echo saved; exit 1' TERM
echo up
while :; do sleep 0.1; done
"""


class Clusters:
    """``holdfast api`` on this machine, called by the AWS command line."""

    def __init__(self, served: Served, aws: AwsCommandLine) -> None:
        self.served, self.aws = served, aws

    def create(self, name: str, nodes: int) -> str:
        """The ARN of a new cluster whose nodes run."""
        arn = self.request(name, nodes)
        until(lambda: self.describe(name).get("ClusterStatus") == "InService")
        return arn

    def request(self, name: str, nodes: int, scripts: str = "") -> str:
        """The ARN of a new cluster; its nodes run ``on_create.sh`` of a directory first."""
        group = {
            "InstanceGroupName": "workers",
            "InstanceType": "ml.p5.48xlarge",
            "InstanceCount": nodes,
            "ExecutionRole": "arn:aws:iam::123456789012:role/ClusterRole",
            "ThreadsPerCore": 1,
        }
        if scripts:
            group["LifeCycleConfig"] = {"SourceS3Uri": scripts, "OnCreate": "on_create.sh"}
        groups = [group]
        made = self.aws(
            "create-cluster", "--cluster-name", name, "--instance-groups", json.dumps(groups)
        )
        assert made.code == 0, made.err
        return json.loads(made.out)["ClusterArn"]

    def describe(self, name: str) -> dict:
        ended = self.aws("describe-cluster", "--cluster-name", name)
        return json.loads(ended.out) if ended.code == 0 else {}

    def delete(self, name: str) -> None:
        assert self.aws("delete-cluster", "--cluster-name", name).code == 0

    def events(self, name: str) -> list[dict]:
        ended = self.aws("list-cluster-events", "--cluster-name", name)
        return json.loads(ended.out)["Events"]

    def zombies(self) -> list[str]:
        """Children of the server that have ended and that it does not wait for."""
        argv = ["ps", "-o", "stat", "--no-headers", "--ppid", str(self.served.process.pid)]
        listed = subprocess.run(argv, capture_output=True, text=True, check=False)
        return [one for one in listed.stdout.split() if one.startswith("Z")]

    def jobs(self, *options: str) -> list[dict]:
        listed = holdfast("jobs", "list", "--output", "json", *options)
        assert listed.returncode == 0, listed.stderr
        return json.loads(listed.stdout)


@pytest.fixture
def clusters(local_platform, tmp_path) -> Iterator[Clusters]:
    with serving(with_keys(tmp_path / "api.toml")) as served:
        aws = AwsCommandLine(served)
        yield Clusters(served, aws)
        aws.close()


def run(cluster: str, *argv: str) -> tuple[int, list[dict]]:
    """Run a job to its end: exit code, and what was printed."""
    ended = subprocess.run(
        [*RUN, "--cluster", cluster, *argv], capture_output=True, text=True, check=False, timeout=90
    )
    assert ended.stdout, ended.stderr
    return ended.returncode, [json.loads(line) for line in ended.stdout.splitlines()]


@contextlib.contextmanager
def started(cluster: str, *argv: str) -> Iterator[subprocess.Popen[str]]:
    argv = (*RUN, "--cluster", cluster, *argv)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as one:
        try:
            yield one
        finally:
            one.kill()


def logged(lines: list[dict]) -> list[str]:
    return [one["line"] for one in lines if one["event"] == "job.log"]


def running(clusters: Clusters, count: int) -> list[dict]:
    """The jobs that run, once there are so many."""

    def found() -> list[dict]:
        jobs = [one for one in clusters.jobs() if one["phase"] == "running"]
        return jobs if len(jobs) == count else []

    return until(found)


def test_each_job_of_a_cluster_runs_and_has_its_own_result(clusters) -> None:
    clusters.create("fs", 2)

    first, _ = run("fs", "--nodes", "2", "--", "bash", "-c", "echo one")
    argv = ("--nodes", "2", "--max-app-retries", "0")
    second, reported = run("fs", *argv, "--", "bash", "-c", "echo two; exit 3")
    third, again = run("fs", "--nodes", "2", "--", "bash", "-c", "echo three")

    assert (first, second, third) == (0, 1, 0)
    assert (logged(reported), logged(again)) == (["two"], ["three"])
    assert [one["outcome"] for one in (reported[-1], again[-1])] == ["failed", "succeeded"]
    listed = clusters.jobs("--all", "--cluster", "fs")
    assert [one["phase"] for one in listed] == ["succeeded", "failed", "succeeded"]
    assert len({one["id"] for one in listed}) == len({one["checkpoint_dir"] for one in listed}) == 3
    assert [len(one["attempts"]) for one in listed] == [1, 1, 1]
    logs = holdfast("jobs", "logs", reported[-1]["id"])
    assert (logs.returncode, logs.stdout) == (0, "two\n")
    assert [one["id"] for one in clusters.jobs("--cluster", "fs")] == [again[-1]["id"]]


def test_jobs_at_once_run_on_nodes_of_their_own_and_one_too_many_is_rejected(clusters) -> None:
    clusters.create("fs", 3)
    with (
        started("fs", "--name", "a", "--nodes", "2", "--", *SLEEP) as a,
        started("fs", "--name", "b", "--", *SLEEP) as b,
    ):
        jobs = running(clusters, 2)
        nodes = [node for one in jobs for node in one["placement"]]
        assert len(nodes) == len(set(nodes)) == 3

        rejected = holdfast("run", "--cluster", "fs", "--name", "c", "--", "true")
        assert rejected.returncode == 2
        assert "the job needs 1, and 0 of the 3 nodes of the cluster fs are free" in rejected.stderr
        assert {one["name"] for one in clusters.jobs("--all")} == {"a", "b"}

        assert holdfast("jobs", "cancel", "a", "--yes").returncode == 0
        assert a.wait(DEADLINE_S) == 1
        assert [one["name"] for one in running(clusters, 1)] == ["b"]
        b.send_signal(signal.SIGINT)
        assert b.wait(DEADLINE_S) == 130
    assert {one["phase"] for one in clusters.jobs("--all")} == {"cancelled"}


def test_a_job_resumes_from_the_checkpoints_of_its_name_only_where_that_is_asked(clusters) -> None:
    clusters.create("fs", 1)
    job = ("--", "bash", "-c", "cd $HOLDFAST_CHECKPOINT_DIR; ls; touch step-1")

    _, first = run("fs", "--name", "llm", *job)
    _, fresh = run("fs", "--name", "llm", *job)
    _, resumed = run("fs", "--name", "llm", "--resume", *job)

    assert [logged(one) for one in (first, fresh, resumed)] == [[], [], ["step-1"]]
    assert resumed[-1]["checkpoint_dir"] == fresh[-1]["checkpoint_dir"]
    assert len({one[-1]["id"] for one in (first, fresh, resumed)}) == 3

    run("fs", "--name", "llm", "--", "true")
    _, skipping = run("fs", "--name", "llm", "--resume", *job)
    assert skipping[-1]["checkpoint_dir"] == fresh[-1]["checkpoint_dir"]


def test_a_deleted_cluster_ends_its_job_and_one_of_its_name_inherits_nothing(clusters) -> None:
    before = clusters.create("fs", 3)
    with started("fs", "--name", "llm", "--nodes", "2", "--", "bash", "-c", SAVING) as job:
        [ran] = running(clusters, 1)
        until(lambda: os.listdir(ran["checkpoint_dir"]))
        broken = injected(clusters, "--node", spare_of(ran))

        clusters.delete("fs")
        out, _ = job.communicate(timeout=DEADLINE_S)
    reported = [json.loads(line) for line in out.splitlines()]

    assert job.returncode == 1
    assert reported[-1]["outcome"] == "cancelled"
    assert reported[-1]["reason"] == "the cluster fs was deleted"
    assert (reported[-1]["hardware_retries"], reported[-1]["app_retries"]) == (0, 0)
    assert (logged(reported)[0], logged(reported)[-1]) == ("up", "saved")
    until(lambda: not clusters.describe("fs"))
    until(lambda: not clusters.zombies())
    assert clusters.jobs() == []
    assert os.listdir(reported[-1]["checkpoint_dir"]) == ["x"]
    assert [one["checkpoint_dir"] for one in clusters.jobs("--all")] == [
        reported[-1]["checkpoint_dir"]
    ]

    after = clusters.create("fs", 2)
    assert after != before
    assert not [one for one in clusters.events("fs") if broken in one["Description"]]
    assert clusters.jobs("--cluster", "fs") == []
    code, again = run("fs", "--name", "llm", "--resume", "--", "bash", "-c", LIST)
    assert (code, logged(again)) == (0, [])
    assert holdfast("jobs", "logs", ran["id"]).stdout.splitlines()[0] == "up"
    assert [one["cluster"] for one in clusters.jobs("--all")] == ["fs", "fs"]


def test_a_cluster_whose_creation_failed_rejects_jobs_at_once(clusters, tmp_path) -> None:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "on_create.sh").write_text("exit 3\n")
    clusters.request("fs", 1, str(scripts))
    until(lambda: clusters.describe("fs").get("ClusterStatus") == "Failed")

    for options in ((), ("--dry-run",)):
        rejected = holdfast("run", "--cluster", "fs", *options, "--", "true")
        assert rejected.returncode == 2, rejected.stdout
        assert "the cluster fs is Failed: workers: " in rejected.stderr
        assert "see: holdfast clusters describe fs" in rejected.stderr
    assert clusters.jobs("--all") == []


def test_a_restart_of_the_server_costs_a_job_no_retry(clusters, tmp_path) -> None:
    clusters.create("fs", 2)
    with started("fs", "--name", "llm", "--nodes", "2", "--", "bash", "-c", SAVING) as job:
        [ran] = running(clusters, 1)
        until(lambda: os.listdir(ran["checkpoint_dir"]))
        clusters.served.process.terminate()
        assert clusters.served.process.wait(DEADLINE_S) == 0
        listed = holdfast("nodes", "list")
        assert "No process manages the cluster fs: start holdfast api again" in listed.stderr
        [stopped] = clusters.jobs()
        [over] = stopped["attempts"]
        assert over["stopped_at"] is not None
        assert (over["reason"], over["node"]) == ("ManagerStopped", "")
        assert over["evidence"] == "holdfast api, which manages the cluster, was stopped"
        with serving(with_keys(tmp_path / "api.toml")):
            again = until(lambda: [one for one in running(clusters, 1) if one["attempt"] == 2])[0]
            assert (again["id"], again["hardware_retries"]) == (ran["id"], 0)
            assert (again["app_retries"], again["attempts"][0]["kind"]) == (0, "requested")
            assert holdfast("jobs", "cancel", "llm", "--yes").returncode == 0
            assert job.wait(DEADLINE_S) == 1


@pytest.fixture
def disk(local_platform) -> Iterator[Disk]:
    """A small one that ``HOLDFAST_HOME`` is on."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    disk = Disk(local_platform)
    yield disk
    disk.close()


def test_a_server_that_is_stopped_on_a_full_disk_lets_jobs_save_elsewhere(
    disk, clusters, tmp_path
) -> None:
    clusters.create("fs", 1)
    saved = tmp_path / "saved"
    script = f"trap 'sleep 1; touch {saved}; exit 1' TERM; touch {tmp_path}/up; sleep 60 & wait"
    with started("fs", "--name", "llm", "--", "bash", "-c", script):
        until((tmp_path / "up").exists)
        disk.fill()
        clusters.served.process.terminate()
        clusters.served.process.wait(DEADLINE_S)
    assert saved.exists()


def test_a_run_is_no_cluster_and_takes_no_name_of_one(clusters) -> None:
    argv = [sys.executable, "-m", "holdfast", "run", "--name", "fs", "--", *SLEEP]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as plain:
        try:
            running(clusters, 1)
            clusters.create("fs", 1)
            listed = json.loads(clusters.aws("list-clusters").out)["ClusterSummaries"]
            assert [one["ClusterName"] for one in listed] == ["fs"]
            assert run("fs", "--", "true")[0] == 0
            assert plain.poll() is None
        finally:
            plain.terminate()


def spare_of(job: dict) -> str:
    listed = json.loads(holdfast("nodes", "list", "--output", "json").stdout)
    [spare] = [one["name"] for one in listed if one["name"] not in job["placement"]]
    return spare


def injected(clusters: Clusters, option: str, node: str) -> str:
    """Break a node; returns its name once that is an event of the cluster."""
    assert holdfast("inject", "xid", "79", option, node).returncode == 0
    until(lambda: [one for one in clusters.events("fs") if node in one["Description"]])
    return node
