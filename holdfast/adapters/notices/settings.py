"""Settings of notices: the table ``notices`` of the controller's configuration."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from holdfast.kit.addresses import address_problem
from holdfast.kit.ranges import require_longer_than_zero
from holdfast.model.events import (
    BreakerClosed,
    BreakerTripped,
    Event,
    InputRejected,
    JobFinished,
    NodeVanished,
    RepairOverdue,
    RepairPostponed,
)

FOR_PEOPLE: Final = (
    BreakerTripped.name,
    BreakerClosed.name,
    RepairOverdue.name,
    RepairPostponed.name,
    NodeVanished.name,
    InputRejected.name,
    JobFinished.name,
)
"""Events that may need action by an operator; of jobs, only failures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeWebhook:
    """Webhook that receives each event as one POST, in the form of EventBridge."""

    url: str
    """``https`` URL; ``http`` only for a loopback address."""

    secret_file: Path | None = None
    """File with the key that signs requests (header ``Holdfast-Signature``); unsigned if unset."""

    ca_file: Path | None = None
    """PEM certificates to trust instead of the system's."""

    timeout: timedelta = timedelta(seconds=10)
    """Timeout of each network operation."""

    def __post_init__(self) -> None:
        if problem := address_problem(self.url):
            raise ValueError(f"url: {problem}")
        require_longer_than_zero(self, "timeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeEventBridge:
    """A bus of Amazon EventBridge. Needs ``events:PutEvents`` and ``pip install 'holdfast[aws]'``.

    Credentials are found as boto3 finds them.
    """

    bus: str = "default"
    """Name or ARN of the bus."""

    region: str | None = None
    """AWS region; default: that of the environment or the profile."""

    endpoint_url: str | None = None
    """Endpoint URL instead of the default of AWS, such as a VPC endpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeCloudWatch:
    """A log stream of CloudWatch, one event a line. Needs ``pip install 'holdfast[aws]'``.

    Its role needs ``logs:PutLogEvents``, and ``logs:CreateLogGroup`` and ``logs:CreateLogStream``
    if group or stream do not exist.
    """

    log_group: str
    """Name of the log group; HyperPod names its own ``/aws/sagemaker/Clusters/<name>/<id>``."""

    log_stream: str = ""
    """Name of the log stream; default: the name of the cluster."""

    region: str | None = None
    """AWS region; default: that of the environment or the profile."""

    endpoint_url: str | None = None
    """Endpoint URL instead of the default of AWS, such as a VPC endpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeSettings:
    """Receivers of notices, and the events that each gets."""

    webhook: NoticeWebhook | None = None
    """Webhook that receives every event."""

    file: Path | None = None
    """File that receives every event as one line, in the same form. Rotate it with logrotate."""

    eventbridge: NoticeEventBridge | None = None
    """Event bus that receives every event, up to ten per call."""

    cloudwatch: NoticeCloudWatch | None = None
    """CloudWatch log stream that receives every event."""

    source: str = "holdfast"
    """Field ``source`` of the events. EventBridge accepts the prefix ``aws.`` only from AWS."""

    region: str = ""
    """Field ``region`` of the events."""

    account: str = ""
    """Field ``account`` of the events."""

    apprise: tuple[str, ...] = ()
    """URLs of Apprise that notify operators: ``slack://...``, ``mailto://...``,
    ``pagerduty://...``. Needs ``pip install 'holdfast[notices]'``."""

    apprise_file: Path | None = None
    """File with more Apprise URLs, one per line; keep URLs with secrets there."""

    for_people: tuple[str, ...] = FOR_PEOPLE
    """Names of the events sent to operators: each problem once, until it is resolved. Of
    ``job.finished``, those of jobs that failed; of ``repair.postponed``, from the third refusal."""

    def __post_init__(self) -> None:
        if self.eventbridge is not None and self.source.startswith("aws."):
            raise ValueError(
                "source must not begin with aws.: EventBridge reserves this prefix for AWS"
                f" services; got {self.source}"
            )
        known = {kind.name for kind in Event.__subclasses__()}
        if unknown := sorted(set(self.for_people) - known):
            raise ValueError(
                f"for_people must be names of events, such as {', '.join(FOR_PEOPLE[:3])}; got "
                f"{', '.join(unknown)}"
            )
