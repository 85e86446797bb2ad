import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import (
    Handler,
    ScriptedServer,
    break_off,
    events,
    hang,
    refuse,
    reply,
    status_object,
)

from holdfast.adapters.kubernetes.client.api import Api, Patch, Server
from holdfast.adapters.kubernetes.client.errors import NotFound
from holdfast.adapters.kubernetes.client.reflector import Cache, Reflector
from tests.engines.control_plane import ControlPlane

TIMEOUT_S = 180.0
NODES = "/api/v1/nodes"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def node(name: str, version: int, value: Any = None) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}, "value": value}


def listing(version: int, *items: dict[str, Any], more: str = "") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(items)}


def event(kind: str, content: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": content}


def value_of(content: dict[str, Any]) -> Any:
    return content.get("value")


class Counted:
    """How often something happened."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


class Scripted:
    """A reflector of a server that follows a script."""

    def __init__(self, server: ScriptedServer) -> None:
        self.server = server
        self.changed = Counted()
        self.api = Api(
            Server(url=server.url),
            user_agent="t",
            field_manager="t",
            timeout=timedelta(seconds=5),  # for the first list, too, on a busy machine
        )
        self.reflector = Reflector(
            self.api, NODES, trim=value_of, changed=self.changed, params={"labelSelector": "x"}
        )

    def follow(self, *answers: Any) -> Reflector[Any]:
        """Let it follow a script; what is not in it, is silence."""
        self.server.answers.extend([*answers, *[hang(events(end=False))] * 50])
        self.reflector.start()
        return self.reflector

    def versions(self) -> list[str]:
        """Where each watch began; ``list`` for a list."""
        return [
            dict(part.split("=") for part in requested.path.partition("?")[2].split("&")).get(
                "resourceVersion", "list"
            )
            for requested in self.server.requested
        ]


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    server = ScriptedServer()
    scripted = Scripted(server)
    yield scripted
    server.released.set()
    scripted.reflector.stop()
    scripted.api.close()
    server.end()


def test_it_lists_all_pages_and_then_follows(scripted: Scripted) -> None:
    assert not scripted.reflector.synced
    reflector = scripted.follow(
        reply(listing(7, node("a", 3, 1), more="next")),
        reply(listing(7, node("b", 5, 2))),
        hang(
            events(
                event("ADDED", node("c", 8, 3)),
                event("MODIFIED", node("a", 9, 10)),
                event("DELETED", node("b", 10, 2)),
                end=False,
            )
        ),
    )

    until(lambda: reflector.objects() == {"a": 10, "c": 3})
    assert reflector.synced
    assert scripted.versions() == ["list", "list", "7"]
    query = scripted.server.requested[2].path
    assert "labelSelector=x" in query
    assert "allowWatchBookmarks=true" in query
    assert "watch=true" in query
    assert "timeoutSeconds=" in query


def test_objects_of_namespaces_are_kept_apart(scripted: Scripted) -> None:
    a, b = (
        {"metadata": {"name": "x", "namespace": name, "resourceVersion": "1"}, "value": name}
        for name in "ab"
    )

    reflector = scripted.follow(reply(listing(3, a, b)))

    until(lambda: reflector.objects() == {"a/x": "a", "b/x": "b"})


def test_a_copy_is_not_changed_afterwards(scripted: Scripted) -> None:
    reflector = scripted.follow(reply(listing(3, node("a", 1, 1))))
    until(lambda: reflector.synced)

    copy = reflector.objects()
    reflector.learn(node("a", 9, 2))

    assert copy == {"a": 1}
    assert reflector.objects() == {"a": 2}


def test_only_what_the_trimmed_object_shows_wakes(scripted: Scripted) -> None:
    heartbeats = [event("MODIFIED", node("a", version, 1)) for version in range(10, 60)]
    reflector = scripted.follow(
        reply(listing(7, node("a", 3, 1))),
        hang(
            events(
                *heartbeats,
                event("BOOKMARK", {"metadata": {"resourceVersion": "70"}}),
                event("DELETED", node("never-seen", 71)),
                event("ADDED", node("b", 72, None)),  # a trimmed object may be None
                end=False,
            )
        ),
    )

    until(lambda: "b" in reflector.objects())
    until(lambda: scripted.changed.times == 2)  # the list and b


def test_an_empty_list_changes_nothing_but_is_a_copy(scripted: Scripted) -> None:
    reflector = scripted.follow(reply(listing(7)))

    until(lambda: len(scripted.server.requested) == 2)
    assert reflector.synced
    assert scripted.changed.times == 0


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda *happened: break_off(events(*happened)), id="ended in order"),
        pytest.param(lambda *happened: break_off(events(*happened, end=False)), id="broken off"),
    ],
)
def test_a_watch_goes_on_from_where_it_was(scripted: Scripted, end) -> None:
    reflector = scripted.follow(
        reply(listing(7, node("a", 3, 1))),
        end(event("MODIFIED", node("a", 8, 2))),
        end(event("BOOKMARK", {"metadata": {"resourceVersion": "20"}})),
        break_off(),
        refuse(500, "InternalError", "etcd is away"),
        hang(events(event("ADDED", node("b", 21, 3)), end=False)),
    )

    until(lambda: reflector.objects() == {"a": 2, "b": 3})
    assert scripted.versions() == ["list", "7", "8", "20", "20", "20"]


EXPIRED = status_object(410, "Expired", "too old resource version")


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param(break_off(events(event("ERROR", EXPIRED))), id="as an event"),
        pytest.param(reply(EXPIRED, 410), id="as an answer"),
    ],
)
def test_what_the_server_has_forgotten_is_listed_anew(scripted: Scripted, gone) -> None:
    reflector = scripted.follow(
        reply(listing(7, node("a", 3, 1), node("b", 4, 2), node("c", 5, 3))),
        gone,
        reply(listing(90, node("a", 3, 1), node("b", 80, 20), node("d", 85, 4))),
        hang(events(event("MODIFIED", node("d", 91, 5)), end=False)),
    )

    until(lambda: reflector.objects() == {"a": 1, "b": 20, "d": 5})
    assert scripted.versions()[:4] == ["list", "7", "list", "90"]
    until(lambda: scripted.changed.times == 3)
    assert reflector.error == ""


def test_a_page_that_is_forgotten_begins_the_list_anew(scripted: Scripted) -> None:
    reflector = scripted.follow(
        reply(listing(7, node("gone", 3, 1), more="next")),
        reply(EXPIRED, 410),
        reply(listing(9, node("a", 8, 1))),
    )

    until(lambda: reflector.objects() == {"a": 1})


def test_an_error_event_that_is_not_410_is_reported_and_the_watch_goes_on(
    scripted: Scripted,
) -> None:
    error = event("ERROR", status_object(500, "InternalError", "a storm"))
    reflector = scripted.follow(
        reply(listing(7)), break_off(events(error)), *[refuse(403, "Forbidden", "no rights")] * 3
    )

    until(lambda: "no rights" in reflector.error)
    until(lambda: reflector.error == "")
    assert set(scripted.versions()[1:]) == {"7"}


def test_a_server_that_is_away_leaves_the_copy_as_it_was_and_is_reported(
    scripted: Scripted,
) -> None:
    reflector = scripted.follow(
        reply(listing(7, node("a", 3, 1))),
        hang(events(event("ADDED", node("b", 8, 2)), end=False)),
    )
    until(lambda: len(reflector.objects()) == 2)

    scripted.server.answers.clear()
    scripted.server.answers.extend([break_off()] * 10_000)
    scripted.server.released.set()

    until(lambda: "GET /api/v1/nodes" in reflector.error)
    assert reflector.objects() == {"a": 1, "b": 2}
    assert reflector.synced
    before = reflector.age
    until(lambda: reflector.age > before + timedelta(seconds=0.05))


def test_a_server_that_ends_every_watch_at_once_is_not_stormed(scripted: Scripted) -> None:
    scripted.server.answers.append(reply(listing(7)))
    reflector = scripted.follow(*[break_off(events())] * 1000)
    until(lambda: len(scripted.server.requested) >= 4)

    requested = len(scripted.server.requested)
    time.sleep(0.3)

    assert len(scripted.server.requested) - requested <= 4
    assert reflector.error == ""


def test_breaks_do_not_slow_down_a_watch_that_has_something_to_report(scripted: Scripted) -> None:
    """Forty pauses that grew would take minutes. An event that a break lost is sent once more."""

    def next_event(handler: Handler) -> None:
        version = 1 + int(handler.path.partition("resourceVersion=")[2].partition("&")[0])
        happened = [event("ADDED", node(f"n{version}", version))] if version < 48 else []
        (break_off if happened else hang)(events(*happened, end=False))(handler)

    reflector = scripted.follow(reply(listing(7)), *[next_event] * 80)

    until(lambda: len(reflector.objects()) == 40)


def test_a_list_on_request_has_what_the_watch_has_not_delivered(scripted: Scripted) -> None:
    answers = [reply(listing(7, node("a", 3, 1))), hang(events(end=False))]
    reflector = scripted.follow(*answers, reply(listing(9, node("a", 9, 2))))
    until(lambda: len(scripted.server.requested) == 2)
    assert reflector.objects() == {"a": 1}

    reflector.list_anew(timedelta(seconds=30))

    assert reflector.synced
    assert reflector.objects() == {"a": 2}
    until(lambda: scripted.versions() == ["list", "7", "list", "9"])


def test_a_list_on_request_that_fails_leaves_the_copy_incomplete(scripted: Scripted) -> None:
    answers = [reply(listing(7, node("a", 3, 1))), hang(events(end=False))]
    reflector = scripted.follow(*answers, *[reply({}, status=500)] * 60)
    until(lambda: len(scripted.server.requested) == 2)

    reflector.list_anew(timedelta(seconds=1))

    assert not reflector.synced
    assert reflector.objects() == {"a": 1}


def test_it_ends_while_it_waits(scripted: Scripted) -> None:
    reflector = scripted.follow(reply(listing(7)))
    until(lambda: len(scripted.server.requested) == 2)

    reflector.stop()

    assert not any(thread.name == f"reflector {NODES}" for thread in threading.enumerate())


# What we wrote ourselves


def test_an_answer_to_a_write_is_seen_at_once_and_not_taken_back(scripted: Scripted) -> None:
    go_on = threading.Event()

    def late(handler: Any) -> None:
        handler.raw(events(end=False))
        assert go_on.wait(TIMEOUT_S)
        hang(
            events(
                event("MODIFIED", node("a", 8, "someone's")),
                event("MODIFIED", node("a", 10, "ours")),
                event("ADDED", node("b", 11, "done")),
                end=False,
            ).partition(b"\r\n\r\n")[2]
        )(handler)

    reflector = scripted.follow(reply(listing(7, node("a", 3, "old"))), late)
    until(lambda: reflector.synced)

    reflector.learn(node("a", 10, "ours"))
    assert reflector.objects() == {"a": "ours"}
    before = scripted.changed.times
    go_on.set()
    until(lambda: "b" in reflector.objects())
    assert reflector.objects() == {"a": "ours", "b": "done"}
    until(lambda: scripted.changed.times == before + 1)  # b alone wakes


def test_an_answer_that_comes_after_the_deletion_does_not_bring_the_object_back(
    scripted: Scripted,
) -> None:
    reflector = scripted.follow(
        reply(listing(7, node("a", 3, "old"))),
        hang(events(event("DELETED", node("a", 12, "last")), end=False)),
    )
    until(lambda: reflector.synced and reflector.objects() == {})

    reflector.learn(node("a", 10, "ours"))

    assert reflector.objects() == {}


def test_a_list_that_was_made_before_a_write_does_not_hide_it(scripted: Scripted) -> None:
    reflector = scripted.reflector
    reflector.learn(node("a", 10, "ours"))
    reflector.learn(node("b", 6, "older than the list"))

    scripted.follow(reply(listing(7, node("a", 3, "old"))))

    until(lambda: reflector.synced)
    assert reflector.objects() == {"a": "ours"}


def test_an_older_answer_does_not_undo_a_newer_one(scripted: Scripted) -> None:
    scripted.reflector.learn(node("a", 10, "newer"))
    scripted.reflector.learn(node("a", 9, "older"))

    assert scripted.reflector.objects() == {"a": "newer"}
    scripted.follow(reply(listing(11)))
    until(lambda: scripted.reflector.synced)
    assert scripted.reflector.objects() == {}


MOVES = st.lists(st.sampled_from(["put", "delete", "follow", "relist", "learn"]))


@given(moves=MOVES, names=st.randoms(use_true_random=False))
def test_the_copy_becomes_what_the_collection_is_and_no_object_goes_back_in_time(
    moves: list[str], names: random.Random
) -> None:
    """Events come late, lists are older than writes, answers to writes come out of order."""
    history: list[dict[str, Any]] = []
    states: list[dict[str, int]] = [{}]
    copy: Cache[int] = Cache(lambda content: content["value"])
    seen = 0
    for move in [*moves, *["follow"] * len(moves)]:
        before = dict(copy.objects)
        version, now = len(states), dict(states[-1])
        match move:
            case "put":
                name = names.choice("abc")
                now[name] = version
                history.append(event("MODIFIED", node(name, version, version)))
                states.append(now)
            case "delete":
                name = names.choice("abc")
                now.pop(name, None)
                history.append(event("DELETED", node(name, version)))
                states.append(now)
            case "follow" if seen < len(history):
                copy.apply(history[seen]["type"], history[seen]["object"])
                seen += 1
            case "relist":
                seen = names.randint(seen, len(history))
                copy.replace(dict(states[seen]), str(seen))
            case "learn" if history:
                answer = names.choice(history)
                if answer["type"] == "MODIFIED":
                    copy.learn(answer["object"])
        kept = before.keys() & copy.objects.keys()
        assert all(copy.objects[name] >= before[name] for name in kept)

    assert copy.objects == states[-1]


# The real API server


class Wire:
    """A cable between the reflector and the API server that can be cut."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._pairs: list[socket.socket] = []
        self._is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._is_cut = True
        for end in self._pairs:
            self._drop(end)
        self._pairs.clear()

    def restore(self) -> None:
        self._is_cut = False

    def close(self) -> None:
        self.cut()
        self._drop(self._listener)

    def _accept(self) -> None:
        while True:
            try:
                inner, _ = self._listener.accept()
            except OSError:
                return
            try:
                if self._is_cut:
                    raise ConnectionError
                outer = socket.create_connection(("127.0.0.1", self._port))
            except OSError:  # the API server may be away, too
                inner.close()
                continue
            self._pairs += [inner, outer]
            for source, target in ((inner, outer), (outer, inner)):
                threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        self._drop(target)

    @staticmethod
    def _drop(end: socket.socket) -> None:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


def admin(plane: ControlPlane, port: int | None = None) -> Api:
    return Api(
        Server(
            url=f"https://127.0.0.1:{port or plane.port}",
            ca_file=plane.certificate,
            token=lambda: plane.token,
        ),
        user_agent="holdfast-test",
        field_manager="tester",
    )


@pytest.fixture
def wire(control_plane: ControlPlane) -> Iterator[Wire]:
    wire = Wire(control_plane.port)
    yield wire
    wire.close()


@pytest.fixture
def api(control_plane: ControlPlane) -> Iterator[Api]:
    api = admin(control_plane)
    yield api
    for one in list(api.list(CONFIG_MAPS, {"labelSelector": "reflected"})):
        api.delete(f"{CONFIG_MAPS}/{one['metadata']['name']}")
    api.close()


@pytest.fixture
def reflected(control_plane: ControlPlane, wire: Wire) -> Iterator[Reflector[str]]:
    client = admin(control_plane, wire.port)
    reflector = Reflector(
        client,
        CONFIG_MAPS,
        trim=lambda content: str((content.get("data") or {}).get("value")),
        changed=lambda: None,
        params={"labelSelector": "reflected"},
    )
    reflector.start()
    until(lambda: reflector.synced)
    yield reflector
    reflector.stop()
    client.close()


def put(api: Api, name: str, value: str) -> dict[str, Any]:
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"reflected": "yes"}},
        "data": {"value": value},
    }
    return api.patch(f"{CONFIG_MAPS}/{name}", body, Patch.APPLY)


