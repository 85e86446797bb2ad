"""What the chart runs as the exporter to CloudWatch, run here against moto."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import boto3
import pytest
from chart import HELM_CHART, Helm
from moto.server import ThreadedMotoServer

from holdfast.adapters.telemetry.cloudwatch import NAMESPACE
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.main import run

EXAMPLE = HELM_CHART / "examples" / "cloudwatch.yaml"
REGION = "us-west-2"
INSTANCE = "i-0592464924bd45322"


@pytest.fixture(scope="module")
def aws() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The root of a HyperPod instance, with the log of its agent."""
    identity = tmp_path / "sys/class/dmi/id"
    identity.mkdir(parents=True)
    (identity / "board_asset_tag").write_text(f"{INSTANCE}\n", encoding="utf-8")
    (identity / "sys_vendor").write_text("Amazon EC2\n", encoding="utf-8")
    config = {
        "ClusterConfig": {
            "ClusterName": "ml",
            "ClusterArn": f"arn:aws:sagemaker:{REGION}:111122223333:cluster/abc123def456",
        },
        "InstanceGroups": [
            {"Name": "gpu", "Instances": [{"InstanceName": "gpu-1", "InstanceId": INSTANCE}]}
        ],
    }
    shared = tmp_path / "opt/ml/config"
    shared.mkdir(parents=True)
    (shared / "resource_config.json").write_text(json.dumps(config), encoding="utf-8")
    line = {
        "ts": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "msg": "x",
        "Event detail": {"Action": "Replace", "Reason": "NvidiaGpuXidErrorPendingReplacement"},
    }
    (tmp_path / "agent.log").write_text(f"{json.dumps(line)}\n", encoding="utf-8")
    return tmp_path


def exporter(helm: Helm, *given: str) -> list[str]:
    """The arguments of the container."""
    [pods] = [one for one in helm.objects(EXAMPLE, given=given) if one["kind"] == "DaemonSet"]
    [_, container] = pods["spec"]["template"]["spec"]["containers"]
    arguments: list[str] = container["args"]
    return arguments


def on(machine: Path, arguments: list[str]) -> list[str]:
    """The same arguments outside of the container."""
    return [
        one.replace("/var/log/holdfast/agent.log", f"{machine}/agent.log").replace(
            "--root=/host", f"--root={machine}"
        )
        for one in arguments
    ]


def test_the_example_ships_lines_and_metrics_under_the_names_of_the_machine(
    helm: Helm, aws: str, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a")
    arguments = on(machine, exporter(helm, f'agent.cloudwatch.endpointUrl="{aws}"'))

    assert run([*arguments, "--once"]) == ExitCode.OK

    logs = boto3.client("logs", region_name=REGION, endpoint_url=aws)
    found = logs.filter_log_events(logGroupName="/aws/sagemaker/Clusters/ml/abc123def456")
    assert [one["logStreamName"] for one in found["events"]] == [
        f"SagemakerHealthMonitoringAgent/gpu/{INSTANCE}"
    ]
    cloudwatch = boto3.client("cloudwatch", region_name=REGION, endpoint_url=aws)
    metrics = cloudwatch.list_metrics(Namespace=NAMESPACE)  # moto reports those of buckets, too
    names = {one["MetricName"] for one in metrics["Metrics"]}
    assert names == {"NvidiaGpuXidErrorPendingReplacement"}


def test_names_that_are_given_win_over_those_of_the_machine(
    helm: Helm, machine: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = [
        'agent.cloudwatch.cluster="other"',
        'agent.cloudwatch.clusterId="xyz"',
        'agent.cloudwatch.instanceGroup="cpu"',
    ]

    assert run([*on(machine, exporter(helm, *given)), "--dry-run"]) == ExitCode.OK

    said = capfd.readouterr().out
    assert "/aws/sagemaker/Clusters/other/xyz" in said
    assert f"SagemakerHealthMonitoringAgent/cpu/{INSTANCE}" in said


@pytest.mark.parametrize(("key", "option"), [("lines", "--no-lines"), ("metrics", "--no-metrics")])
def test_either_kind_can_be_left_out(helm: Helm, machine: Path, key: str, option: str) -> None:
    arguments = exporter(helm, f"agent.cloudwatch.{key}=false")

    assert option in arguments
    assert option not in exporter(helm)
    assert run([*on(machine, arguments), "--dry-run"]) == ExitCode.OK
