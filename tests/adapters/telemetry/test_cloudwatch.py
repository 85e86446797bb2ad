import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from holdfast.adapters.telemetry import cloudwatch
from holdfast.adapters.telemetry.cloudwatch import CloudWatch, Instance
from holdfast.adapters.telemetry.detection_lines import detection_lines
from holdfast.apps.cli.export import retry_until_success
from holdfast.apps.main import run
from holdfast.detectors import neuron_log
from holdfast.detectors.contract import LogLine, Profile, Readings
from holdfast.detectors.folding import Health, fold
from holdfast.model.conditions import node_conditions
from holdfast.model.errors import BackendError
from holdfast.model.report import NodeReport

TIMEOUT_S = 90.0
REGION = "us-west-2"
INSTANCE = Instance(cluster="c1", cluster_id="abc", instance_group="workers", instance_id="i-1")
GROUP = "/aws/sagemaker/Clusters/c1/abc"
STREAM = "SagemakerHealthMonitoringAgent/workers/i-1"
NOW = datetime.now(UTC).replace(microsecond=0)


def line(
    text: str = "x", *, action: str | None = None, reason: str = "R", at: datetime = NOW
) -> str:
    detail = {"Event detail": {"Action": action, "Reason": reason}} if action else {}
    ts = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"ts": ts, "msg": text, **detail})


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