def real(api: Api) -> dict[str, str]:
    return {
        f"default/{one['metadata']['name']}": one["data"]["value"]
        for one in api.list(CONFIG_MAPS, {"labelSelector": "reflected"})
    }


def test_changes_arrive(api: Api, reflected: Reflector[str]) -> None:
    put(api, "a", "1")
    until(lambda: reflected.objects() == {"default/a": "1"})
    put(api, "a", "2")
    until(lambda: reflected.objects() == {"default/a": "2"})
    reflected.learn(put(api, "a", "3"))
    assert reflected.objects() == {"default/a": "3"}
    api.delete(f"{CONFIG_MAPS}/a")
    until(lambda: reflected.objects() == {})


def test_two_thousand_changes_during_an_outage_are_made_up_for(
    control_plane: ControlPlane, api: Api, reflected: Reflector[str], wire: Wire
) -> None:
    names = [f"m{number}" for number in range(1000)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: put(api, name, "old"), names))
        until(lambda: len(reflected.objects()) == 1000)
        wire.cut()
        draw = random.Random(1)

        def change(number: int) -> None:
            name = draw.choice(names)
            if number % 7 == 0:
                with suppress(NotFound):
                    api.delete(f"{CONFIG_MAPS}/{name}")
            else:
                put(api, name, str(number))

        list(pool.map(change, range(2000)))
    assert set(reflected.objects().values()) == {"old"}

    wire.restore()

    expected = real(api)
    until(lambda: reflected.objects() == expected)
    assert reflected.error == ""
    for name in names:
        if f"default/{name}" in expected:
            api.delete(f"{CONFIG_MAPS}/{name}")
    until(lambda: reflected.objects() == {})


