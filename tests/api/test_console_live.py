"""What open pages are told, and when."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.api.console_live import HISTORY_LIMIT, Live, difference
from holdfast.api.console_source import Json, RepairRequest, Tables
from holdfast.model.errors import BackendError
from tests.ports.fakes import FakeClock

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TIMEOUT_S = 10.0


@dataclass
class MadeSource:
    """Tables that a test changes; looked at without a pause."""

    nodes: dict[str, Json] = field(default_factory=dict)
    trouble: str = ""
    bug: str = ""
    looks: int = 0
    pause_s: float = 0.001

    def read_tables(self) -> Tables:
        self.looks += 1
        if self.bug:
            raise ValueError(self.bug)
        if self.trouble:
            raise BackendError(self.trouble)
        return {"nodes": dict(self.nodes)}

    def node(self, fleet: str, name: str) -> Json:
        return self.nodes[name]

    def job(self, name: str) -> Json:
        return {}

    def fleet_of_job(self, name: str) -> str:
        return ""

    def read_log(self, job: str, rank: int, attempt: int, after: str) -> Json:
        return {}

    def cancel_job(self, job: str) -> str:
        return ""

    def goodput(self, may_see) -> Json:
        return {}

    def trends(self, hours: int, may_see) -> Json:
        return {}

    def metrics(self, may_see) -> str:
        return ""

    def submit(self, repair: RepairRequest, person: str) -> str:
        return ""


@dataclass
class Page:
    """What reads a stream."""

    events: AsyncIterator[str]
    last: str = ""

    async def hear(self) -> tuple[str, Json]:
        """The next event that is not a beat."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                text = await anext(self.events)
                lines = dict(line.split(": ", 1) for line in text.strip().splitlines())
                self.last = lines.get("id", self.last)
                if lines.get("event", "heartbeat") != "heartbeat":
                    return lines["event"], json.loads(lines["data"])

    async def to_the_end(self) -> None:
        async for _ in self.events:
            pass


@dataclass
class Room:
    source: MadeSource
    live: Live
    bugs: list[Exception]

    def page(self, last: str = "", is_authorized: Callable[[], bool] = lambda: True) -> Page:
        async def welcome() -> bool:
            return is_authorized()

        return Page(self.live.stream(last, welcome))


def reported(story: Callable[[Room], Awaitable[Any]], **nodes: Json) -> Any:
    """Run a story in a loop of its own."""

    async def run() -> Any:
        source, bugs = MadeSource(nodes=dict(nodes)), []
        room = Room(source, Live(source, FakeClock(NOW), bugs.append), bugs)
        found = await story(room)
        room.live.is_ending = lambda: True
        return found

    return asyncio.run(run())


def test_a_page_gets_everything_first_and_then_what_changes() -> None:
    async def story(room: Room) -> list[tuple[str, Json]]:
        page = room.page()
        found = [await page.hear()]
        room.source.nodes["b"] = {"look": "faulty"}
        found.append(await page.hear())
        del room.source.nodes["a"]
        found.append(await page.hear())
        return found

    first, second, third = reported(story, a={"look": "healthy"})

    now = NOW.isoformat()
    assert first == ("snapshot", {"now": now, "tables": {"nodes": {"a": {"look": "healthy"}}}})
    assert second == ("change", {"now": now, "tables": {"nodes": {"b": {"look": "faulty"}}}})
    assert third == ("change", {"now": now, "tables": {"nodes": {"a": None}}})


def test_a_page_that_comes_again_is_shown_what_it_missed() -> None:
    async def story(room: Room) -> list[tuple[str, Json]]:
        page, other = room.page(), room.page()
        await page.hear()
        await other.hear()
        for number in range(3):
            room.source.nodes[f"n{number}"] = {}
            await other.hear()
        again = room.page(page.last)
        return [await again.hear() for _ in range(3)]

    found = reported(story, a={})

    assert [name for name, _ in found] == ["change"] * 3
    assert [list(content["tables"]["nodes"]) for _, content in found] == [["n0"], ["n1"], ["n2"]]


@pytest.mark.parametrize("last", ["", "elsewhere.1", "elsewhere.2", "x", ".", "elsewhere."])
def test_a_page_of_another_server_gets_everything(last: str) -> None:
    async def story(room: Room) -> str:
        other = room.page()
        await other.hear()
        for number in range(3):
            room.source.nodes[f"n{number}"] = {}
            await other.hear()
        return (await room.page(last).hear())[0]

    assert reported(story, a={}) == "snapshot"


