"""Alarms of CloudWatch, as moto has them."""

import boto3
import pytest
from moto import mock_aws

from holdfast.adapters.telemetry.alarms import CloudWatchAlarms
from holdfast.model.errors import BackendError


@pytest.fixture
def region(monkeypatch):
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")


def test_of_the_alarms_that_are_named_those_that_went_off_are_reported(region) -> None:
    with mock_aws():
        client = boto3.client("cloudwatch")
        for name in ("loss", "calm", "unasked"):
            client.put_metric_alarm(
                AlarmName=name, MetricName="m", Namespace="n", Statistic="Sum", Period=60,
                EvaluationPeriods=1, Threshold=1.0, ComparisonOperator="GreaterThanThreshold",
            )  # fmt: skip
            if name != "calm":
                client.set_alarm_state(AlarmName=name, StateValue="ALARM", StateReason="test")
        many = [f"none-{number}" for number in range(250)]

        assert CloudWatchAlarms().active_alarms(["loss", "calm", *many]) == {"loss"}
        client.close()


def test_alarms_that_cannot_be_read_are_no_calm(region, monkeypatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_CLOUDWATCH", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")

    with pytest.raises(BackendError, match="CloudWatch alarms could not be read"):
        CloudWatchAlarms().active_alarms(["loss"])
