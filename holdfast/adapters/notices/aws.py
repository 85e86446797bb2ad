"""Delivery of events to EventBridge and CloudWatch Logs. Needs boto3 (extra ``aws``)."""

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from holdfast.adapters.notices.outbox import Refused, TryAgain
from holdfast.adapters.notices.settings import NoticeCloudWatch, NoticeEventBridge
from holdfast.model.errors import ConfigError

LARGEST: Final = 10
"""Maximum entries of ``PutEvents``, from the API reference; ``PutLogEvents`` allows more."""

_BUSY: Final = ("InternalFailure", "InternalException", "ThrottlingException", "LimitExceeded")
"""Retryable errors of single entries."""

_WRONG: Final = ("ValidationException", "SerializationException", "InvalidParameterException")
"""Permanent errors of a call. All others may be corrected: a role, a bus."""

Json = dict[str, Any]
Deliver = Callable[[Sequence[Json]], None]


def event_bus(settings: NoticeEventBridge) -> Deliver:
    """Function that puts events on a bus.

    Raises:
        ConfigError: no region is known, or boto3 cannot use the settings.

    """
    client = _client("events", "eventbridge", settings)

    def deliver(events: Sequence[Json]) -> None:
        entries = [_entry(event, settings.bus) for event in events]
        answer = _call(client.put_events, Entries=entries)
        failed = {
            number: f"{entry['ErrorCode']}: {entry.get('ErrorMessage', '')}"
            for number, entry in enumerate(answer["Entries"])
            if entry.get("ErrorCode")
        }
        busy = [number for number, why in failed.items() if why.startswith(_BUSY)]
        reported = "; ".join(dict.fromkeys(failed.values()))
        if busy:
            raise TryAgain(reported, left=busy)
        if failed:
            raise Refused(f"{len(failed)} of {len(events)} events: {reported}")

    return deliver


def log_stream(settings: NoticeCloudWatch, cluster: str) -> Deliver:
    """Function that appends events to a log stream, creating it and its group if missing.

    Raises:
        ConfigError: no region is known, or boto3 cannot use the settings.

    """
    client = _client("logs", "cloudwatch", settings)
    group = {"logGroupName": settings.log_group}
    stream = {**group, "logStreamName": settings.log_stream or cluster}

    def deliver(events: Sequence[Json]) -> None:
        ordered = sorted(events, key=_milliseconds)
        lines = [{"timestamp": _milliseconds(one), "message": json.dumps(one)} for one in ordered]
        try:
            _call(client.put_log_events, **stream, logEvents=lines)
        except _Missing:
            for make, names in (
                (client.create_log_group, group),
                (client.create_log_stream, stream),
            ):
                try:
                    _call(make, **names)
                except _There:
                    continue
            _call(client.put_log_events, **stream, logEvents=lines)

    return deliver


class _Missing(TryAgain):
    """The log group or stream does not exist."""


class _There(TryAgain):
    """Another client has created it."""


_KINDS: Final[dict[str, type[TryAgain]]] = {
    "ResourceNotFoundException": _Missing,
    "ResourceAlreadyExistsException": _There,
}


def _client(service: str, table: str, settings: NoticeEventBridge | NoticeCloudWatch) -> Any:
    try:
        return boto3.Session().client(
            service,
            region_name=settings.region,
            endpoint_url=settings.endpoint_url,
            config=Config(retries={"mode": "standard", "total_max_attempts": 3}),
        )
    except (BotoCoreError, ValueError) as error:
        raise ConfigError(f"notices.{table}: {error}") from error


def _call(method: Callable[..., Json], **arguments: Any) -> Json:
    try:
        return method(**arguments)
    except ClientError as error:
        code = str(error.response["Error"].get("Code", ""))
        if code in _WRONG:
            raise Refused(str(error)) from error
        raise _KINDS.get(code, TryAgain)(str(error)) from error
    except BotoCoreError as error:
        raise TryAgain(str(error)) from error


def _entry(event: Json, bus: str) -> Json:
    return {
        "Time": datetime.fromisoformat(event["time"]),
        "Source": event["source"],
        "DetailType": event["detail-type"],
        "Resources": event["resources"],
        "Detail": json.dumps(event["detail"]),
        "EventBusName": bus,
    }


def _milliseconds(event: Json) -> int:
    return int(datetime.fromisoformat(event["time"]).timestamp() * 1000)
