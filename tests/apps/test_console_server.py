"""The console's server: who is let in, what it shows, what it records."""

import contextlib
import http.client
import itertools
import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Any

import pytest
from console_server import TOKENS, Site, Visitor, site
from served_api import serving, with_keys
from written_runs import NOW, machine, node, remediation

from holdfast.model.health import Remedy, Urgency
from holdfast.model.incidents import AffectedJob, Incident
from holdfast.model.jobs import AttemptRecord, Failure, FailureKind, JobPhase
from holdfast.model.nodes import Breaker, CheckResult, NodeRecord, Phase
from holdfast.model.requests import Verb

DEADLINE_S = 90
numbers = itertools.count()
Tables = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def console(tmp_path_factory) -> Iterator[Site]:
    behind = ("--behind-proxy", "127.0.0.0/30")
    with site(tmp_path_factory.mktemp("console"), "0", *behind) as one:
        yield one


@pytest.fixture(scope="module")
def ada(console: Site) -> Visitor:
    return console.visitor("ada")


@pytest.fixture(scope="module")
def bob(console: Site) -> Visitor:
    return console.visitor("bob")


def seen(visitor: Visitor, is_there: Callable[[Tables], object]) -> Tables:
    """The rows of the stream as soon as something is there."""
    connection = http.client.HTTPConnection("127.0.0.1", visitor.served.port, timeout=DEADLINE_S)
    tables: Tables = defaultdict(dict)
    deadline = time.monotonic() + DEADLINE_S
    with contextlib.closing(connection):
        connection.request("GET", "/console/live", headers={"cookie": visitor.cookie})
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        while time.monotonic() < deadline:
            line = answer.readline().decode()
            for table, rows in (
                json.loads(line[6:]).get("tables", {}).items() if line[:4] == "data" else ()
            ):
                tables[table].update(rows)
                tables[table] = {key: row for key, row in tables[table].items() if row is not None}
            if is_there(tables):
                return tables
    raise AssertionError(f"it is not there: {tables}")


