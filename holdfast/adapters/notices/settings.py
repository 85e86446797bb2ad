"""Settings of notices: the table ``notices`` of the controller's configuration."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from holdfast.kit.addresses import address_problem
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
"""What somebody may have to look at; of jobs, only those that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeWebhook:
    """Where events are posted, one at a time, in the form of EventBridge."""

    url: str
    """An ``https`` address; ``http`` only where it does not leave this machine."""

    secret_file: Path | None = None
    """Holds the key of the signatures, in the header ``Holdfast-Signature``; unsigned without."""

    ca_file: Path | None = None
    """PEM certificates to trust instead of the system's."""

    timeout: timedelta = timedelta(seconds=10)
    """For each wait for the other side."""

    def __post_init__(self) -> None:
        if problem := address_problem(self.url):
            raise ValueError(f"url: {problem}")
        if self.timeout <= timedelta(0):
            raise ValueError(f"timeout must be longer than 0s, got {self.timeout}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeEventBridge:
    """A bus of Amazon EventBridge. Needs ``events:PutEvents`` and ``pip install 'holdfast[aws]'``.

    Credentials are found as boto3 finds them.
    """

    bus: str = "default"
    """Its name or ARN."""

    region: str | None = None
    """That of the environment or of the profile if left out."""

    endpoint_url: str | None = None
    """Another address than that of AWS, such as a VPC endpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeCloudWatch:
    """A log stream of CloudWatch, one event a line. Needs ``pip install 'holdfast[aws]'``.

    Its role needs ``logs:PutLogEvents``, and ``logs:CreateLogGroup`` and ``logs:CreateLogStream``
    where they are not there.
    """

    log_group: str
    """HyperPod's own are called ``/aws/sagemaker/Clusters/<name>/<id>``."""

    log_stream: str = ""
    """The name of the cluster if left out."""

    region: str | None = None
    """That of the environment or of the profile if left out."""

    endpoint_url: str | None = None
    """Another address than that of AWS, such as a VPC endpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeSettings:
    """Receivers of notices, and the events that each gets."""

    webhook: NoticeWebhook | None = None
    """Gets every event."""

    file: Path | None = None
    """Gets every event, one on a line, in the same form. It grows: let logrotate cut it."""

    eventbridge: NoticeEventBridge | None = None
    """Gets every event, up to ten at once."""

    cloudwatch: NoticeCloudWatch | None = None
    """Gets every event, as CloudWatch Logs."""

    source: str = "holdfast"
    """The ``source`` of these events. EventBridge takes ``aws.`` from AWS itself only."""

    region: str = ""
    """Their ``region``."""

    account: str = ""
    """Their ``account``."""

    apprise: tuple[str, ...] = ()
    """Addresses of people, in Apprise's syntax: ``slack://...``, ``mailto://...``,
    ``pagerduty://...``. Needs ``pip install 'holdfast[notices]'``."""

    apprise_file: Path | None = None
    """More of them, one on a line: they hold secrets, which a configuration is no place for."""

    for_people: tuple[str, ...] = FOR_PEOPLE
    """Names of the events that are sent to people: each problem once, until it is over. Of
    ``job.finished``, those of jobs that failed; of ``repair.postponed``, from the third refusal."""

    def __post_init__(self) -> None:
        if self.eventbridge is not None and self.source.startswith("aws."):
            raise ValueError(
                "source must not begin with aws., which EventBridge takes from AWS itself only; "
                f"got {self.source}"
            )
        known = {kind.name for kind in Event.__subclasses__()}
        if unknown := sorted(set(self.for_people) - known):
            raise ValueError(
                f"for_people must be names of events, such as {', '.join(FOR_PEOPLE[:3])}; got "
                f"{', '.join(unknown)}"
            )
