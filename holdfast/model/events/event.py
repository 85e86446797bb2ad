"""Base class of all events."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened and that a person or a dashboard may want to know."""

    name: ClassVar[str] = "event"