def told_of(visitor: Visitor, path: str, is_there: Callable[[Any], object]) -> Any:
    """A view as soon as something is there."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        reply = visitor.call("GET", path)
        if reply.status == 200 and is_there(reply.json):
            return reply.json
        time.sleep(0.05)
    raise AssertionError(f"it is not there: {reply.body!r}")


VIEWS = (
    "session", "live", "node?fleet=x&name=y", "job?name=x", "goodput", "log?job=x&rank=0",
    "audit", "trends?hours=1",
    "log/file?job=x&rank=0",
)  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("cookie", ["", "holdfast_session=AKIAADAADAADAADAADA2.9999999999.x.y"])
def test_without_a_session_nothing_is_reported(console, view, cookie) -> None:
    reply = console.visitor().call("GET", f"/console/{view}", cookie=cookie)

    assert reply.status == 401
    assert reply.json == {"message": "log in first"}


def test_pages_and_their_parts_are_there_for_all_and_strictly_served(console) -> None:
    page = console.visitor().call("GET", "/")
    linked = re.findall(r'(?:href|src)="(/[^"]+)"', page.body.decode())
    there = {one.name for one in (resources.files("holdfast.api") / "static").iterdir()}

    assert {path.rpartition("/")[2] for path in linked} == there - {"index.html"}
    for path in ("/", *linked):
        reply = console.visitor().call("GET", path)
        assert reply.status == 200
        assert reply.headers["content-security-policy"].startswith("default-src 'self'; ")
        assert "unsafe" not in reply.headers["content-security-policy"]
        assert reply.headers["x-content-type-options"] == "nosniff"
        is_kept = "immutable" in reply.headers["cache-control"]
        assert is_kept is (path != "/")  # a new release has other paths
        again = console.visitor().call("GET", path, if_none_match=reply.headers["etag"])
        assert (again.status, again.body) == (304, b"")


def test_no_page_names_a_foreign_host() -> None:
    for file in (resources.files("holdfast.api") / "static").iterdir():
        hosts = re.findall(r"(?:https?:)?//[a-z0-9.]+\.[a-z]+[^\s\"')]*", file.read_text("utf-8"))
        assert set(hosts) <= {"http://www.w3.org/2000/svg"}, file.name


def test_what_is_no_part_of_a_page_is_not_served(console) -> None:
    for name in ("none.js", "..%2fconsole.py", "%2e%2e/console.py"):
        assert console.visitor().call("GET", f"/console/static/{name}").status == 404


def test_a_session_is_kept_where_no_script_and_no_other_site_can_use_it(console) -> None:
    reply = console.visitor().call("POST", "/console/session", {"token": TOKENS["ada"]})

    assert {"HttpOnly", "SameSite=strict", "Path=/console"} <= set(
        reply.headers["set-cookie"].split("; ")
    )
    assert reply.json["person"] == "ada"
    assert reply.json["role"] == "operate"
    assert TOKENS["ada"] not in reply.headers["set-cookie"]


def test_behind_tls_the_cookie_travels_over_tls_only(console) -> None:
    visitor = console.visitor()
    reply = visitor.call(
        "POST", "/console/session", {"token": TOKENS["ada"]}, x_forwarded_proto="https"
    )

    assert "Secure" in reply.headers["set-cookie"].split("; ")


@pytest.mark.parametrize(
    ("content", "status"),
    [
        ({"token": "x" * 30}, 401),
        ({"token": 5}, 400),
        ({}, 400),
        ({"other": "x"}, 400),
        ({"token": "\ud800"}, 400),
    ],
)
def test_other_tokens_are_refused(console, content, status) -> None:
    reply = console.visitor().call("POST", "/console/session", content, x_forwarded_for="10.0.0.1")

    assert reply.status == status
    assert "set-cookie" not in reply.headers


@pytest.mark.parametrize("origin", ["http://elsewhere.example", "null", "http://[", None])
def test_no_other_site_logs_anybody_in(console, origin) -> None:
    reply = console.visitor().call(
        "POST", "/console/session", {"token": TOKENS["ada"]}, origin=origin
    )

    assert reply.status == 403
    assert "set-cookie" not in reply.headers


def test_guessing_is_slowed_down(console) -> None:
    guesses = [
        console.visitor().call(
            "POST", "/console/session", {"token": "y" * 30}, x_forwarded_for="10.0.0.2"
        )
        for _ in range(6)
    ]

    assert [one.status for one in guesses] == [401] * 5 + [429]
    assert guesses[-1].headers["retry-after"] == "60"


def test_who_has_logged_out_is_out(console) -> None:
    visitor = console.visitor("ada")

    assert visitor.call("DELETE", "/console/session").status == 204
    assert visitor.call("GET", "/console/session").status == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://elsewhere.example"},
        {"origin": "null"},
        {"origin": None},
        {"x_holdfast_proof": None},
        {"x_holdfast_proof": "0" * 64},
    ],
)
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/console/repairs"), ("DELETE", "/console/session")]
)
def test_a_request_that_no_page_of_the_session_made_is_refused(
    console, ada, headers, method, path
) -> None:
    name = f"csrf-{next(numbers)}"
    store = console.runs.add(name, nodes=(1,), ranks=(1,))
    repair = {"act": "reboot", "fleet": name, "node": node(1)}

    reply = ada.call(method, path, repair, **headers)

    assert reply.status == 403
    assert store.requests() == {}
    assert ada.call("GET", "/console/session").status == 200


def test_who_may_only_look_asks_for_nothing(console, bob) -> None:
    store = console.runs.add("look", nodes=(1,), ranks=(1,))

    reply = bob.call(
        "POST", "/console/repairs", {"act": "reboot", "fleet": "look", "node": node(1)}
    )

    assert reply.status == 403
    assert "is not authorized" in reply.json["message"]
    assert store.requests() == {}


@pytest.mark.parametrize("verb", list(Verb))
@pytest.mark.parametrize("when_idle", [False, True])
def test_what_is_asked_for_is_recorded_in_the_name_of_who_asked(
    console, ada, verb, when_idle
) -> None:
    run = f"ask-{verb}-{when_idle}"
    store = console.runs.add(run, nodes=(1, 2), ranks=(1,))

    reply = ada.call(
        "POST",
        "/console/repairs",
        {"act": verb, "fleet": run, "node": node(2), "when_idle": when_idle, "why": "a test"},
    )

    assert reply.status == 202
    assert node(2) in reply.json["message"]
    [(name, request)] = store.requests().items()
    assert name == node(2)
    assert (request.verb, request.requested_by, request.why) == (verb, "ada", "a test")
    assert request.urgency is (Urgency.DEFERRED if when_idle else Urgency.IMMEDIATE)


def test_a_node_is_held_and_let_go_in_the_name_of_who_did_it(console, ada) -> None:
    store = console.runs.add("held", nodes=(1, 2), ranks=(1,))
    repair = {"fleet": "held", "node": node(1)}

    ada.call("POST", "/console/repairs", {**repair, "act": "hold", "why": "vendor comes"})
    with_reason = store.holds()
    ada.call("POST", "/console/repairs", {**repair, "act": "unhold"})
    after = store.holds()
    ada.call("POST", "/console/repairs", {**repair, "act": "hold"})

    assert with_reason == {node(1): "vendor comes (ada)"}
    assert after == {}
    assert store.holds() == {node(1): "paused by ada"}


def test_what_cannot_begin_now_is_answered_with_what_it_waits_for(console, ada) -> None:
    store = console.runs.add("waits", nodes=(1, 2), ranks=(1,))
    store.hold(node(1), "vendor comes (bob)")
    store.put_breaker(Breaker(tripped_at=NOW, reason="too many"))

    def answer(act: str, number: int) -> str:
        repair = {"act": act, "fleet": "waits", "node": node(number)}
        message: str = ada.call("POST", "/console/repairs", repair).json["message"]
        return message

    assert answer("replace", 1).endswith(
        "waits: repairs on the node are paused: vendor comes (bob)"
    )
    assert answer("reboot", 2).endswith("waits: the circuit breaker has paused all repairs")
    assert answer("release", 2).endswith("is requested")


def test_repairs_that_were_stopped_begin_again(console, ada) -> None:
    store = console.runs.add("stopped", nodes=(1,), ranks=(1,))
    store.put_breaker(Breaker(tripped_at=NOW, reason="too many"))
    fleet = seen(ada, lambda tables: "stopped" in tables["fleets"])["fleets"]["stopped"]

    reply = ada.call("POST", "/console/repairs", {"act": "reset-breaker", "fleet": "stopped"})

    assert fleet["stopped_for"] == "too many"
    assert reply.status == 202
    assert store.breaker().tripped_at is None
    assert store.breaker().reset_at is not None


@pytest.mark.parametrize(
    ("repair", "status", "said"),
    [
        ({"act": "reboot", "fleet": "wrong", "node": "n9"}, 404, "node n9 no longer exists"),
        ({"act": "reboot", "fleet": "none", "node": node(1)}, 404, "run 'none' not found"),
        ({"act": "explode", "fleet": "wrong", "node": node(1)}, 400, "expected act"),
        ({"act": "reboot", "fleet": "wrong"}, 400, "node: expected the name"),
        ({"act": "reboot", "fleet": 5, "node": node(1)}, 400, "expected act"),
        ({"act": "reboot", "fleet": "over", "node": node(1)}, 409, "is not active"),
        (
            {"act": "hold", "fleet": "wrong", "node": node(1), "why": "\ud800"},
            400,
            "not a JSON object",
        ),
    ],
)
def test_what_cannot_be_asked_for_is_refused_with_a_reason(
    console, ada, repair, status, said
) -> None:
    if "wrong" not in {one.name for one in console.runs.home.glob("runs/*")}:
        console.runs.add("wrong", nodes=(1,), ranks=(1,))
        console.runs.add("over", nodes=(1,), ranks=(1,), is_active=False)

    reply = ada.call("POST", "/console/repairs", repair)

    assert (reply.status, said in reply.json["message"]) == (status, True), reply.body


@pytest.mark.parametrize(
    ("raw", "status"),
    [(b"", 400), (b"[1]", 400), (b"{", 400), (b"[" * 9000, 400), (b"x" * 10_001, 413)],
)
def test_a_body_that_is_no_request_is_refused(ada, raw, status) -> None:
    assert ada.call("POST", "/console/repairs", raw=raw).status == status


def test_a_snapshot_has_nodes_jobs_and_incidents(console, ada) -> None:
    console.runs.add("seen-ended", nodes=(4,), ranks=(4,), is_active=False).put(incident(4))
    store = console.runs.add("seen", nodes=(1, 2, 3), ranks=(1, 2))
    store.put_node(
        node(2),
        NodeRecord(
            phase=Phase.REBOOTING, phase_since=NOW, remediation=remediation(2, Remedy.REBOOT)
        ),
    )
    console.runs.report("seen", 3)
    store.hold(node(3), "why not")

    tables = seen(ada, lambda now: "pause_reason" in now["nodes"].get(f"seen {node(3)}", {}))
    nodes = {
        row["name"]: row
        for row in tables["nodes"].values()
        if row["fleet"] in ("seen", "seen-ended")
    }

    assert {name: row["look"] for name, row in nodes.items()} == {
        node(1): "healthy",
        node(2): "rebooting",
        node(3): "warning",
    }
    assert (nodes[node(1)]["job"], nodes[node(1)]["rank"]) == ("seen", 0)
    assert nodes[node(2)]["remedy"] == "reboot"
    assert machine(2) in nodes[node(2)]["name"]
    assert nodes[node(3)]["pause_reason"] == "why not"
    assert tables["jobs"]["seen"]["phase"] == "running"
    assert tables["jobs"]["seen-ended"]["phase"] == "interrupted"
    [past] = [row for row in tables["incidents"].values() if row["fleet"] == "seen-ended"]
    assert past["state"] == "unfinished"
    asked = {(row["topic"], row["fleet"]) for row in tables["attention"].values()}
    assert ("job failed", "seen-ended") in asked


def incident(number: int, **more: object) -> Incident:
    return Incident(
        id=f"{node(number)}-20260102T030405.{number:03}",
        node=node(number),
        provider_id=machine(number),
        reason="AgentSilent",
        remedy="reboot",
        detected_at=NOW,
        quarantined_at=NOW,
        jobs=(AffectedJob(job="seen", attempt=1, stopped_at=NOW),),
        **more,
    )


@pytest.mark.parametrize(
    ("more", "state"),
    [({}, "open"), ({"released_at": NOW}, "released"), ({"vanished_at": NOW}, "vanished")],
)
def test_the_state_of_an_incident_is_how_it_ended(console, ada, more, state) -> None:
    console.runs.add(f"case-{state}", nodes=(1,), ranks=(1,)).put(incident(1, **more))
    key = f"case-{state} {incident(1).id}"

    rows = seen(ada, lambda tables: key in tables["incidents"])["incidents"]

    assert rows[key]["state"] == state


@pytest.mark.parametrize(
    ("phase", "look"),
    [
        (Phase.JOINING, "joining"),
        (Phase.CHECKING, "checking"),
        (Phase.QUARANTINED, "faulty"),
        (Phase.DRAINING, "faulty"),
        (Phase.REBOOTING, "rebooting"),
        (Phase.REPLACING, "replacing"),
    ],
)
def test_an_open_incident_is_where_its_node_is(console, ada, phase, look) -> None:
    run, at = f"where-{phase}", remediation(1)
    store = console.runs.add(run, nodes=(1,), ranks=(1,))
    store.put_node(node(1), NodeRecord(phase=phase, phase_since=NOW, remediation=at))
    store.put(Incident(**{**as_fields(incident(1)), "id": at.incident_id}))
    key = f"{run} {at.incident_id}"

    tables = seen(ada, lambda now: now["incidents"].get(key, {}).get("state") == phase)

    assert tables["nodes"][f"{run} {node(1)}"]["look"] == look


def as_fields(one: Incident) -> dict[str, object]:
    return {name: getattr(one, name) for name in one.__dataclass_fields__}


def test_all_about_a_node(console, ada) -> None:
    checks = (
        CheckResult(passed=False, ended_at=NOW, detail="slow", measured={"nccl_gb_per_s": 3}),
    )
    record = NodeRecord(phase=Phase.SCHEDULABLE, phase_since=NOW, checks=checks)
    store = console.runs.add("one", nodes=(1, 2), ranks=(1,))
    store.put_node(node(1), record)
    store.put(incident(1, successor=node(2)))
    console.runs.report("one", 1)

    reported = told_of(
        ada,
        f"/console/node?fleet=one&name={node(1)}",
        lambda now: now["faults"] and now["incidents"] and now["checks"],
    )

    [check] = reported["checks"]
    assert (check["passed"], check["detail"]) == (False, "slow")
    assert check["ended_at"] == NOW.isoformat()
    assert check["measured"] == {"nccl_gb_per_s": 3}
    assert [one["id"] for one in reported["incidents"]] == [incident(1).id]
    assert reported["faults"][0]["code"] == 74
    assert reported["row"]["look"] == "warning"


def test_a_node_that_is_gone_has_a_successor(console, ada) -> None:
    store = console.runs.add("gone", nodes=(2,), ranks=(2,))
    store.put(incident(1, successor=node(2)))

    told_of(ada, f"/console/node?fleet=gone&name={node(2)}", lambda now: now["incidents"])
    reply = ada.call("GET", f"/console/node?fleet=gone&name={node(1)}")

    assert reply.status == 404
    assert node(2) in reply.json["message"]


def over(number: int, begun_s: float, ended_s: float, failure: Failure | None) -> AttemptRecord:
    start = NOW - timedelta(hours=1)
    return AttemptRecord(
        attempt=number,
        placement=(node(1),),
        started_at=start + timedelta(seconds=begun_s),
        running_at=start + timedelta(seconds=begun_s + 10),
        stopped_at=start + timedelta(seconds=ended_s),
        first_step=0 if number == 1 else 75,
        last_step=100 * number,
        failure=failure,
    )


def test_all_about_a_job_and_how_its_time_was_spent(console, ada) -> None:
    start = NOW - timedelta(hours=1)
    failure = Failure(
        kind=FailureKind.HARDWARE, reason="Xid", at=start + timedelta(seconds=110), node=node(1)
    )
    console.runs.add(
        "spent",
        ranks=(1,),
        is_active=False,
        started_at=start,
        phase=JobPhase.SUCCEEDED,
        attempt=2,
        phase_since=start + timedelta(seconds=250),
        attempts=(over(1, 0, 112, failure), over(2, 130, 250, None)),
    )

    console.runs.add("after", ranks=(1,))  # what ends changes which runs go on

    reported = told_of(ada, "/console/job?name=spent", lambda now: now["goodput"])
    whole = ada.call("GET", "/console/goodput").json

    [found] = reported["goodput"]["jobs"]
    assert found["parts"] == {
        "productive": 185.0, "redone": 25.0, "starting": 20.0, "waiting": 18.0, "stopping": 2.0,
    }  # fmt: skip
    assert [stay["attempt"] for stay in found["stays"]] == [1, 2]
    assert [one["lost_steps"] for one in reported["attempts"]] == [25, None]
    assert found["losses"][0]["whole"] == 55.0
    assert {"kind": "hardware", "reason": "Xid", "seconds": 55.0} in whole["causes"]
    assert ada.call("GET", "/console/job?name=nothing").status == 404


def test_the_time_of_a_job_ends_with_it_though_its_cluster_goes_on(console, ada) -> None:
    start = NOW - timedelta(hours=1)
    console.runs.add(
        "outlived",
        ranks=(1,),
        started_at=start,
        phase=JobPhase.SUCCEEDED,
        phase_since=start + timedelta(seconds=120),
        attempts=(over(1, 0, 120, None),),
    )

    reported = told_of(ada, "/console/job?name=outlived", lambda now: now["goodput"])

    [found] = reported["goodput"]["jobs"]
    assert (reported["is_active"], found["parts"]["waiting"]) == (False, 0.0)


def test_the_address_of_the_console_is_reported(console) -> None:
    assert f"console: {console.served.url}/" in console.served.said()


def test_tokens_are_not_reported(console, ada) -> None:
    assert not any(token in console.served.said() for token in TOKENS.values())


def test_a_session_and_its_end_outlive_the_server(tmp_path) -> None:
    with site(tmp_path) as first:
        visitor = first.visitor("ada")
        first.served.process.kill()
        first.served.process.wait()
        with site(tmp_path) as second:
            again = Visitor(second.served, visitor.cookie, visitor.proof)

            assert again.call("GET", "/console/session").json["person"] == "ada"
            assert again.call("DELETE", "/console/session").status == 204
            second.served.process.kill()
            second.served.process.wait()
        with site(tmp_path) as third:
            again = Visitor(third.served, visitor.cookie, visitor.proof)

            assert again.call("GET", "/console/session").status == 401


def test_without_a_token_nobody_is_let_in_and_it_is_reported_why(tmp_path, runs) -> None:
    with serving(with_keys(tmp_path / "api.toml")) as served:
        reply = Visitor(served).call("POST", "/console/session", {"token": "z" * 30})

    assert reply.status == 403
    assert "--new-key" in reply.json["message"]


def test_a_server_with_open_pages_ends_at_once(tmp_path) -> None:
    with site(tmp_path) as one:
        visitor = one.visitor("ada")
        connection = http.client.HTTPConnection("127.0.0.1", one.served.port, timeout=20)
        with contextlib.closing(connection):
            connection.request("GET", "/console/live", headers={"cookie": visitor.cookie})
            answer = connection.getresponse()
            answer.readline()
            begun = datetime.now(UTC)
            one.served.process.terminate()
            one.served.process.wait(timeout=20)

    assert datetime.now(UTC) - begun < timedelta(seconds=4)
