"""Alarms in CloudWatch. Needs boto3 (extra ``aws``)."""

from collections.abc import Sequence
from typing import Any, Final

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from holdfast.model.errors import BackendError

_AT_ONCE: Final = 100
"""Names that CloudWatch takes in one call."""
_RINGING: Final = "ALARM"


class CloudWatchAlarms:
    """See ``Alarms``. Credentials and region are found as boto3 finds them."""

    def __init__(self) -> None:
        self._client: Any = boto3.client("cloudwatch")

    def active_alarms(self, names: Sequence[str]) -> frozenset[str]:
        """See ``Alarms.active_alarms``; one that does not exist has not gone off."""
        wanted = sorted(set(names))
        found: set[str] = set()
        try:
            for start in range(0, len(wanted), _AT_ONCE):
                answer = self._client.describe_alarms(
                    AlarmNames=wanted[start : start + _AT_ONCE],
                    AlarmTypes=["MetricAlarm", "CompositeAlarm"],
                )
                for kind in ("MetricAlarms", "CompositeAlarms"):
                    found |= {
                        one["AlarmName"]
                        for one in answer.get(kind, ())
                        if one["StateValue"] == _RINGING
                    }
        except (BotoCoreError, ClientError) as error:
            raise BackendError(f"CloudWatch does not tell of alarms: {error}") from error
        return frozenset(found)