def test_an_api_server_that_restarts_costs_nothing(
    control_plane: ControlPlane, api: Api, reflected: Reflector[str]
) -> None:
    put(api, "kept", "1")
    put(api, "deleted", "1")
    until(lambda: len(reflected.objects()) == 2)

    control_plane.stop_api_server()
    until(lambda: reflected.error != "")
    assert len(reflected.objects()) == 2
    control_plane.start_api_server()
    put(api, "kept", "2")
    put(api, "new", "1")
    api.delete(f"{CONFIG_MAPS}/deleted")

    until(lambda: reflected.objects() == {"default/kept": "2", "default/new": "1"})
    until(lambda: reflected.error == "")


def test_history_that_the_restarted_server_has_forgotten_is_listed_anew(
    control_plane: ControlPlane, api: Api, reflected: Reflector[str], wire: Wire
) -> None:
    """Its cache begins where it started: what the reflector asks for is gone, with 410."""
    put(api, "a", "1")
    put(api, "b", "1")
    until(lambda: len(reflected.objects()) == 2)
    wire.cut()
    put(api, "a", "2")
    api.delete(f"{CONFIG_MAPS}/b")
    control_plane.restart_api_server()
    put(api, "c", "1")

    wire.restore()

    until(lambda: reflected.objects() == {"default/a": "2", "default/c": "1"})


def test_an_unknown_kind_is_reported_and_found_when_it_comes(
    control_plane: ControlPlane, api: Api
) -> None:
    reflector = Reflector(
        api, "/apis/x.holdfast.dev/v1/things", trim=lambda content: 1, changed=lambda: None
    )
    reflector.start()
    until(lambda: "404" in reflector.error)
    assert not reflector.synced
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    kinds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    api.create(
        kinds,
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.x.holdfast.dev"},
            "spec": {
                "group": "x.holdfast.dev",
                "scope": "Cluster",
                "names": {"plural": "things", "kind": "Thing"},
                "versions": [version],
            },
        },
    )
    until(lambda: reflector.synced and not reflector.error)
    reflector.stop()
    api.delete(f"{kinds}/things.x.holdfast.dev")
