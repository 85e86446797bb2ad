"""Rows of tables of request fields."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Support(StrEnum):
    """How a request field is handled."""

    SUPPORTED = "supported"
    IGNORED = "ignored"
    """Accepted, and returned where the response has it; nothing depends on it."""
    REFUSED = "refused"
    """The request fails with ``ValidationException``."""


@dataclass(frozen=True, slots=True)
class RequestField:
    """A request field, with the fields below it unless they have rows of their own."""

    support: Support
    note: str = ""
    """Limits of the support, or the reason why there is none and what to use."""

    is_map: bool = False
    """Whether its members are keys that people choose, which have no rows."""


Fields = Mapping[str, RequestField]
"""``path of a field -> field``; the path of a list is also that of its items."""


def supported(*paths: str, note: str = "") -> dict[str, RequestField]:
    """Rows of supported fields."""
    return {path: RequestField(Support.SUPPORTED, note) for path in paths}


def ignored(path: str, note: str) -> dict[str, RequestField]:
    """Row of an ignored field."""
    return {path: RequestField(Support.IGNORED, note)}


def refused(path: str, note: str) -> dict[str, RequestField]:
    """Row of a refused field."""
    return {path: RequestField(Support.REFUSED, note)}


def below(path: str, fields: Fields) -> dict[str, RequestField]:
    """Rows of the fields below a field."""
    return {f"{path}.{name}": field for name, field in fields.items()}
