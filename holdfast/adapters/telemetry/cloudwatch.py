"""The agent's log lines in CloudWatch, under HyperPod's names. Needs boto3 (extra ``aws``)."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from holdfast.adapters.telemetry.detection_lines import EVENT_DETAIL
from holdfast.model.errors import BackendError
from holdfast.model.health import Remedy

NEURON_NAMESPACE: Final = "NeuronHealthCheck"
"""Of the metrics ``NeuronHasError_*``, as the Neuron problem detector publishes them."""

NAMESPACE: Final = "Holdfast/NodeHealth"
"""Of the metrics for all other reasons."""

# Limits of PutLogEvents and PutMetricData, from the API reference.
_BATCH_EVENTS: Final = 10_000
_BATCH_BYTES: Final = 1_048_576
_EVENT_OVERHEAD: Final = 26
_EVENT_BYTES: Final = 256 * 1024 - _EVENT_OVERHEAD
_BATCH_SPAN_MS: Final = 24 * 3600 * 1000
_BATCH_METRICS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """Whose lines these are, in HyperPod's terms."""

    cluster: str
    cluster_id: str
    instance_group: str
    instance_id: str

    @property
    def log_group(self) -> str:
        """As HyperPod calls it."""
        return f"/aws/sagemaker/Clusters/{self.cluster}/{self.cluster_id}"

    @property
    def log_stream(self) -> str:
        """As HyperPod calls it."""
        return f"SagemakerHealthMonitoringAgent/{self.instance_group}/{self.instance_id}"


class CloudWatch:
    """Takes lines and metrics of one instance.

    Its methods raise ``BackendError`` when CloudWatch did not take them, after five tries.
    """

    def __init__(
        self,
        instance: Instance,
        *,
        region: str | None = None,
        usual_region: str | None = None,
        endpoint_url: str | None = None,
    ) -> None:
        """Speak for ``instance``.

        Args:
            instance: gives the names.
            region: as in boto3: that of the environment or of the profile if None.
            usual_region: used where neither says which.
            endpoint_url: another address than that of AWS.

        Raises:
            BackendError: no region is known.

        """
        self._instance = instance
        config = Config(retries={"mode": "standard", "max_attempts": 5})
        kinds = ("logs", "cloudwatch")
        region = region or boto3.Session().region_name or usual_region
        try:
            self._logs, self._metrics = (
                boto3.client(kind, region_name=region, endpoint_url=endpoint_url, config=config)
                for kind in kinds
            )
        except BotoCoreError as error:
            raise BackendError(f"cannot use CloudWatch: {error}") from error

    def put_lines(self, lines: Sequence[str]) -> None:
        """Append lines to the log stream, which is made if need be, with its group."""
        events = sorted((_event(line) for line in lines), key=lambda event: event["timestamp"])
        for batch in _batches(events):
            try:
                self._put_events(batch)
            except self._logs.exceptions.ResourceNotFoundException:
                self._create()
                self._put_events(batch)

    def put_metrics(self, lines: Sequence[str]) -> None:
        """Publish 1 for the reason of each fault, with and without the instance's dimension."""
        for namespace in (NEURON_NAMESPACE, NAMESPACE):
            data = iter(
                [
                    datum
                    for line in lines
                    for reason, at in _faults(line)
                    if _namespace(reason) == namespace
                    for datum in self._data(reason, at)
                ]
            )
            while batch := list(islice(data, _BATCH_METRICS)):
                _call(self._metrics.put_metric_data, Namespace=namespace, MetricData=batch)

    def _data(self, reason: str, at: datetime) -> Iterator[dict[str, Any]]:
        datum = {"MetricName": reason, "Timestamp": at, "Value": 1.0, "Unit": "Count"}
        yield datum
        yield {
            **datum,
            "Dimensions": [{"Name": "InstanceId", "Value": self._instance.instance_id}],
        }

    def _put_events(self, events: list[dict[str, Any]]) -> None:
        _call(
            self._logs.put_log_events,
            logGroupName=self._instance.log_group,
            logStreamName=self._instance.log_stream,
            logEvents=events,
        )

    def _create(self) -> None:
        names = {
            "logGroupName": self._instance.log_group,
            "logStreamName": self._instance.log_stream,
        }
        for create, keys in (
            (self._logs.create_log_group, ["logGroupName"]),
            (self._logs.create_log_stream, list(names)),
        ):
            try:
                _call(create, **{key: names[key] for key in keys})
            except self._logs.exceptions.ResourceAlreadyExistsException:
                continue


def _call(method: Any, **arguments: Any) -> None:
    try:
        method(**arguments)
    except ClientError as error:
        if error.response["Error"]["Code"] in _ANSWERS:
            raise
        raise BackendError(f"CloudWatch refused: {error}") from error
    except BotoCoreError as error:
        raise BackendError(f"cannot reach CloudWatch: {error}") from error


_ANSWERS: Final = ("ResourceNotFoundException", "ResourceAlreadyExistsException")
"""Errors that tell something and are acted upon."""


def _event(line: str) -> dict[str, Any]:
    message = line.encode()[:_EVENT_BYTES].decode(errors="ignore")
    return {"timestamp": int(_time(_read(line)).timestamp() * 1000), "message": message}


def _batches(events: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """As few as the limits allow; ``events`` are in the order of their time."""
    batch: list[dict[str, Any]] = []
    size = 0
    for event in events:
        weight = len(event["message"].encode()) + _EVENT_OVERHEAD
        is_full = len(batch) == _BATCH_EVENTS or size + weight > _BATCH_BYTES
        if batch and (is_full or event["timestamp"] - batch[0]["timestamp"] >= _BATCH_SPAN_MS):
            yield batch
            batch, size = [], 0
        batch.append(event)
        size += weight
    if batch:
        yield batch


def _faults(line: str) -> Iterator[tuple[str, datetime]]:
    """The reason of the fault that a line tells of, if it does."""
    content = _read(line)
    detail = content.get(EVENT_DETAIL)
    if isinstance(detail, dict) and detail.get("Action") != Remedy.NONE and detail.get("Reason"):
        yield str(detail["Reason"]), _time(content)


def _namespace(reason: str) -> str:
    return NEURON_NAMESPACE if reason.startswith("NeuronHasError_") else NAMESPACE


def _read(line: str) -> dict[str, Any]:
    try:
        content = json.loads(line)
    except ValueError:  # cut off when the node lost its power
        return {}
    return content if isinstance(content, dict) else {}


def _time(content: dict[str, Any]) -> datetime:
    try:
        return datetime.fromisoformat(content["ts"])
    except (KeyError, TypeError, ValueError):
        return datetime.now(UTC)
