"""``EventSink`` that delivers to all receivers."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final

from holdfast.adapters.notices import receivers
from holdfast.adapters.notices.attention import Attention
from holdfast.adapters.notices.eventbridge import Origin, envelope
from holdfast.adapters.notices.outbox import Outbox, singly
from holdfast.adapters.notices.settings import NoticeSettings
from holdfast.engine.wording import sentence
from holdfast.model.errors import ConfigError
from holdfast.model.events import CallFailed, Event
from holdfast.ports.clock import Clock

_AWS: Final = "holdfast.adapters.notices.aws"
"""Imported only if configured: it requires boto3."""


class Notices:
    """Non-blocking ``EventSink``; delivers from ``start`` to ``stop``."""

    def __init__(
        self,
        settings: NoticeSettings,
        cluster: str,
        clock: Clock,
        failed: Callable[[str, str], None],
    ) -> None:
        """Create the queues of all receivers.

        Args:
            settings: receivers, and the events for each.
            cluster: name of the cluster.
            clock: timestamps the events.
            failed: called, from any thread, with what failed and why.

        Raises:
            ConfigError: a setting cannot be used.

        """
        self._clock = clock
        self._origin = Origin(
            cluster=cluster,
            source=settings.source,
            region=settings.region,
            account=settings.account,
        )
        self._attention = Attention(settings.for_people)
        self._systems: list[Outbox[dict[str, Any]]] = []
        if settings.webhook is not None:
            deliver = receivers.webhook(settings.webhook)
            self._systems.append(Outbox("the webhook", singly(deliver), failed))
        if settings.file is not None:
            append = singly(receivers.file(settings.file))
            self._systems.append(Outbox("the file", append, failed))
        self._systems += _of_aws(settings, cluster, failed)
        urls = receivers.addresses(settings.apprise, settings.apprise_file)
        # One queue each: an unavailable receiver neither delays others nor causes duplicates.
        self._people = [
            Outbox(name, singly(send), failed) for name, send in receivers.people(urls, cluster)
        ]

    def start(self) -> None:
        """Start delivery; returns at once."""
        for box in self._boxes:
            box.start()

    def stop(self) -> None:
        """Flush the queues within a short timeout, and stop."""
        for box in self._boxes:
            box.stop()

    def emit(self, event: Event) -> None:
        """See ``EventSink.emit``."""
        if isinstance(event, CallFailed):
            return  # emitted every second, and for these notices themselves
        if self._systems:
            reported = envelope(event, self._clock.now(), self._origin)
            for system in self._systems:
                system.put(reported)
        if self._people and self._attention.wants(event):
            text = f"{sentence(event)} ({self._clock.now():%Y-%m-%d %H:%M} UTC)"
            for box in self._people:
                box.put(text)

    @property
    def _boxes(self) -> Sequence[Outbox[Any]]:
        return (*self._systems, *self._people)


def _of_aws(
    settings: NoticeSettings, cluster: str, failed: Callable[[str, str], None]
) -> list[Outbox[dict[str, Any]]]:
    if settings.eventbridge is None and settings.cloudwatch is None:
        return []
    try:
        aws = import_module(_AWS)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"notices.eventbridge and notices.cloudwatch need {error.name}, which is not "
            "installed: pip install 'holdfast[aws]'"
        ) from error
    found = {}
    if settings.eventbridge is not None:
        found["EventBridge"] = aws.event_bus(settings.eventbridge)
    if settings.cloudwatch is not None:
        found["CloudWatch"] = aws.log_stream(settings.cloudwatch, cluster)
    return [Outbox(name, deliver, failed, largest=aws.LARGEST) for name, deliver in found.items()]