def test_a_page_that_missed_too_much_gets_everything() -> None:
    async def story(room: Room) -> tuple[str, Json]:
        page, other = room.page(), room.page()
        await page.hear()
        await other.hear()
        for number in range(HISTORY_LIMIT + 1):
            room.source.nodes["a"] = {"number": number}
            await other.hear()
        return await room.page(page.last).hear()

    name, content = reported(story, a={})

    assert name == "snapshot"
    assert content["tables"]["nodes"] == {"a": {"number": HISTORY_LIMIT}}


def test_what_cannot_be_read_is_reported_once_and_its_end_too() -> None:
    async def story(room: Room) -> list[tuple[str, str]]:
        page = room.page()
        await page.hear()
        room.source.trouble = "the cluster is away"
        found = [await page.hear()]
        room.source.trouble = ""
        found.append(await page.hear())
        room.source.nodes["b"] = {}
        found.append(await page.hear())
        return [(name, content.get("message", "")) for name, content in found]

    assert reported(story, a={}) == [
        ("trouble", "the cluster is away"),
        ("trouble", ""),
        ("change", ""),
    ]


def test_a_page_that_opens_meanwhile_hears_first_how_old_the_rows_are() -> None:
    async def story(room: Room) -> tuple[str, list[tuple[str, str | None]]]:
        page = room.page()
        _, whole = await page.hear()
        room.source.trouble = "the cluster is away"
        await page.hear()
        other = room.page()
        found = [await other.hear(), await other.hear()]
        return whole["now"], [(name, content.get("as_of")) for name, content in found]

    read_at, heard = reported(story, a={})

    assert heard == [("trouble", read_at), ("snapshot", None)]


def test_nobody_looks_while_no_page_is_open() -> None:
    async def story(room: Room) -> tuple[int, int]:
        page = room.page()
        await page.hear()
        await page.events.aclose()
        await asyncio.sleep(0.1)
        looked = room.source.looks
        await asyncio.sleep(0.1)
        return looked, room.source.looks

    before, after = reported(story, a={})

    assert before == after


def test_after_a_pause_without_pages_nothing_old_is_shown() -> None:
    async def story(room: Room) -> Json:
        page = room.page()
        await page.hear()
        await page.events.aclose()
        await asyncio.sleep(0.1)
        room.source.nodes = {"b": {}}
        return (await room.page(page.last).hear())[1]

    assert reported(story, a={})["tables"]["nodes"] == {"b": {}}


def test_a_stream_ends_with_its_session() -> None:
    async def story(room: Room) -> None:
        welcome = [True]
        page = room.page(is_authorized=lambda: welcome[0])
        await page.hear()
        welcome[0] = False
        room.source.nodes["b"] = {}
        await asyncio.wait_for(page.to_the_end(), TIMEOUT_S)

    reported(story, a={})


def test_a_stream_ends_with_the_server() -> None:
    async def story(room: Room) -> None:
        page = room.page()
        await page.hear()
        room.live.is_ending = lambda: True
        await asyncio.wait_for(page.to_the_end(), TIMEOUT_S)

    reported(story, a={})


def test_a_bug_is_reported_and_does_not_end_the_looking_for_ever() -> None:
    async def story(room: Room) -> tuple[list[str], list[Exception]]:
        room.source.bug = "a bug"
        first = room.page()
        hearing = asyncio.ensure_future(first.hear())
        while not room.bugs:
            await asyncio.sleep(0.01)
        room.source.bug = ""
        second = await room.page().hear()
        return [(await hearing)[0], second[0]], room.bugs

    names, bugs = reported(story, a={})

    assert names == ["snapshot", "snapshot"]
    assert [str(bug) for bug in bugs] == ["a bug"]


rows = st.dictionaries(st.sampled_from("abcd"), st.fixed_dictionaries({"n": st.integers(0, 2)}))
tables = st.fixed_dictionaries({"nodes": rows, "jobs": rows})


@given(tables, tables)
def test_what_is_different_makes_the_one_of_the_other(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    found = difference(before, after)

    for table, own in before.items():
        merged = {**own, **found.get(table, {})}
        assert {key: row for key, row in merged.items() if row is not None} == after[table]
    assert (found == {}) == (before == after)