class Aws:
    """CloudWatch as moto plays it, empty at first."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.logs = boto3.client("logs", region_name=REGION, endpoint_url=url)
        self.metrics = boto3.client("cloudwatch", region_name=REGION, endpoint_url=url)
        request = urllib.request.Request(f"{url}/moto-api/reset", method="POST")  # noqa: S310
        urllib.request.urlopen(request).close()  # noqa: S310

    def target(self) -> CloudWatch:
        return CloudWatch(INSTANCE, region=REGION, endpoint_url=self.url)

    def lines(self) -> list[str]:
        answer = self.logs.get_log_events(
            logGroupName=GROUP, logStreamName=STREAM, startFromHead=True
        )
        return [event["message"] for event in answer["events"]]

    def published(self) -> set[tuple[str, str, int]]:
        """Namespace, name and number of dimensions of each metric."""
        return {
            (metric["Namespace"], metric["MetricName"], len(metric["Dimensions"]))
            for metric in self.metrics.list_metrics()["Metrics"]
        }

    def argv(self, log: Path, *extra: str) -> list[str]:
        return [
            *("export", "cloudwatch", "--log", str(log), "--cluster", "c1", "--cluster-id", "abc"),
            *("--instance-group", "workers", "--instance-id", "i-1", "--region", REGION),
            *("--endpoint-url", self.url, *extra),
        ]


@pytest.fixture
def aws(server: str, monkeypatch: pytest.MonkeyPatch) -> Aws:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
    }.items():
        monkeypatch.setenv(name, value)
    return Aws(server)


def test_lines_arrive_under_the_names_of_hyperpod_in_the_order_of_their_time(aws: Aws) -> None:
    lines = [line("b"), line("a", at=NOW - timedelta(seconds=1)), line("c")]

    aws.target().put_lines(lines)
    aws.target().put_lines([line("d")])

    assert [json.loads(one)["msg"] for one in aws.lines()] == ["a", "b", "c", "d"]


def test_faults_become_metrics_under_the_names_of_their_reasons(aws: Aws) -> None:
    aws.target().put_metrics(
        [
            line(action="replace", reason="NeuronHasError_DMA_ERROR"),
            line(action="reboot", reason="XidReboot"),
            line(action="none", reason="Notice"),
            line(),
            "cut o",
            "[]",
        ]
    )

    assert aws.published() == {
        ("NeuronHealthCheck", "NeuronHasError_DMA_ERROR", 0),
        ("NeuronHealthCheck", "NeuronHasError_DMA_ERROR", 1),
        ("Holdfast/NodeHealth", "XidReboot", 0),
        ("Holdfast/NodeHealth", "XidReboot", 1),
    }
    (total,) = aws.metrics.get_metric_statistics(
        Namespace="NeuronHealthCheck",
        MetricName="NeuronHasError_DMA_ERROR",
        StartTime=NOW - timedelta(minutes=5),
        EndTime=NOW + timedelta(minutes=5),
        Period=3600,
        Statistics=["Sum"],
        Dimensions=[{"Name": "InstanceId", "Value": "i-1"}],
    )["Datapoints"]
    assert total["Sum"] == 1


def test_what_is_no_line_of_ours_is_shipped_all_the_same(aws: Aws) -> None:
    aws.target().put_lines(["cut o", '{"ts": 3}', line("x" * 300_000)])

    first, *_ = sorted(aws.lines(), key=len, reverse=True)
    assert len(first.encode()) == 256 * 1024 - 26
    assert "cut o" in aws.lines()


def sizes(events: list[dict[str, Any]]) -> list[int]:
    return [len(batch) for batch in cloudwatch._batches(events)]


def test_batches_keep_to_the_limits_of_the_api() -> None:
    at = {"timestamp": 0}
    assert sizes([]) == []
    assert sizes([{"message": "x", **at}] * 10_001) == [10_000, 1]
    exactly = 1_048_576 // 4 - 26
    assert sizes([{"message": "x" * exactly, **at}] * 4) == [4]
    assert sizes([{"message": "x" * exactly, **at}] * 4 + [{"message": "", **at}]) == [4, 1]
    day_ms = 24 * 3600 * 1000
    times = [0, day_ms - 1, day_ms, 2 * day_ms - 1, 2 * day_ms]
    assert sizes([{"message": "x", "timestamp": time} for time in times]) == [2, 2, 1]


def test_many_metrics_go_in_several_calls(aws: Aws) -> None:
    faults = [line(action="reboot", reason=f"R{number}") for number in range(600)]

    aws.target().put_metrics(faults)

    names = {
        metric["MetricName"]
        for page in aws.metrics.get_paginator("list_metrics").paginate()
        for metric in page["Metrics"]
    }
    assert names == {f"R{number}" for number in range(600)}


def test_cloudwatch_out_of_reach_is_an_error_to_try_again(aws: Aws) -> None:
    nowhere = CloudWatch(INSTANCE, region=REGION, endpoint_url="http://127.0.0.1:9")

    with pytest.raises(BackendError, match="cannot reach CloudWatch"):
        nowhere.put_metrics([line(action="reboot")])


def test_without_a_region_it_is_reported_what_is_missing(
    aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)

    with pytest.raises(BackendError, match="cannot use CloudWatch: You must specify a region"):
        CloudWatch(INSTANCE)


def test_the_command_ships_each_line_once(aws: Aws, tmp_path: Path) -> None:
    log = tmp_path / "agent.log"
    log.write_text(line("a", action="reboot", reason="Xid") + "\n", encoding="utf-8")
    assert run(aws.argv(log, "--once")) == 0
    with log.open("a", encoding="utf-8") as file:
        file.write(line("b") + "\n")

    assert run(aws.argv(log, "--once")) == 0
    assert run(aws.argv(log, "--once")) == 0

    assert [json.loads(one)["msg"] for one in aws.lines()] == ["a", "b"]
    assert ("Holdfast/NodeHealth", "Xid", 1) in aws.published()


def test_a_dry_run_counts_what_would_be_shipped_and_ships_nothing(
    aws: Aws, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "agent.log"
    log.write_text(line("a") + "\n" + line("b") + "\n", encoding="utf-8")

    for _ in range(2):
        assert run(aws.argv(log, "--dry-run")) == 0
        assert capsys.readouterr().out == f"would export 2 lines to {GROUP}, {STREAM}\n"

    assert aws.logs.describe_log_groups()["logGroups"] == []
    assert run(aws.argv(log, "--once")) == 0
    assert len(aws.lines()) == 2


def test_metrics_may_be_left_out(aws: Aws, tmp_path: Path) -> None:
    log = tmp_path / "agent.log"
    log.write_text(line("a", action="reboot") + "\n", encoding="utf-8")

    assert run(aws.argv(log, "--once", "--no-metrics")) == 0

    assert len(aws.lines()) == 1
    assert aws.published() == set()


RESOURCES = Path(__file__).parents[2] / "recordings" / "hyperpod" / "resource_config.json"
ID = "i-0592464924bd45322"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The files of a machine of HyperPod."""
    root = tmp_path / "machine"
    for name, text in {
        "sys/class/dmi/id/board_asset_tag": ID,
        "opt/ml/config/resource_config.json": RESOURCES.read_text("utf-8"),
    }.items():
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def export(aws: Aws, log: Path, *arguments: str) -> int:
    return run(
        ["export", "cloudwatch", "--log", str(log), "--endpoint-url", aws.url, "--once", *arguments]
    )


