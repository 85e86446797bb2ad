"""Values that are invalid and ignored, and how they are shown."""

from typing import Final, NamedTuple

_EXCERPT_CHARS: Final = 100


class Rejection(NamedTuple):
    """Setting with an invalid value, which is ignored, and what was expected."""

    key: str
    value: str
    expected: str

    def __str__(self) -> str:
        return f"{self.key} is {excerpt(self.value)!r}, expected {self.expected}"


def excerpt(value: str) -> str:
    """Return the first 100 characters of a value, for messages."""
    return value if len(value) <= _EXCERPT_CHARS else f"{value[:_EXCERPT_CHARS]}..."
