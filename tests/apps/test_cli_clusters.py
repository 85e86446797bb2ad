"""``holdfast clusters``, against an API that creates clusters on this machine."""

import json
import threading
from collections.abc import Iterator
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import pytest
import yaml
from click.shell_completion import ShellComplete
from served_api import serving, with_keys

from holdfast.apps.cli.main import cli
from holdfast.apps.exit_codes import ExitCode
from tests.engines.waiting import until

ROLE = "arn:aws:iam::123456789012:role/nodes"
GROUP = {
    "InstanceGroupName": "gpu",
    "InstanceCount": 1,
    "InstanceType": "ml.g5.xlarge",
    "ExecutionRole": ROLE,
}


@pytest.fixture
def source(tmp_path) -> Path:
    request = {
        "ClusterName": "lab",
        "InstanceGroups": [GROUP],
        "NodeProvisioningMode": "Continuous",
    }
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(request), encoding="utf-8")
    return path


class Api:
    """An API, called by the commands, and watched with less effort."""

    def __init__(self, runs, served) -> None:
        self._runs, self._served = runs, served
        self._client = served.client()

    def __call__(self, *argv: str):
        return self._runs.call("clusters", *argv, *self.options)

    @property
    def options(self) -> tuple[str, ...]:
        return ("--config", str(self._served.config), "--endpoint-url", self._served.url)

    @property
    def url(self) -> str:
        return self._served.url

    def rows(self, *argv: str) -> list:
        return self(*argv, "-o", "json").json

    def running(self) -> list[str]:
        nodes = self._client.list_cluster_nodes(ClusterName="lab")["ClusterNodeSummaries"]
        states = {one["InstanceId"]: one["InstanceStatus"]["Status"] for one in nodes}
        return list(states) if set(states.values()) == {"Running"} else []

    def until(self, *, count: int) -> list[str]:
        """The nodes, once so many run and the cluster is in service."""
        until(lambda: len(self.running()) == count and self.status() == "InService")
        return self.running()

    def status(self) -> str:
        return self._client.describe_cluster(ClusterName="lab")["ClusterStatus"]


@pytest.fixture
def call(runs, tmp_path) -> Iterator[Api]:
    with serving(with_keys(tmp_path / "api.toml")) as served:
        yield Api(runs, served)


def completed(call: Api, command: str, *, incomplete: str) -> list[str]:
    shell = ShellComplete(cli, {}, "holdfast", "_HOLDFAST_COMPLETE")
    argv = ["clusters", command, *call.options]
    return [one.value for one in shell.get_completions(argv, incomplete)]


def change(source: Path, *, count: int) -> None:
    """Make a file an ``UpdateCluster`` request."""
    groups = [{**GROUP, "InstanceCount": count}]
    request = {"ClusterName": "lab", "InstanceGroups": groups, "NodeRecovery": "None"}
    source.write_text(json.dumps(request), encoding="utf-8")


def lists_are_selected(call) -> None:
    """The lists of the cluster ``lab`` with one node show what is selected."""
    named = ("-o", "name", "--since", "1h", "-l", "name=lab", "--state", "InService")
    assert call("list", *named).out == "lab\n"
    assert call("list", "--state", "Failed,Deleting").err == "No cluster matches.\n"
    of_group = ("--state", "Running", "-l", "group=gpu", "--sort-by", "since", "--no-headers")
    assert len(call("nodes", "lab", *of_group).out.splitlines()) == 1
    assert call("nodes", "lab", "--reason", "capacity").err == "No node matches.\n"
    started = ("--state", "Info,Warn", "--since", "1h", "--reason", "creation STARTED")
    [event] = call("events", "lab", *started, "--no-headers").out.splitlines()
    assert "lab creation started" in event
    assert call("events", "lab", "--state", "Error").err == "No event matches.\n"


def test_a_cluster_from_its_file_to_its_end(call, source) -> None:
    missing = call("describe", "nowhere")
    assert missing.code == ExitCode.FAILED
    assert "cluster 'nowhere' not found; there are no clusters" in missing.err
    empty = call("list")
    assert (empty.out, "clusters create --from" in empty.err) == ("", True)
    tried = call("create", "--from", str(source), "--dry-run")
    assert (tried.out, call.rows("list")) == ("lab: would be created with 1 node\n", [])
    made = call("create", "--from", str(source))
    assert made.out.startswith("lab is being created with 1 node;")
    call.until(count=1)

    [listed] = call.rows("list")
    assert yaml.safe_load(call("list", "-o", "yaml").out)[0]["ClusterArn"] == listed["ClusterArn"]
    assert "InService" in call("list").out
    lists_are_selected(call)
    described = call("describe", "lab")
    assert "gpu    ml.g5.xlarge  1/1" in described.out
    assert "Continuous" in described.out
    assert "lab creation started" in call("events", "lab").out

    assert "gpu would have 2" in call("scale", "lab", "gpu", "2", "--dry-run").out
    assert "2 nodes instead of 1" in call("scale", "lab", "gpu", "2").out
    call.until(count=2)
    change(source, count=1)
    fewer = call("update", "--from", str(source), "--dry-run")
    assert fewer.out == "lab would be updated; nodes: gpu 2 -> 1\n"
    refused = call("update", "--from", str(source))
    assert (refused.code, "1 node" in refused.err) == (ExitCode.BAD_INPUT, True)
    change(source, count=2)
    updated = call("update", "--from", str(source))
    assert updated.out == "lab is being updated; number of nodes unchanged\n"
    call.until(count=2)
    assert call.rows("describe", "lab")["NodeRecovery"] == "None"
    added = call("add-nodes", "lab", "gpu", "1")
    assert (added.code, "gpu will have gpu-" in added.out) == (ExitCode.OK, True)
    goes, *stay = call.until(count=3)
    refused = call("delete-nodes", "lab", goes)
    assert (refused.code, "--yes" in refused.err) == (ExitCode.BAD_INPUT, True)
    assert "would be deleted" in call("delete-nodes", "lab", goes, "--dry-run").out
    names = {one["InstanceId"]: one["NodeLogicalId"] for one in call.rows("nodes", "lab")}
    deleted = call("delete-nodes", "lab", names[goes], "i-00000000", "--yes")
    assert deleted.code == ExitCode.PARTLY_DONE
    assert deleted.out == f"lab: {names[goes]} will be deleted\n"
    assert "i-00000000 is not in the cluster" in deleted.err
    assert set(call.until(count=2)) == set(stay)

    assert "would be updated" in call("update-software", "lab", "--dry-run").out
    updated = call("update-software", "lab", "--batch", "50%", "--yes")
    assert updated.out == "lab: software update of all groups started\n"
    assert not set(call.until(count=2)) & set(stay)

    assert "would be deleted with 2 nodes" in call("delete", "lab", "--dry-run").out
    assert call("delete", "lab", "--yes").out == "lab is being deleted\n"
    until(lambda: call.rows("list") == [])