def test_a_machine_of_hyperpod_ships_under_its_own_names(
    aws: Aws, tmp_path: Path, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    log = tmp_path / "agent.log"
    log.write_text(line("a") + "\n", encoding="utf-8")

    assert export(aws, log, "--root", str(machine)) == 0

    answer = aws.logs.get_log_events(
        logGroupName="/aws/sagemaker/Clusters/ml-cluster/abcde01234yz",
        logStreamName=f"SagemakerHealthMonitoringAgent/worker-group-1/{ID}",
    )
    assert [json.loads(one["message"])["msg"] for one in answer["events"]] == ["a"]


def test_an_option_wins_over_what_the_machine_knows(
    aws: Aws, tmp_path: Path, machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "agent.log"
    log.write_text(line("a") + "\n", encoding="utf-8")

    assert export(aws, log, "--root", str(machine), "--cluster", "other", "--dry-run") == 0

    assert "/Clusters/other/abcde01234yz, " in capsys.readouterr().out


def test_metrics_need_the_instance_id_alone(aws: Aws, tmp_path: Path, machine: Path) -> None:
    (machine / "opt/ml/config/resource_config.json").unlink()
    log = tmp_path / "agent.log"
    log.write_text(line("a", action="replace", reason="R") + "\n", encoding="utf-8")

    assert export(aws, log, "--root", str(machine), "--no-lines", "--region", REGION) == 0

    assert ("Holdfast/NodeHealth", "R", 1) in aws.published()
    assert aws.logs.describe_log_groups()["logGroups"] == []


def test_a_name_that_is_not_known_is_asked_for_by_its_option(
    aws: Aws, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "agent.log"
    log.touch()

    assert export(aws, log, "--root", str(tmp_path), "--cluster-id", "abc") == 2

    problems = capsys.readouterr().err.splitlines()
    assert [problem.split(":")[1].strip() for problem in problems] == [
        "--cluster",
        "--instance-group",
        "--instance-id",
    ]
    assert f"{tmp_path}/opt/ml/config/resource_config.json" in problems[0]
    assert export(aws, log, "--no-lines", "--no-metrics") == 2


@pytest.mark.parametrize("action", [" action=TERMINATE_INSTANCE", ""])
def test_a_hang_of_collectives_is_the_metric_that_aws_publishes(aws: Aws, action: str) -> None:
    text = f"NEURON_HW_ERR=HANG_ON_COLLECTIVES instance-id={ID} nd-id=0 nc-id=0"
    finding = LogLine(message=f"{text}{action}", observed_at=NOW)
    findings = neuron_log.build(Profile.HYPERPOD).detect(Readings(kernel_log=(finding,)))
    health = fold(Health(), findings)
    report = NodeReport(
        node="n1",
        boot_id="b",
        sequence=1,
        reported_at=NOW,
        faults=health.faults,
        conditions=node_conditions((), health.faults, NOW),
    )
    aws.target().put_metrics(detection_lines(None, report))

    assert {one for one in aws.published() if one[2] == 0} == {
        ("NeuronHealthCheck", "NeuronHasError_HANG_ON_COLLECTIVES", 0)
    }
    assert [(one.type, one.reason) for one in report.conditions if one.status == "True"] == [
        ("NeuronHealth", "NeuronHasError_HANG_ON_COLLECTIVES")
    ]


def test_what_could_not_be_shipped_is_shipped_the_next_time(
    aws: Aws, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "agent.log"
    log.write_text(line("a") + "\n", encoding="utf-8")

    assert run([*aws.argv(log, "--once"), "--endpoint-url", "http://127.0.0.1:9"]) == 1
    assert "cannot reach CloudWatch" in capsys.readouterr().err

    assert run(aws.argv(log, "--once")) == 0
    assert len(aws.lines()) == 1


def test_a_log_that_is_not_there_is_named(
    aws: Aws, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(aws.argv(tmp_path / "none", "--once")) == 2
    assert "holdfast agent --json-log" in capsys.readouterr().err


def test_a_try_that_fails_is_made_again_after_pauses_that_double_up_to_a_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)

    def attempt() -> str:
        if len(pauses) < 8:
            raise BackendError("CloudWatch is away")
        return "done"

    assert retry_until_success(attempt) == "done"
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert capsys.readouterr().err.count("CloudWatch is away; retrying in 60 s") == 2


def eventually(is_true: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_log_is_followed_as_it_grows(aws: Aws, tmp_path: Path) -> None:
    log = tmp_path / "agent.log"
    errors = tmp_path / "errors"
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *aws.argv(log)], stderr=stderr
        )
    try:
        log.write_text(line("a") + "\n", encoding="utf-8")
        eventually((tmp_path / ".agent.log.cloudwatch").exists)
        with log.open("a", encoding="utf-8") as file:
            file.write(line("b") + "\n")
        eventually(lambda: len(aws.lines()) == 2)
    finally:
        process.terminate()
        process.wait()

    assert errors.read_text(encoding="utf-8") == ""
