"""Port of the event sink."""

from typing import Protocol

from holdfast.model.events import Event


class EventSink(Protocol):
    """Receives events. Never raises: an event that cannot be written is dropped."""

    def emit(self, event: Event) -> None:
        """Write one event."""
        ...
