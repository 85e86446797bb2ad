"""State of CloudWatch alarms. Needs boto3 (extra ``aws``)."""

from collections.abc import Sequence
from typing import Any, Final

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from holdfast.model.errors import BackendError

_AT_ONCE: Final = 100
"""Maximum alarm names of one call, from the API reference."""
_FIRING: Final = "ALARM"


class CloudWatchAlarms:
    """See ``Alarms``. Credentials and region come from boto3's default chain."""

    def __init__(self) -> None:
        self._client: Any = boto3.client("cloudwatch")

    def active_alarms(self, names: Sequence[str]) -> frozenset[str]:
        """See ``Alarms.active_alarms``; a missing alarm counts as inactive."""
        unique = sorted(set(names))
        found: set[str] = set()
        try:
            for start in range(0, len(unique), _AT_ONCE):
                answer = self._client.describe_alarms(
                    AlarmNames=unique[start : start + _AT_ONCE],
                    AlarmTypes=["MetricAlarm", "CompositeAlarm"],
                )
                for kind in ("MetricAlarms", "CompositeAlarms"):
                    found |= {
                        one["AlarmName"]
                        for one in answer.get(kind, ())
                        if one["StateValue"] == _FIRING
                    }
        except (BotoCoreError, ClientError) as error:
            raise BackendError(f"CloudWatch alarms could not be read: {error}") from error
        return frozenset(found)
