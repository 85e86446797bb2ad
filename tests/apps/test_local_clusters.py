"""Clusters that ``holdfast api`` creates on this machine, from the first node to the last."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from served_api import Served, holdfast, serving, with_keys

from tests.engines.waiting import until

TRAINING = """
import os, time
path = os.environ["HOLDFAST_CHECKPOINT_DIR"] + "/step-" + os.environ["RANK"]
step = int(open(path).read()) if os.path.exists(path) else 0
print("from step", step, flush=True)
while step < 20 or not os.path.exists(os.environ["ENOUGH"]):
    time.sleep(0.05)
    step += 1
    with open(path + ".new", "w") as file:
        file.write(str(step))
    os.replace(path + ".new", path)
"""


def launch_guide(scripts: Path, *, count: int = 2) -> dict:
    """The JSON of the launch guide, with scripts on this machine."""
    return {
        "ClusterName": "ml-cluster",
        "Orchestrator": {
            "Eks": {"ClusterArn": "arn:aws:eks:us-east-1:123456789012:cluster/my-eks-cluster"}
        },
        "InstanceGroups": [
            {
                "InstanceGroupName": "worker-group-1",
                "InstanceType": "ml.p5.48xlarge",
                "InstanceCount": count,
                "InstanceStorageConfigs": [{"EbsVolumeConfig": {"VolumeSizeInGB": 500}}],
                "LifeCycleConfig": {
                    "SourceS3Uri": f"file://{scripts}",
                    "OnCreate": "on_create.sh",
                },
                "ExecutionRole": "arn:aws:iam::123456789012:role/ClusterRole",
                "ThreadsPerCore": 1,
                "OnStartDeepHealthChecks": ["InstanceStress", "InstanceConnectivity"],
            }
        ],
        "VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]},
        "NodeRecovery": "Automatic",
    }


@pytest.fixture
def home(local_platform: Path, tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("ENOUGH", str(tmp_path / "enough"))
    return local_platform


@pytest.fixture
def scripts(tmp_path) -> Path:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "on_create.sh").write_text(
        'cp "$SAGEMAKER_RESOURCE_CONFIG_PATH" seen.json\n'
        f'echo "$PWD" >> {tmp_path}/ran\n'
        f"if [ -e {tmp_path}/break ]; then echo broken; exit 3; fi\n",
        encoding="utf-8",
    )
    return scripts


class Cluster:
    def __init__(self, served: Served, name: str = "ml-cluster") -> None:
        self.calls, self.name = served.client(), name

    def status(self) -> str:
        try:
            return self.calls.describe_cluster(ClusterName=self.name)["ClusterStatus"]
        except ClientError as error:
            return error.response["Error"]["Code"]

    def nodes(self) -> dict[str, str]:
        listed = self.calls.list_cluster_nodes(ClusterName=self.name)["ClusterNodeSummaries"]
        return {one["InstanceId"]: one["InstanceStatus"]["Status"] for one in listed}

    def message(self) -> str:
        """What is said of the only node."""
        [node] = self.calls.list_cluster_nodes(ClusterName=self.name)["ClusterNodeSummaries"]
        return node["InstanceStatus"].get("Message", "")

    def is_running(self, count: int) -> bool:
        return self.status() == "InService" and list(self.nodes().values()) == ["Running"] * count


def processes_of(home: Path) -> list[str]:
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if str(home) in line]


def test_the_launch_guide_runs_on_one_machine(home, scripts, tmp_path) -> None:
    with serving(with_keys(tmp_path / "api.toml")) as served:
        cluster = Cluster(served)
        cluster.calls.create_cluster(**launch_guide(scripts))
        until(lambda: cluster.is_running(2))
        before = cluster.nodes()
        described = cluster.calls.describe_cluster(ClusterName="ml-cluster")
        requested = launch_guide(scripts)
        assert described["VpcConfig"] == requested["VpcConfig"]
        assert described["Orchestrator"] == requested["Orchestrator"]
        group = described["InstanceGroups"][0]
        kept = {name: group[name] for name in requested["InstanceGroups"][0] if name in group}
        assert kept == {
            name: value
            for name, value in requested["InstanceGroups"][0].items()
            if name != "InstanceCount"
        }
        assert {one["deep_check_status"] for one in listed_nodes()} == {"Passed"}

        job = [sys.executable, "-m", "holdfast", "run", "--cluster", "ml-cluster", "--nodes", "2",
               "--output", "json", "--", sys.executable, "-c", TRAINING]  # fmt: skip
        with subprocess.Popen(job, stdout=subprocess.PIPE, text=True) as run:
            broken = next(one for one in until_placed() if one["rank"] == 1)
            until(lambda: list(home.glob("clusters/ml-cluster/jobs/*/checkpoints/step-0")))
            injected = holdfast("inject", "xid", "79", "--node", broken["name"])
            assert injected.returncode == 0, injected.stderr
            until(lambda: broken["provider_id"] not in cluster.nodes())
            until(lambda: cluster.is_running(2))
            assert holdfast("run", "--cluster", "ml-cluster", "--", "true").returncode == 2
            (tmp_path / "enough").touch()
            output = [json.loads(line) for line in run.stdout]
        assert run.returncode == 0
        lines = [one["line"] for one in output if one["event"] == "job.log"]
        assert lines[0] == "from step 0"
        assert int(lines[-1].removeprefix("from step ")) > 0
        assert output[-1]["hardware_retries"] >= 1

        replacement = min(cluster.nodes().keys() - before.keys())
        events = cluster.calls.list_cluster_events(ClusterName="ml-cluster", MaxResults=100)
        descriptions = [one["Description"] for one in events["Events"]]
        assert any("NvidiaGpuXidErrorPendingReplacement" in one for one in descriptions)
        assert any(f"creation of {replacement}" in one for one in descriptions)
        assert len((tmp_path / "ran").read_text().splitlines()) >= 3

        cluster.calls.delete_cluster(ClusterName="ml-cluster")
        until(lambda: cluster.status() == "ResourceNotFound")
        until(
            lambda: (
                not [
                    one
                    for one in processes_of(home)
                    if "cluster_supervisor" in one or "node_" in one
                ]
            )
        )


def listed_nodes() -> list[dict]:
    listed = holdfast("nodes", "list", "--output", "json")
    assert listed.returncode == 0, listed.stderr
    return json.loads(listed.stdout)


def until_placed() -> list[dict]:
    found: list[dict] = []

    def is_placed() -> bool:
        found[:] = [one for one in listed_nodes() if one["rank"] is not None]
        return len(found) == 2

    until(is_placed)
    return found


def test_a_cluster_outlives_the_server_and_a_reboot_runs_no_script(home, scripts, tmp_path) -> None:
    config = with_keys(tmp_path / "api.toml")
    with serving(config) as served:
        cluster = Cluster(served)
        cluster.calls.create_cluster(**launch_guide(scripts))
        until(cluster.nodes)
        served.process.kill()
    until(lambda: not processes_of(home))
    with serving(config) as served:
        cluster = Cluster(served)
        until(lambda: cluster.is_running(2))
        before, ran = cluster.nodes(), (tmp_path / "ran").read_text()
        served.process.kill()
    until(lambda: not processes_of(home))

    with serving(config) as served:
        cluster = Cluster(served)
        until(lambda: cluster.is_running(2))
        assert cluster.nodes() == before
        first = min(before)
        boot_id = home / f"clusters/ml-cluster/nodes/hyperpod-{first}/boot_id"
        booted = boot_id.read_text(encoding="utf-8")
        cluster.calls.batch_reboot_cluster_nodes(ClusterName="ml-cluster", NodeIds=[first])
        until(lambda: boot_id.read_text(encoding="utf-8") != booted)
        until(lambda: cluster.is_running(2))
        assert (tmp_path / "ran").read_text() == ran

        (tmp_path / "break").touch()
        cluster.calls.update_cluster(
            ClusterName="ml-cluster",
            InstanceGroups=launch_guide(scripts, count=3)["InstanceGroups"],
        )
        until(lambda: cluster.status() == "InService")
        described = cluster.calls.describe_cluster(ClusterName="ml-cluster")
        assert "exited with code 3" in described["FailureMessage"]
        until(lambda: cluster.is_running(2))
        assert cluster.nodes() == before
        served.process.terminate()
        assert served.process.wait(30) is not None
    until(lambda: not processes_of(home))


def test_a_requested_check_waits_for_the_job_and_reports_what_it_did_not_run(
    home, scripts, tmp_path
) -> None:
    request = launch_guide(scripts, count=1)
    del request["InstanceGroups"][0]["OnStartDeepHealthChecks"]
    with serving(with_keys(tmp_path / "api.toml")) as served:
        cluster = Cluster(served)
        cluster.calls.create_cluster(**request)
        until(lambda: cluster.is_running(1))
        wait = f"while [ ! -e {tmp_path}/enough ]; do sleep 0.1; done"
        job = [sys.executable, "-m", "holdfast", "run", "--cluster", "ml-cluster", "--",
               "bash", "-c", wait]  # fmt: skip
        with subprocess.Popen(job, stdout=subprocess.PIPE, text=True) as run:
            until(lambda: [one for one in listed_nodes() if one["rank"] is not None])
            cluster.calls.start_cluster_health_check(
                ClusterName="ml-cluster",
                DeepHealthCheckConfigurations=[
                    {
                        "InstanceGroupName": "worker-group-1",
                        "DeepHealthChecks": ["InstanceConnectivity"],
                    }
                ],
            )
            until(lambda: "waits for job" in cluster.message())
            assert list(cluster.nodes().values()) == ["Running"]
            (tmp_path / "enough").touch()
            output = run.stdout.read()
        assert run.returncode == 0
        assert "attempts: 1;" in output

        until(lambda: "InstanceConnectivity skipped: no other node" in cluster.message())
        events = cluster.calls.list_cluster_events(ClusterName="ml-cluster", MaxResults=100)
        levels = {one["Description"]: one["EventLevel"] for one in events["Events"]}
        assert "Error" not in levels.values()
        assert not [text for text in levels if "passed its deep health check" in text]
        assert [one["deep_check_status"] for one in listed_nodes()] == ["Skipped"]
