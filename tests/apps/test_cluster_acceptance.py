"""The cluster of the guide under load, made and changed with the AWS command line."""

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from aws_command_line import AwsCommandLine
from served_api import holdfast, serving, with_keys
from test_jobs_of_clusters import DEADLINE_S, SAVING, Clusters, run, running, started, until

GUIDE = Path(__file__).parents[2] / "docs/howto/create-clusters.md"
NAME, GROUP = "ml-cluster", "worker-group-1"


def guide_request(scripts: Path) -> str:
    """The first request of the guide, letter by letter but for the place of the scripts."""
    text, *_ = re.findall(r"```json\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    place = "file:///home/ada/scripts"
    assert place in text
    return text.replace(place, scripts.as_uri())


class GuideCluster(Clusters):
    """The cluster of the guide."""

    def nodes(self) -> dict[str, str]:
        """``instance -> status``."""
        ended = self.aws("list-cluster-nodes", "--cluster-name", NAME)
        assert ended.code == 0, ended.err
        found = json.loads(ended.out)["ClusterNodeSummaries"]
        return {one["InstanceId"]: one["InstanceStatus"]["Status"] for one in found}

    def change(self, *argv: str) -> None:
        ended = self.aws(*argv)
        assert ended.code == 0, ended.err

    def scale(self, count: int) -> None:
        """Change the number of nodes as the guide does, and wait until it is reached."""
        [group] = self.described()["InstanceGroups"]
        kept = {
            name: group[name]
            for name in ("LifeCycleConfig", "ExecutionRole", "ThreadsPerCore", "InstanceType")
        }
        changed = {**kept, "InstanceGroupName": GROUP, "InstanceCount": count}
        self.change(
            "update-cluster", "--cluster-name", NAME, "--instance-groups", json.dumps([changed])
        )
        self.settle(count)

    def settle(self, count: int) -> None:
        until(
            lambda: (
                self.described()["ClusterStatus"] == "InService"
                and list(self.nodes().values()) == ["Running"] * count
            )
        )

    def described(self) -> dict:
        return self.describe(NAME)

    def job(self, name: str) -> dict:
        [found] = [one for one in self.jobs() if one["name"] == name]
        return found

    def waits(self, name: str) -> dict | None:
        found = self.job(name)
        return found if found["phase"] == "waiting" else None

    def runs(self, name: str, *, attempt: int) -> dict | None:
        found = self.job(name)
        return found if (found["phase"], found["attempt"]) == ("running", attempt) else None


@pytest.fixture
def cluster(local_platform, tmp_path) -> Iterator[GuideCluster]:
    """The cluster of the guide, in service."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "on_create.sh").write_text("echo ready\n")
    request = tmp_path / "cluster.json"
    request.write_text(guide_request(scripts), encoding="utf-8")
    with (
        serving(with_keys(tmp_path / "api.toml")) as served,
        contextlib.closing(AwsCommandLine(served)) as aws,
    ):
        one = GuideCluster(served, aws)
        one.change("create-cluster", "--cli-input-json", request.as_uri())
        one.settle(4)
        yield one


def checks(node: str) -> int:
    """How many deep health checks of a node have ended."""
    shown = holdfast("nodes", "describe", node, "--output", "json")
    assert shown.returncode == 0, shown.stderr
    return len(json.loads(shown.stdout)["checks"])


def test_updates_under_load_cost_a_job_no_retry(cluster) -> None:
    """Two jobs after each other, then one that runs while its group changes."""
    for text in ("one", "two"):
        code, lines = run(NAME, "--nodes", "4", "--", "bash", "-c", f"echo {text}")
        assert code == 0, lines
    with started(NAME, "--name", "llm", "--nodes", "2", "--", "bash", "-c", SAVING) as job:
        [before] = running(cluster, 1)
        cluster.scale(5)
        cluster.scale(2)
        undisturbed = cluster.job("llm")
        assert (undisturbed["phase"], undisturbed["attempt"]) == ("running", 1)
        assert undisturbed["placement"] == before["placement"]

        cluster.scale(1)
        waiting = until(lambda: cluster.waits("llm"))
        assert waiting["attempts"][0]["reason"] == "NodeRemoved"
        assert "llm" in holdfast("status").stdout
        cluster.scale(3)
        again = until(lambda: cluster.runs("llm", attempt=2))

        old = set(cluster.nodes())
        cluster.change("update-cluster-software", "--cluster-name", NAME)
        until(lambda: not old & set(cluster.nodes()))
        cluster.settle(3)
        updated = until(lambda: cluster.runs("llm", attempt=3))
        assert not set(updated["placement"]) & set(again["placement"])
        assert (updated["hardware_retries"], updated["app_retries"]) == (0, 0)
        assert [one["kind"] for one in updated["attempts"]] == ["requested", "requested", ""]
        cluster.change("delete-cluster", "--cluster-name", NAME)
        job.communicate(timeout=DEADLINE_S)
    assert job.returncode == 1
    until(lambda: not cluster.described())


def test_a_check_under_load_waits_for_the_jobs(cluster) -> None:
    with (
        started(NAME, "--name", "a", "--nodes", "2", "--", "bash", "-c", SAVING) as a,
        started(NAME, "--name", "b", "--nodes", "1", "--", "bash", "-c", SAVING) as b,
    ):
        jobs = running(cluster, 2)
        busy = {node for one in jobs for node in one["placement"]}
        assert len(busy) == 3
        nodes = {f"hyperpod-{node}" for node in cluster.nodes()}
        [idle] = nodes - busy
        check = {
            "InstanceGroupName": GROUP,
            "InstanceIds": sorted(cluster.nodes()),
            "DeepHealthChecks": ["InstanceStress"],
        }
        cluster.change(
            "start-cluster-health-check", "--cluster-name", NAME,
            "--deep-health-check-configurations", json.dumps([check]),
        )  # fmt: skip
        until(lambda: checks(idle) == 2)
        assert [checks(node) for node in busy] == [1, 1, 1]
        assert [(one["phase"], one["attempt"]) for one in cluster.jobs()] == [("running", 1)] * 2

        [freed] = {node for one in jobs if one["name"] == "b" for node in one["placement"]}
        assert holdfast("jobs", "cancel", "b", "--yes").returncode == 0
        b.communicate(timeout=DEADLINE_S)
        until(lambda: checks(freed) == 2)
        assert cluster.runs("a", attempt=1)
        cluster.change("delete-cluster", "--cluster-name", NAME)
        out, _ = a.communicate(timeout=DEADLINE_S)
    last = json.loads(out.splitlines()[-1])
    assert (last["outcome"], last["reason"]) == ("cancelled", f"the cluster {NAME} was deleted")
    assert (last["hardware_retries"], last["app_retries"]) == (0, 0)
