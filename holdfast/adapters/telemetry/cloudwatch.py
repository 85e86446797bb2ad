"""Export of the agent's log lines to CloudWatch, in HyperPod's names. Needs boto3 (``aws``)."""

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
"""Namespace of the metrics ``NeuronHasError_*``, from the Neuron problem detector."""

NAMESPACE: Final = "Holdfast/NodeHealth"
"""Namespace of the metrics for all other reasons."""

# Limits of PutLogEvents and PutMetricData, from the API reference.
_BATCH_EVENTS: Final = 10_000
_BATCH_BYTES: Final = 1_048_576
_EVENT_OVERHEAD: Final = 26
_EVENT_BYTES: Final = 256 * 1024 - _EVENT_OVERHEAD
_BATCH_SPAN_MS: Final = 24 * 3600 * 1000
_BATCH_METRICS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """Instance of the log lines, in HyperPod's terms."""

    cluster: str
    cluster_id: str
    instance_group: str
    instance_id: str

    @property
    def log_group(self) -> str:
        """Name in HyperPod's format."""
        return f"/aws/sagemaker/Clusters/{self.cluster}/{self.cluster_id}"

    @property
    def log_stream(self) -> str:
        """Name in HyperPod's format."""
        return f"SagemakerHealthMonitoringAgent/{self.instance_group}/{self.instance_id}"


class CloudWatch:
    """Client for the log lines and metrics of one instance.

    Its methods raise ``BackendError`` if CloudWatch rejects the data after five attempts.
    """

    def __init__(
        self,
        instance: Instance,
        *,
        region: str | None = None,
        usual_region: str | None = None,
        endpoint_url: str | None = None,
    ) -> None:
        """Create the client for ``instance``.

        Args:
            instance: names the log stream and the dimensions.
            region: as in boto3: from the environment or the profile if None.
            usual_region: fallback if neither sets one.
            endpoint_url: endpoint other than the public one.

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
        """Append lines to the log stream, creating it and its group if missing."""
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
"""Expected errors, which are handled."""


def _event(line: str) -> dict[str, Any]:
    message = line.encode()[:_EVENT_BYTES].decode(errors="ignore")
    return {"timestamp": int(_time(_read(line)).timestamp() * 1000), "message": message}


def _batches(events: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Smallest number of batches within the limits; ``events`` are sorted by time."""
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
    """Reason of the fault in a line, if any."""
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
