"""Selection and order of the rows of a list: by state, age, reason, job and labels."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class RowFields(NamedTuple, Generic[T]):
    """Fields of the rows of one list, by which they are selected and ordered."""

    states: Callable[[T], Collection[str]]
    """States of a row: its own, and those that include it, such as ``open``."""

    since: Callable[[T], datetime]
    reason: Callable[[T], str]
    """Reason and other evidence, empty if there is none."""

    jobs: Callable[[T], Collection[str]]
    """Names and references of the jobs that it concerns."""

    labels: Mapping[str, Callable[[T], str]]
    """``key -> value of a row``, for selectors and orders."""


class Selection(NamedTuple):
    """What to show of a list. Empty fields select all rows."""

    states: frozenset[str] = frozenset()
    since: timedelta | None = None
    """Maximum age of the state."""

    reason: str = ""
    """Part of the reason, in any case."""

    job: str = ""
    labels: Mapping[str, str] = MappingProxyType({})
    sort_by: str = ""
    """``since``, ``reason``, ``state`` or a label; empty for the order of the list."""


def selected(
    rows: Iterable[T], fields: RowFields[T], selection: Selection, now: datetime
) -> Sequence[T]:
    """Return the rows that match all of a selection, in its order; ``since`` puts the newest first.

    A job matches by its whole name, or by the last part of a name such as
    ``pytorchjob/team-a/llama``.
    """
    found = [one for one in rows if _matches(one, fields, selection, now)]
    match selection.sort_by:
        case "":
            return found
        case "since":
            return sorted(found, key=fields.since, reverse=True)
        case "reason":
            return sorted(found, key=lambda one: (not fields.reason(one), fields.reason(one)))
        case "state":
            return sorted(found, key=lambda one: sorted(fields.states(one)))
        case label:
            return sorted(found, key=fields.labels[label])


def _matches(row: T, fields: RowFields[T], selection: Selection, now: datetime) -> bool:
    return (
        (not selection.states or not selection.states.isdisjoint(fields.states(row)))
        and (selection.since is None or now - fields.since(row) <= selection.since)
        and selection.reason.lower() in fields.reason(row).lower()
        and (not selection.job or _concerns(fields.jobs(row), selection.job))
        and all(fields.labels[key](row) == value for key, value in selection.labels.items())
    )


def _concerns(jobs: Iterable[str], job: str) -> bool:
    return any(job in (one, one.rpartition("/")[2]) for one in jobs)