def test_clusters_of_the_api_are_completed_and_named_if_one_is_misspelled(call, source) -> None:
    assert call("create", "--from", str(source)).code == ExitCode.OK
    typo = call("nodes", "lba")

    assert (typo.code, "cluster 'lba' not found; did you mean 'lab'?" in typo.err) == (1, True)
    assert completed(call, "describe", incomplete="l") == ["lab"]
    assert completed(call, "scale", incomplete="x") == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON: Expecting"),
        ('{"ClusterNane": "a"}', "member 'ClusterNane' not found; did you mean 'ClusterName'?"),
        (
            json.dumps({"ClusterName": "a", "InstanceGroups": [{"InstanceGrupName": "g"}]}),
            "at 'instanceGroups.1.member', member 'InstanceGrupName' not found; did you mean",
        ),
        (
            json.dumps({"ClusterName": "a", "InstanceGroups": [GROUP | {"InstanceType": "g5"}]}),
            "'g5' at 'instanceGroups.1.member.instanceType' is none of ",
        ),
        ("[]", "can not be converted to structure"),
        ('{"InstanceGroups": []}', "clusterName"),
        (json.dumps({"ClusterName": "a", "InstanceGroups": [GROUP, GROUP]}), "gpu is duplicated"),
    ],
)
def test_a_file_that_is_no_request_is_refused_before_it_is_sent(runs, source, text, says) -> None:
    source.write_text(text, encoding="utf-8")

    refused = runs.call("clusters", "create", "--from", str(source), "--dry-run")

    assert refused.code == ExitCode.BAD_INPUT
    assert says in refused.err
    assert len(refused.err) < 1000  # not all instance types that there are


def test_an_api_that_is_away_is_reported_with_what_to_do(runs, tmp_path) -> None:
    config = with_keys(tmp_path / "api.toml")
    url = "http://127.0.0.1:9"

    refused = runs.call("clusters", "list", "--config", str(config), "--endpoint-url", url)

    assert refused.code == ExitCode.FAILED
    assert "Start it with: holdfast api --config FILE" in refused.err


@pytest.mark.parametrize(
    ("setting", "url", "says"),
    [
        ({}, "nonsense", "--endpoint-url: 'nonsense' is not a URL"),
        ({"AWS_PROFILE": "none"}, "http://127.0.0.1:9", "profile (none) could not be found"),
        ({"AWS_REGION": "x y"}, "http://127.0.0.1:9", "'x y'"),
    ],
)
def test_settings_that_cannot_be_used_are_reported(runs, monkeypatch, setting, url, says) -> None:
    for name, value in setting.items():
        monkeypatch.setenv(name, value)

    refused = runs.call("clusters", "list", "--endpoint-url", url)

    assert (refused.code, says in refused.err) == (ExitCode.BAD_INPUT, True), refused.err


def test_a_key_that_the_api_does_not_know_is_reported_with_what_to_do(call, runs, tmp_path) -> None:
    other = with_keys(tmp_path / "other.toml")
    other.write_text(other.read_text(encoding="utf-8").replace("AKIA", "AKIB"), encoding="utf-8")

    refused = runs.call("clusters", "list", "--config", str(other), "--endpoint-url", call.url)

    assert refused.code == ExitCode.FAILED
    assert "rejected the key; pass its configuration file" in refused.err


def test_an_address_of_something_else_is_reported_in_a_line(runs, tmp_path) -> None:
    config = with_keys(tmp_path / "api.toml")
    server = HTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler)
    with server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        refused = runs.call("clusters", "list", "--config", str(config), "--endpoint-url", url)

    assert refused.code == ExitCode.FAILED
    assert refused.err.splitlines()[-1] == (
        f"holdfast: {url} returned HTTP status 501; is a cluster API served there?"
    )


def test_without_a_key_the_message_says_where_one_comes_from(runs, monkeypatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/missing")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/missing")

    refused = runs.call("clusters", "list")

    assert (refused.code, "--config" in refused.err) == (ExitCode.BAD_INPUT, True)
