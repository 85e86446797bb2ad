"""Server-sent events with the changes of all tables, for every open page."""

import asyncio
import json
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from starlette.concurrency import run_in_threadpool

from holdfast.api.console_source import ConsoleBackend, Tables, visible
from holdfast.model.errors import BackendError
from holdfast.ports.clock import Clock

HEARTBEAT_S: Final = 5.0
"""Seconds between heartbeats; a page reconnects after three missed heartbeats."""

HISTORY_LIMIT: Final = 200
"""Number of changes kept for pages that reconnect; older pages get a snapshot."""

_RETRY_MS: Final = 1000
"""Milliseconds until a browser reconnects after it lost its stream."""

_TICK_S: Final = 0.25
_BUSY: Final = 2.0
"""Reading takes at most a third of the time."""


class Live:
    """Polls the source while a page is open, and sends the differences to all pages."""

    def __init__(
        self, source: ConsoleBackend, clock: Clock, failed: Callable[[Exception], None]
    ) -> None:
        self._source = source
        self._clock = clock
        self._failed = failed
        self._epoch = secrets.token_hex(4)
        self._number = 0
        self._tables: Tables | None = None
        self._problem = ""
        self._as_of: datetime | None = None
        self._changes: deque[tuple[int, str]] = deque(maxlen=HISTORY_LIMIT)
        self._updated = asyncio.Event()
        self._readers = 0
        self._watch: asyncio.Task[None] | None = None
        self.is_ending: Callable[[], bool] = lambda: False
        """Whether the server is shutting down, which ends all streams."""

    async def stream(
        self,
        last: str,
        is_authorized: Callable[[], Awaitable[bool]],
        may_see: Callable[[str], bool] | None = None,
    ) -> AsyncIterator[str]:
        """Server-sent events for one page: a snapshot or the missed changes, then each change.

        Args:
            last: ID of the last event that the page received; may be empty.
            is_authorized: returns whether its session is still valid.
            may_see: returns whether the session may see the fleet with a name; all if None.

        """
        self._readers += 1
        part = None if may_see is None else _Part(may_see)
        try:
            seen = self._seen(last)
            reported = ""
            yield f"retry: {_RETRY_MS}\n\n"

            async def is_over() -> bool:
                return self.is_ending() or not await is_authorized()

            while not await is_over():
                if self._watch is None:
                    self._begin()
                updated = self._updated
                if self._problem != reported:  # first: rows below may be stale
                    reported = self._problem
                    as_of = self._as_of.isoformat() if self._as_of else None
                    yield self._event("trouble", {"message": reported, "as_of": as_of})
                if part is not None:
                    for name, tables in part.changes(self._tables):
                        yield self._event(name, {"tables": tables})
                else:
                    for text, number in self._since(seen):
                        seen = number
                        yield text
                if not await self._arrives(updated, is_over):
                    yield self._event("heartbeat", {})
        finally:
            self._readers -= 1

    def _seen(self, last: str) -> int | None:
        """Number of the last event that a page received from this server."""
        epoch, _, number = last.partition(".")
        return int(number) if epoch == self._epoch and number.isdecimal() else None

    def _since(self, seen: int | None) -> list[tuple[str, int]]:
        """Events to send to a page, with their numbers."""
        if self._tables is None or seen == self._number:
            return []
        first = self._changes[0][0] if self._changes else self._number + 1
        if seen is None or not first - 1 <= seen < self._number:
            content = {"tables": self._tables}
            return [(self._event("snapshot", content, self._number), self._number)]
        return [(text, number) for number, text in self._changes if number > seen]

    async def _arrives(
        self, updated: asyncio.Event, is_over: Callable[[], Awaitable[bool]]
    ) -> bool:
        """Whether a change or the end arrives within a heartbeat interval."""
        for _ in range(round(HEARTBEAT_S / _TICK_S)):
            with suppress(TimeoutError):
                await asyncio.wait_for(updated.wait(), _TICK_S)
                return True
            if await is_over():
                return True
        return False

    def _begin(self) -> None:
        self._watch = asyncio.create_task(self._look_again())
        self._watch.add_done_callback(self._over)

    def _over(self, watch: asyncio.Task[None]) -> None:
        error = None if watch.cancelled() else watch.exception()
        if isinstance(error, Exception):
            self._failed(error)

    async def _look_again(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._readers and not self.is_ending():
                begun = loop.time()
                try:
                    tables = await run_in_threadpool(self._source.read_tables)
                except BackendError as error:
                    self._note(self._tables, str(error))
                else:
                    self._note(tables, "")
                took = loop.time() - begun
                await asyncio.sleep(max(self._source.pause_s, _BUSY * took))
        finally:  # at once: a page that connects now gets no stale rows
            self._watch = None
            self._tables = self._as_of = None
            self._number += 1
            self._changes.clear()

    def _note(self, tables: Tables | None, problem: str) -> None:
        changed = difference(self._tables, tables) if self._tables and tables else {}
        is_first = self._tables is None and tables is not None
        is_new = is_first or bool(changed) or problem != self._problem
        self._tables, self._problem = tables, problem
        if not problem:
            self._as_of = self._clock.now()
        if changed:
            self._number += 1
            event = self._event("change", {"tables": changed}, self._number)
            self._changes.append((self._number, event))
        if is_new:
            self._updated.set()
            self._updated = asyncio.Event()

    def _event(self, name: str, content: dict[str, Any], number: int | None = None) -> str:
        now = self._clock.now().isoformat()
        data = json.dumps({"now": now, **content}, separators=(",", ":"))
        mark = "" if number is None else f"id: {self._epoch}.{number}\n"
        return f"{mark}event: {name}\ndata: {data}\n\n"


class _Part:
    """The rows that one session may see."""

    def __init__(self, may_see: Callable[[str], bool]) -> None:
        self._may_see = may_see
        self._all: Tables | None = None
        self._sent: Tables | None = None

    def changes(self, tables: Tables | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Name and content of the event that the session has not received yet, if any."""
        if tables is None or tables is self._all:
            return
        self._all = tables
        before, self._sent = self._sent, visible(tables, self._may_see)
        if before is None:
            yield "snapshot", self._sent
        elif changed := difference(before, self._sent):
            yield "change", changed


def difference(before: Tables, after: Tables) -> dict[str, dict[str, Any]]:
    """``table -> key -> row`` of new or changed rows; the row is None if it was removed."""
    found: dict[str, dict[str, Any]] = {}
    for table, rows in after.items():
        old = before.get(table, {})
        changed: dict[str, Any] = {key: row for key, row in rows.items() if old.get(key) != row}
        changed |= {key: None for key in old if key not in rows}
        if changed:
            found[table] = changed
    return found
