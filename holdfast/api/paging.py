"""Pagination of long lists."""

import base64
import heapq
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Final, TypeVar

from holdfast.api.problems import ValidationException

Item = TypeVar("Item")

DEFAULT_PAGE: Final = 100
"""Default and maximum number of items of a page."""


def page(
    items: Sequence[Item],
    request: dict[str, Any],
    key: Callable[[Item], tuple[Any, str]],
    *,
    descending: bool,
) -> tuple[list[Item], str | None]:
    """Items of the requested page, and the token of the next page; None for the last page.

    A token names the last returned item, so that items which are added or removed meanwhile do
    not shift the pages.

    Args:
        items: all items.
        request: may have ``MaxResults`` and ``NextToken``.
        key: sort key and unique name of an item.
        descending: sort in descending order.

    Raises:
        ValidationException: the token is invalid.

    """
    size = request.get("MaxResults", DEFAULT_PAGE)
    keyed = [(key(item), item) for item in items]
    token = request.get("NextToken")
    if token is not None:
        last = _read(token, like=keyed[0][0] if keyed else None)
        is_after = last.__gt__ if descending else last.__lt__
        keyed = [one for one in keyed if is_after(one[0])]
    first = heapq.nlargest if descending else heapq.nsmallest
    found = first(size + 1, keyed, key=itemgetter(0))
    shown = [item for _, item in found[:size]]
    return shown, _token(found[size - 1][0]) if len(found) > size else None


def _token(key: tuple[Any, str]) -> str:
    value, name = key
    plain = value.timestamp() if isinstance(value, datetime) else value
    return base64.urlsafe_b64encode(json.dumps([plain, name]).encode()).decode()


def _read(token: str, like: tuple[Any, str] | None) -> tuple[Any, str]:
    """Key of the last returned item; ``like`` is the key of another item, if any."""
    try:
        value, name = json.loads(base64.urlsafe_b64decode(token))
        if like is not None and isinstance(like[0], datetime):
            value = datetime.fromtimestamp(value, UTC)
        if not isinstance(name, str) or not (like is None or isinstance(value, type(like[0]))):
            raise TypeError
    except (ValueError, TypeError, OverflowError, OSError, RecursionError):
        raise ValidationException("invalid NextToken") from None
    return value, name
