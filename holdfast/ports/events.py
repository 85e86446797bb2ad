"""Where notable facts go."""

from typing import Protocol

from holdfast.model.events import Event


class EventSink(Protocol):
    """Takes events. Never raises: an event that cannot be written is dropped."""

    def emit(self, event: Event) -> None:
        """Take one event."""
        ...
