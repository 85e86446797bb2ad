"""A session of the console sees and changes no more than its key permits."""

import contextlib
import http.client
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.adapters.local.store import LocalStore
from holdfast.api.console_source import ConsoleAction

sys.path.insert(0, str(Path(__file__).parents[1] / "apps"))
from console_server import TOKENS, Site, Visitor, site
from written_runs import node

TIMEOUT_S = 90


@pytest.fixture(scope="module")
def console(tmp_path_factory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("console")) as one:
        yield one


@pytest.fixture(scope="module", autouse=True)
def stores(console) -> dict[str, LocalStore]:
    return {name: console.runs.add(name, nodes=(1, 2), ranks=(1,)) for name in ("hers", "theirs")}


@pytest.fixture(scope="module")
def eve(console) -> Visitor:
    """She may see the fleet ``hers`` and reboot its nodes."""
    return console.visitor("eve")


def audited(console: Site) -> list[dict[str, object]]:
    text = (console.runs.home / "audit.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def events(visitor: Visitor, count: int, *, last: str = "") -> list[str]:
    """The first events of the stream."""
    connection = http.client.HTTPConnection("127.0.0.1", visitor.served.port, timeout=TIMEOUT_S)
    found: list[str] = []
    with contextlib.closing(connection):
        headers = {"cookie": visitor.cookie, "last-event-id": last}
        connection.request("GET", "/console/live", headers=headers)
        answer = connection.getresponse()
        deadline = time.monotonic() + TIMEOUT_S
        while len(found) < count and time.monotonic() < deadline:
            line = answer.readline().decode()
            if line.startswith("data: "):
                found.append(line)
    return found


def test_the_stream_has_the_rows_of_the_permitted_fleets_only(console, eve) -> None:
    everything = events(console.visitor("ada"), 1)[0]
    number = json.loads(everything[6:])  # an ID of a stream that shows more does not help
    hers = events(eve, 2, last=f"{number.get('id', 'x')}.0")

    assert "theirs" in everything
    assert "hers" in hers[0]
    assert not any("theirs" in one for one in hers)
    tables = json.loads(hers[0][6:])["tables"]
    assert set(tables["fleets"]) == {"hers"}
    assert {row["fleet"] for row in tables["nodes"].values()} == {"hers"}
    assert set(tables["jobs"]) == {"hers"}


@pytest.mark.parametrize(
    "path",
    [
        f"node?fleet=theirs&name={node(1)}",
        "job?name=theirs",
        f"node?fleet=hers&fleet=theirs&name={node(1)}",
    ],
)
def test_details_of_other_fleets_are_not_there(eve, path) -> None:
    reply = eve.call("GET", f"/console/{path}")

    assert reply.status == 404
    assert set(reply.json) == {"message"}


def test_goodput_is_that_of_the_permitted_fleets(console, eve) -> None:
    assert {one["job"] for one in eve.call("GET", "/console/goodput").json["jobs"]} <= {"hers"}


@pytest.mark.parametrize("act", list(ConsoleAction))
@pytest.mark.parametrize("fleet", ["hers", "theirs"])
def test_only_the_permitted_action_on_the_permitted_fleet_is_recorded(
    console, stores, eve, act, fleet
) -> None:
    store = stores[fleet]
    before = (dict(store.requests()), dict(store.holds()), store.breaker())
    repair = {"act": act, "fleet": fleet, "node": node(2)}

    reply = eve.call("POST", "/console/repairs", repair)

    is_permitted = (act, fleet) == (ConsoleAction.REBOOT, "hers")
    assert (reply.status == 202) == is_permitted
    if not is_permitted:
        assert reply.status in (403, 404)
        assert (dict(store.requests()), dict(store.holds()), store.breaker()) == before
    line = audited(console)[-1]
    assert (line["person"], line["via"]) == ("eve", "console")
    assert line["outcome"] == ("accepted" if is_permitted else "refused")


def test_buttons_are_those_of_the_permitted_actions(console, eve) -> None:
    acts = {
        name: set(console.visitor(name).call("GET", "/console/session").json["acts"])
        for name in ("ada", "bob", "eve")
    }

    operated = {*map(str, ConsoleAction), "cancel-job", "list-clusters"}
    assert acts == {"ada": operated, "bob": {"list-clusters"}, "eve": {"reboot"}}


@pytest.mark.parametrize(("person", "status"), [("old", 401), ("hal", 403)])
def test_an_expired_key_and_one_without_the_console_do_not_log_in(console, person, status) -> None:
    reply = console.visitor().call("POST", "/console/session", {"token": TOKENS[person]})

    assert reply.status == status
    assert "set-cookie" not in reply.headers


def test_a_request_of_another_site_and_one_without_a_session_are_recorded(console, eve) -> None:
    repair = {"act": "reboot", "fleet": "hers", "node": node(2)}
    eve.call("POST", "/console/repairs", repair, origin="http://elsewhere.example")
    console.visitor().call("POST", "/console/repairs", repair)
    console.visitor().call("POST", "/console/session", {"token": "x" * 30})

    forged, nobody, guess = audited(console)[-3:]
    assert (forged["person"], forged["outcome"]) == ("eve", "refused")
    assert "person" not in nobody
    assert (guess["operation"], guess["outcome"]) == ("LogIn", "refused")
    assert guess["address"] == "127.0.0.1"
    assert not any(token in json.dumps(audited(console)) for token in TOKENS.values())
