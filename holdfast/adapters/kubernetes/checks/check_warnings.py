"""Warnings about Jobs and pods, which controllers and kubelets report in Events only."""

import time
from collections.abc import Collection
from datetime import timedelta
from typing import Final

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.kit.units import one_line
from holdfast.model.errors import BackendError

_LONGEST: Final = 300
"""Maximum characters of a warning."""

_AT_ONCE: Final = 4
"""Objects for which Events are read in one round: each takes an API call."""


class ObjectWarnings:
    """Reads the last warning about objects of one namespace."""

    def __init__(self, api: Api, namespace: str, every: timedelta) -> None:
        """Create it.

        Args:
            api: the client.
            namespace: namespace of the objects.
            every: time between two reads for one object, and before the first one.

        """
        self._api = api
        self._folder = f"/api/v1/namespaces/{namespace}/events"
        self._every_s = every.total_seconds()
        self._read_at: dict[str, float] = {}
        self._found: dict[str, str] = {}
        self._left = 0

    def start_round(self, keep: Collection[str]) -> None:
        """Allow further reads, and forget all objects but those with these UIDs."""
        self._left = _AT_ONCE
        self._read_at = {uid: at for uid, at in self._read_at.items() if uid in keep}
        self._found = {uid: text for uid, text in self._found.items() if uid in keep}

    def last(self, uid: str) -> str:
        """Return the last warning about the object, read anew after ``every``; empty if unknown.

        Events cannot be read with the rights that earlier versions of the chart gave.
        """
        now = time.monotonic()
        read_at = self._read_at.setdefault(uid, now)
        if now - read_at >= self._every_s and self._left:
            self._left -= 1
            self._read_at[uid] = now
            self._found[uid] = self._read(uid)
        return self._found.get(uid, "")

    def _read(self, uid: str) -> str:
        params = {"fieldSelector": f"involvedObject.uid={uid},type=Warning"}
        try:
            newest = max(self._api.list(self._folder, params), key=_seen_at, default=None)
        except BackendError:
            return self._found.get(uid, "")
        if newest is None:
            return ""
        text = f"{newest.get('reason', '')}: {newest.get('message', '')}"
        return one_line(text, _LONGEST)


def _seen_at(event: Json) -> str:
    """Return when an event last occurred: timestamps of the API server can be compared as text."""
    about = event["metadata"]
    series = (event.get("series") or {}).get("lastObservedTime")
    return str(
        series
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or about.get("creationTimestamp")
        or ""
    )
