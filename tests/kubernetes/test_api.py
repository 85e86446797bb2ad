import gzip
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest
from scripted_server import (
    CHUNKED,
    Authority,
    ScriptedServer,
    break_off,
    chunk,
    drip,
    events,
    hang,
    refuse,
    reply,
    status_object,
)

from holdfast.adapters.kubernetes.client.api import Api, Patch, RateLimit, Server, in_cluster
from holdfast.adapters.kubernetes.client.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    NotFound,
    Throttled,
    Unauthorized,
    Unreachable,
)
from holdfast.adapters.kubernetes.client.server import TokenFile
from holdfast.model.errors import BackendError, ConfigError
from tests.engines.control_plane import ControlPlane
from tests.engines.ports import free_port

SHORT = timedelta(seconds=0.3)
LONG = timedelta(seconds=30)  # far more than any test takes, even on a busy machine
NODE = "/api/v1/nodes/a"
NODES = "/api/v1/nodes"
OK = {"kind": "Node"}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.end()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def tls_server(authority: Authority) -> Iterator[ScriptedServer]:
    server = ScriptedServer(authority.server_context())
    yield server
    server.end()


@pytest.fixture
def open_api(server: ScriptedServer) -> Iterator[Api]:
    api = client(Server(url=server.url))
    yield api
    api.close()


def client(server: Server, timeout: timedelta = LONG, limit: RateLimit | None = None) -> Api:
    return Api(
        server, user_agent="holdfast-test", field_manager="tester", limit=limit, timeout=timeout
    )


@pytest.fixture
def api(open_api: Api) -> Api:
    return open_api


def status_of(error: pytest.ExceptionInfo[ApiError]) -> int:
    return error.value.status


# What goes out


def test_a_call_bears_our_name_the_token_and_the_query(server: ScriptedServer) -> None:
    api = client(Server(url=f"{server.url}/k8s/clusters/c1/", token=lambda: "secret"))

    api.get(NODE, {"resourceVersion": 7, "fieldSelector": "a=b,c"})
    api.close()

    [requested] = server.requested
    assert requested.verb == "GET"
    assert requested.path == (
        "/k8s/clusters/c1/api/v1/nodes/a?resourceVersion=7&fieldSelector=a%3Db%2Cc"
    )
    assert requested.headers["Authorization"] == "Bearer secret"
    assert requested.headers["User-Agent"] == "holdfast-test"
    assert requested.headers["Accept"] == "application/json"


def test_writes_name_their_manager_and_carry_the_body(server: ScriptedServer, api: Api) -> None:
    api.create(NODES, {"a": 1})
    api.replace(NODE, {"a": 2})
    api.patch(NODE, {"a": 3})
    api.patch(NODE, [{"op": "remove", "path": "/a"}], Patch.JSON)
    api.patch(NODE, {"a": 4}, Patch.STRATEGIC)
    api.patch(NODE, {"a": 5}, Patch.APPLY)

    reported = [(one.verb, one.path, one.headers["Content-Type"]) for one in server.requested]
    query = "?fieldManager=tester"
    assert reported == [
        ("POST", NODES + query, "application/json"),
        ("PUT", NODE + query, "application/json"),
        ("PATCH", NODE + query, "application/merge-patch+json"),
        ("PATCH", NODE + query, "application/json-patch+json"),
        ("PATCH", NODE + query, "application/strategic-merge-patch+json"),
        ("PATCH", f"{NODE}{query}&force=true", "application/apply-patch+yaml"),
    ]
    assert [one.content for one in server.requested] == [
        {"a": 1},
        {"a": 2},
        {"a": 3},
        [{"op": "remove", "path": "/a"}],
        {"a": 4},
        {"a": 5},
    ]


def test_a_deletion_says_which_object_and_how(server: ScriptedServer, api: Api) -> None:
    api.delete(NODE)
    api.delete(NODE, uid="u-1", grace=0, propagation="Background")

    kind = {"apiVersion": "v1", "kind": "DeleteOptions"}
    assert [one.content for one in server.requested] == [
        kind,
        {
            **kind,
            "preconditions": {"uid": "u-1"},
            "gracePeriodSeconds": 0,
            "propagationPolicy": "Background",
        },
    ]


def test_a_name_cannot_lead_out_of_its_path(server: ScriptedServer, api: Api) -> None:
    api.get("/api/v1/nodes/a b?watch=1#x")

    assert server.requested[0].path == "/api/v1/nodes/a%20b%3Fwatch%3D1%23x"


def test_calls_share_a_connection(server: ScriptedServer, api: Api) -> None:
    server.answers.extend([reply(OK), refuse(404), reply(OK)])

    api.get(NODE)
    with pytest.raises(NotFound):
        api.get(NODE)
    api.get(NODE)

    assert len({requested.peer for requested in server.requested}) == 1


def test_a_list_is_read_page_by_page_as_of_one_moment(server: ScriptedServer, api: Api) -> None:
    first = {"metadata": {"resourceVersion": "9", "continue": "c1"}, "items": [{"n": 1}, {"n": 2}]}
    last = {"metadata": {"resourceVersion": "9"}, "items": [{"n": 3}]}
    server.answers.extend([reply(first), reply(last), reply(first), reply(last)])

    items = list(api.list(NODES, {"labelSelector": "x"}))
    pages = list(api.pages(NODES))

    assert items == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert [page.resource_version for page in pages] == ["9", "9"]
    assert [one.path.partition("?")[2] for one in server.requested] == [
        "limit=500&labelSelector=x",
        "limit=500&labelSelector=x&continue=c1",
        "limit=500",
        "limit=500&continue=c1",
    ]


def test_an_empty_list_may_come_as_null(server: ScriptedServer, api: Api) -> None:
    server.answers.append(reply({"metadata": {"resourceVersion": "3"}, "items": None}))

    assert list(api.list(NODES)) == []


def test_many_threads_call_at_once(server: ScriptedServer, api: Api) -> None:
    def echo(handler: object) -> None:
        reply({"path": handler.path})(handler)

    paths = [f"{NODES}/n{number}" for number in range(200)]
    server.answers.extend([echo] * len(paths))
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(api.get, paths))

    assert [answer["path"] for answer in answers] == paths
    assert len({requested.peer for requested in server.requested}) < len(paths)


# Refusals


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "Conflict", Conflict),
        (409, "AlreadyExists", AlreadyExists),
        (410, "Expired", Gone),
        (429, "TooManyRequests", Throttled),
        (422, "Invalid", ApiError),
        (301, "", ApiError),
    ],
)
def test_every_refusal_has_its_error(
    server: ScriptedServer, api: Api, status: int, reason: str, kind: type[ApiError]
) -> None:
    server.answers.append(refuse(status, reason, "the reason why"))

    with pytest.raises(BackendError) as reported:
        api.get(NODE)

    assert type(reported.value) is kind
    assert (reported.value.status, reported.value.reason) == (status, reason)
    assert "GET /api/v1/nodes/a" in str(reported.value)
    assert "the reason why" in str(reported.value)
    assert len(server.requested) == 1


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (
            "at the cluster scope",
            "system:serviceaccount:holdfast:agent may not patch nodes/status in the whole cluster; "
            'give it a ClusterRole with the rule {"apiGroups": ["x.io"], '
            '"resources": ["nodes/status"], "verbs": ["patch"]}; if it has one, the API server '
            "has just started and not read its roles yet",
        ),
        (
            'in the namespace "ns1"',
            "system:serviceaccount:holdfast:agent may not patch nodes/status in namespace ns1; "
            'give it a Role in ns1 with the rule {"apiGroups": ["x.io"], '
            '"resources": ["nodes/status"], "verbs": ["patch"]}; if it has one, the API server '
            "has just started and not read its roles yet",
        ),
    ],
)
def test_a_missing_permission_is_reported_as_the_rule_to_add(
    server: ScriptedServer, api: Api, where: str, expected: str
) -> None:
    message = (
        'nodes "a" is forbidden: User "system:serviceaccount:holdfast:agent" cannot patch '
        f'resource "nodes/status" in API group "x.io" {where}'
    )
    server.answers.append(refuse(403, "Forbidden", message))

    with pytest.raises(Forbidden) as reported:
        api.patch(f"{NODE}/status", {})

    assert str(reported.value) == f"PATCH /api/v1/nodes/a/status: {expected}"


def test_a_policy_that_forbids_is_reported_in_its_own_words(
    server: ScriptedServer, api: Api
) -> None:
    server.answers.append(refuse(403, "Forbidden", "ValidatingAdmissionPolicy 'own' denied"))

    with pytest.raises(Forbidden, match="ValidatingAdmissionPolicy 'own' denied"):
        api.get(NODE)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>Bad request",
        b"[1]",
        b'"x"',
        b"\xff\xfe",
        b'{"details": 3}',
        b'{"details": {"causes": 3}}',
        b'{"details": {"causes": [3]}}',
    ],
)
def test_an_error_that_is_not_the_api_servers_is_reported_all_the_same(
    server: ScriptedServer, api: Api, body: bytes
) -> None:
    server.answers.append(reply(body, 400))

    with pytest.raises(ApiError) as reported:
        api.get(NODE)

    assert status_of(reported) == 400


def test_what_is_no_kubernetes_api_is_recognized(server: ScriptedServer, api: Api) -> None:
    server.answers.append(reply(b"<html>Welcome", Content_Type="text/html"))

    with pytest.raises(ApiError, match="check the address of the API"):
        api.get(NODE)


# Trying again


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("verb", ["get", "create"])
def test_a_call_comes_again_when_the_server_says_so(
    server: ScriptedServer, api: Api, status: int, verb: str
) -> None:
    server.answers.extend([refuse(status, Retry_After="0"), reply(OK)])

    assert (api.get(NODE) if verb == "get" else api.create(NODES, {})) == OK
    assert len(server.requested) == 2


def test_a_server_that_asks_for_more_time_than_there_is_is_reported_to_the_caller(
    server: ScriptedServer,
) -> None:
    server.answers.append(refuse(429, "TooManyRequests", "slow down", Retry_After="60"))
    api = client(Server(url=server.url), timeout=SHORT)

    with pytest.raises(Throttled) as reported:
        api.get(NODE)
    api.close()

    assert reported.value.after == timedelta(seconds=60)
    assert len(server.requested) == 1


def test_a_disruption_budget_is_for_the_caller_to_wait_for(
    server: ScriptedServer, api: Api
) -> None:
    causes = {"causes": [{"reason": "DisruptionBudget"}]}
    content = {**status_object(429, "TooManyRequests", "budget"), "details": causes}
    server.answers.append(reply(content, 429, Retry_After="0"))

    with pytest.raises(Throttled) as reported:
        api.create("/api/v1/namespaces/n/pods/p/eviction", {}, repeatable=True)

    assert reported.value.is_disruption_budget
    assert len(server.requested) == 1


LOST = [
    pytest.param(break_off(), id="closed without a word"),
    pytest.param(break_off(b"HTTP/1.1 200 OK\r\nContent-Le"), id="killed within the headers"),
    pytest.param(
        break_off(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
        ),
        id="killed within the body",
    ),
    pytest.param(break_off(CHUNKED + chunk(b'{"kind":')), id="killed between chunks"),
    pytest.param(break_off(CHUNKED + b"ff\r\n{"), id="killed within a chunk"),
    pytest.param(break_off(CHUNKED + b"zz\r\n{}\r\n"), id="nonsense for a length"),
    pytest.param(break_off(b"nonsense\r\n\r\n"), id="not HTTP"),
    pytest.param(reply(b'{"kind": "No'), id="JSON cut off"),
]


@pytest.mark.parametrize("lost", LOST)
def test_a_lost_answer_is_asked_for_again(server: ScriptedServer, api: Api, lost) -> None:
    server.answers.extend([lost, lost, reply(OK)])

    assert api.get(NODE) == OK
    assert len(server.requested) == 3


@pytest.mark.parametrize("lost", LOST)
def test_a_creation_that_may_have_been_done_is_not_repeated(
    server: ScriptedServer, api: Api, lost
) -> None:
    server.answers.extend([lost, reply(OK)])

    with pytest.raises(Unreachable) as reported:
        api.create(NODES, {})

    assert reported.value.sent
    assert len(server.requested) == 1


def test_a_creation_is_repeated_for_a_caller_who_takes_already_exists(
    server: ScriptedServer, api: Api
) -> None:
    server.answers.extend([break_off(), refuse(409, "AlreadyExists")])

    with pytest.raises(AlreadyExists):
        api.create(NODES, {}, repeatable=True)

    assert len(server.requested) == 2


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_an_error_of_the_server_is_repeated_where_that_is_harmless(
    server: ScriptedServer, api: Api, status: int
) -> None:
    server.answers.extend([refuse(status), reply(OK)] * 4 + [refuse(status)] * 2)

    assert api.get(NODE) == OK
    assert api.replace(NODE, {}) == OK
    assert api.patch(NODE, {}) == OK
    api.delete(NODE)
    assert len(server.requested) == 8
    for write in (lambda: api.create(NODES, {}), lambda: api.patch(NODE, [], Patch.JSON)):
        with pytest.raises(ApiError):
            write()
    assert len(server.requested) == 10


@pytest.mark.parametrize(
    "message",
    [
        'Internal error occurred: failed calling webhook "vjobset.kb.io": connection refused',
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not"
        " support.",
    ],
)
def test_an_internal_error_that_lasts_is_reported_at_once(
    server: ScriptedServer, api: Api, message: str
) -> None:
    server.answers.append(refuse(500, "InternalError", message))

    with pytest.raises(ApiError):
        api.patch(NODE, {})


def test_trying_again_ends_in_time(server: ScriptedServer) -> None:
    server.answers.extend([break_off()] * 1000)
    api = client(Server(url=server.url), timeout=timedelta(seconds=1))

    with pytest.raises(Unreachable):
        api.get(NODE)

    assert 2 <= len(server.requested) <= 12  # pauses of 50 ms at least, then twice as long each


def test_a_server_that_is_down_is_reported_with_its_address() -> None:
    url = f"http://127.0.0.1:{free_port()}"

    with pytest.raises(Unreachable, match=f"cannot reach {url}.*refused") as reported:
        client(Server(url=url), SHORT).create(NODES, {})

    assert not reported.value.sent


def test_what_was_not_sent_is_tried_again_even_if_it_must_not_be_done_twice() -> None:
    port = free_port()
    begun: list[ScriptedServer] = []
    later = threading.Timer(0.3, lambda: begun.append(ScriptedServer(port=port)))
    later.start()
    api = client(Server(url=f"http://127.0.0.1:{port}"))

    assert api.create(NODES, {}) == {}
    api.close()
    later.join()
    assert len(begun[0].requested) == 1
    begun[0].end()


def test_a_connection_that_the_server_has_closed_meanwhile_is_not_used(
    server: ScriptedServer, api: Api
) -> None:
    def answer_and_leave(handler: object) -> None:
        reply(OK)(handler)
        handler.connection.shutdown(socket.SHUT_RDWR)
        handler.close_connection = True
        left.set()

    left = threading.Event()
    server.answers.extend([answer_and_leave, reply(OK)])
    api.get(NODE)
    assert left.wait(LONG.total_seconds())

    assert api.create(NODES, {}) == OK  # which would not be repeated
    assert len(server.requested) == 2


def test_where_one_connection_has_died_the_others_are_not_trusted(server: ScriptedServer) -> None:
    both = threading.Barrier(2)

    def together(handler: object) -> None:
        both.wait(LONG.total_seconds())
        reply(OK)(handler)

    server.answers.extend([together, together, break_off(), reply(OK)])
    api = client(Server(url=server.url))
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(api.get, [NODE] * 2)) == [OK] * 2

    assert api.get(NODE) == OK
    api.close()

    peers = [requested.peer for requested in server.requested]
    assert len(set(peers)) == 3
    assert peers.count(peers[-1]) == 1


class ClosesAtItsEnd(HTTPResponse):
    """Responses since Python 3.11.8, for older ones: the last piece closes them."""

    def read1(self, n: int = -1) -> bytes:
        piece = super().read1(n)
        if self.length == 0:
            self.close()
        return piece


@pytest.mark.parametrize("response", [HTTPResponse, ClosesAtItsEnd])
def test_a_server_that_announces_its_leave_is_understood(
    server: ScriptedServer, api: Api, monkeypatch: pytest.MonkeyPatch, response: type[HTTPResponse]
) -> None:
    monkeypatch.setattr(HTTPConnection, "response_class", response)
    server.answers.extend([reply(OK, Connection="close")] * 3)

    for _ in range(3):
        assert api.create(NODES, {}) == OK
    assert len({requested.peer for requested in server.requested}) == 3


@pytest.mark.parametrize(
    "slow",
    [
        pytest.param(hang(), id="no answer"),
        pytest.param(hang(CHUNKED + b"5\r\n{"), id="half an answer"),
        pytest.param(drip(CHUNKED, chunk(b'{"a":"%s"}' % (b"x" * 5000)), 0.02), id="slow"),
    ],
)
def test_a_server_that_hangs_is_given_up_in_time(server: ScriptedServer, slow) -> None:
    server.answers.append(slow)
    api = client(Server(url=server.url), SHORT)
    begun = time.monotonic()

    with pytest.raises(Unreachable, match=r"did not respond within 0\.3 s"):
        api.get(NODE)

    assert time.monotonic() - begun < 20  # and not the hundred seconds of the slow one


def test_a_peer_that_accepts_and_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(Unreachable):
            client(Server(url=url), SHORT).get(NODE)
        with pytest.raises(Unreachable):
            client(Server(url=url.replace("http", "https")), SHORT).get(NODE)


def test_a_huge_object_comes_whole(server: ScriptedServer, api: Api) -> None:
    huge = {"data": "x" * 5_000_000}
    body = json.dumps(huge).encode()
    parts = b"".join(chunk(body[at : at + 3000]) for at in range(0, len(body), 3000))
    server.answers.extend([reply(huge), break_off(CHUNKED + parts + b"0\r\n\r\n")])

    assert api.get(NODE) == huge
    assert api.get(NODE) == huge
    assert api.create(NODES, huge) == {}
    assert server.requested[-1].content == huge


def test_a_packed_answer_is_unpacked(server: ScriptedServer, api: Api) -> None:
    packed = gzip.compress(json.dumps(OK).encode())
    broken = packed[:-12]
    server.answers.extend(
        [reply(packed, Content_Encoding="gzip"), reply(broken, Content_Encoding="gzip")]
    )

    assert api.get(NODE) == OK
    assert server.requested[0].headers["Accept-Encoding"] == "gzip"
    with pytest.raises(Unreachable):
        api.create(NODES, {})


# Who we are, and whom we trust


def test_tls_with_a_certificate_of_ours(
    tls_server: ScriptedServer, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A proxy for the way out is not for calls within a cluster.
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    trusted = Server(url=tls_server.url, ca_file=authority.file)
    as_data = Server(url=tls_server.url, ca_data=authority.file.read_text())

    for server in (trusted, as_data):
        api = client(server)
        tls_server.answers.extend([reply(OK), reply(OK)])
        assert api.get(NODE) == OK
        assert api.get(NODE) == OK
        api.close()
    assert len({requested.peer for requested in tls_server.requested}) == 2


def test_a_server_of_another_authority_is_not_spoken_to(
    tls_server: ScriptedServer, tmp_path: Path
) -> None:
    other = Authority.make(tmp_path)
    api = client(Server(url=tls_server.url, ca_file=other.file, token=lambda: "secret"))
    begun = time.monotonic()

    with pytest.raises(Unreachable, match=f"not trusted.*authority.*{other.file}"):
        api.get(NODE)

    assert tls_server.requested == []
    assert time.monotonic() - begun < LONG.total_seconds() / 2  # another try is of no use


def test_a_server_of_another_name_is_not_spoken_to(
    tls_server: ScriptedServer, authority: Authority
) -> None:
    server = Server(url=tls_server.url, ca_file=authority.file, tls_server_name="elsewhere")

    with pytest.raises(Unreachable, match="not trusted"):
        client(server).get(NODE)


def test_a_server_may_be_known_by_another_name(
    tls_server: ScriptedServer, authority: Authority
) -> None:
    for name, ca_file, insecure in (("kubernetes", authority.file, False), ("x", None, True)):
        api = client(
            Server(url=tls_server.url, ca_file=ca_file, tls_server_name=name, insecure=insecure)
        )
        assert api.get(NODE) == {}
        api.close()


def test_a_client_may_show_a_certificate(authority: Authority) -> None:
    context = authority.server_context()
    context.verify_mode = ssl.CERT_REQUIRED
    server = ScriptedServer(context)
    pem = authority.issue("someone")
    api = client(Server(url=server.url, ca_file=authority.file, certificate=lambda: pem))
    stranger = client(Server(url=server.url, ca_file=authority.file), SHORT)

    assert api.get(NODE) == {}
    with pytest.raises(Unreachable):
        stranger.get(NODE)
    api.close()
    server.end()


def test_a_token_that_takes_longer_than_there_is_time_breaks_nothing() -> None:
    server = ScriptedServer()

    def token() -> str:
        time.sleep(2 * SHORT.total_seconds())
        return "late"

    api = client(Server(url=server.url, token=token), SHORT)
    with suppress(Unreachable):
        assert api.get(NODE) == {}
    api.close()
    server.end()


def test_a_certificate_that_cannot_be_used_is_reported() -> None:
    server = Server(url="https://127.0.0.1:1", insecure=True, certificate=lambda: "nonsense")

    with pytest.raises(Unreachable, match=r"cannot use the certificates for https://127"):
        client(server).get(NODE)


def test_an_authority_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    server = Server(url="https://127.0.0.1:1", ca_file=tmp_path / "none")

    with pytest.raises(Unreachable, match="cannot use the certificates"):
        client(server).get(NODE)


@pytest.mark.parametrize("url", ["", "127.0.0.1:6443", "ftp://x", "https://"])
def test_an_address_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(ConfigError, match="expected https:"):
        client(Server(url=url))


def test_a_proxy_is_used_where_it_is_asked_for(
    tls_server: ScriptedServer, authority: Authority
) -> None:
    proxy = socket.create_server(("127.0.0.1", 0))
    heard = []

    def connect() -> None:
        inner, _ = proxy.accept()
        outer = socket.create_connection(("127.0.0.1", tls_server.server_port))
        with inner, outer:
            heard.append(inner.recv(4096).split(b"\r\n")[0])
            inner.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=pump, args=(outer, inner))
            back.start()
            pump(inner, outer)
            back.join()

    def pump(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=connect)
    thread.start()
    url = f"http://127.0.0.1:{proxy.getsockname()[1]}"
    api = client(Server(url=tls_server.url, ca_file=authority.file, proxy=url))

    assert api.get(NODE) == {}
    api.close()
    thread.join(LONG.total_seconds())
    proxy.close()
    assert [line.rpartition(b" ")[0] for line in heard] == [
        f"CONNECT 127.0.0.1:{tls_server.server_port}".encode()
    ]


def test_a_token_that_is_refused_is_fetched_anew_once(server: ScriptedServer) -> None:
    tokens = ["", "old", "new"]
    api = client(
        Server(url=server.url, token=lambda: tokens[0], token_refused=lambda: tokens.pop(0))
    )
    server.answers.extend([refuse(401), refuse(401), reply(OK), refuse(401), refuse(401)])

    with pytest.raises(Unauthorized):
        api.get(NODE)
    assert api.get(NODE) == OK
    with pytest.raises(Unauthorized):
        api.get(NODE)
    api.close()

    assert [requested.headers.get("Authorization") for requested in server.requested] == [
        None,
        "Bearer old",
        "Bearer old",
        "Bearer old",
        "Bearer new",
    ]
    assert server.requested[0].peer != server.requested[1].peer  # a certificate may be fresh, too


def test_a_token_file_is_read_once_a_minute_and_after_a_refusal(tmp_path: Path) -> None:
    now = [0.0]
    path = tmp_path / "token"
    path.write_text("one\n")
    token = TokenFile(path, clock=lambda: now[0])

    assert token() == "one"
    path.write_text("two\n")
    now[0] = 59.9
    assert token() == "one"
    now[0] = 60.0
    assert token() == "two"
    path.write_text("three\n")
    token.refused()
    assert token() == "three"


def test_a_token_file_that_is_gone_for_a_moment_leaves_the_last_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    token = TokenFile(path)
    token()
    for damage in (path.unlink, lambda: path.write_text("")):
        damage()
        token.refused()
        assert token() == "one"


def test_a_token_file_that_never_was_is_reported(tmp_path: Path) -> None:
    server = Server(url="http://127.0.0.1:1", token=TokenFile(tmp_path / "token"))

    with pytest.raises(Unreachable, match=f"cannot read the token in {tmp_path}.*No such file"):
        client(server, SHORT).get(NODE)


def test_a_pod_finds_its_api_server(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text("c")

    plain = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    server = in_cluster(plain, tmp_path)
    assert server.url == "https://10.0.0.1:6443"
    assert server.ca_file == tmp_path / "ca.crt"
    assert server.token is not None
    assert server.token() == "t"
    assert (
        in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1"}, tmp_path).url == "https://[fd00::1]:443"
    )


def test_outside_of_a_pod_that_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="KUBERNETES_SERVICE_HOST is not set"):
        in_cluster({}, tmp_path)
    with pytest.raises(ConfigError, match=r"has no token and no ca\.crt"):
        in_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path)


# Watches


ADDED = {"type": "ADDED", "object": {"metadata": {"name": "a"}}}
BOOKMARK = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}
HUGE = {"type": "MODIFIED", "object": {"data": "x" * 2_000_000}}


@pytest.mark.parametrize("cut", [1, 7, 4096, 1 << 20])
def test_events_come_whole_however_they_are_cut(server: ScriptedServer, api: Api, cut: int) -> None:
    happened = [ADDED, BOOKMARK, ADDED] if cut == 1 else [ADDED, HUGE, BOOKMARK, ADDED]
    server.answers.append(break_off(events(*happened, cut=cut)))

    with api.watch(NODES, {"resourceVersion": 4}) as watch:
        assert list(watch) == happened

    assert server.requested[0].path == f"{NODES}?resourceVersion=4&watch=true"


def test_an_event_is_reported_at_once(server: ScriptedServer, api: Api) -> None:
    server.answers.append(hang(events(ADDED, end=False)))

    with api.watch(NODES) as watch:
        assert next(iter(watch)) == ADDED


@pytest.mark.parametrize(("code", "kind"), [(410, Gone), (500, ApiError), (0, ApiError)])
def test_an_error_in_a_watch_is_raised(
    server: ScriptedServer, api: Api, code: int, kind: type[ApiError]
) -> None:
    error = {"type": "ERROR", "object": status_object(code, "Expired", "too old resource version")}
    server.answers.append(break_off(events(ADDED, error)))

    with api.watch(NODES) as watch:
        stream = iter(watch)
        assert next(stream) == ADDED
        with pytest.raises(kind, match="too old") as reported:
            next(stream)
    assert type(reported.value) is kind


def test_a_watch_that_is_refused_raises_at_once(server: ScriptedServer, api: Api) -> None:
    server.answers.extend([refuse(410, "Expired"), refuse(403, "Forbidden"), break_off()])

    with pytest.raises(Gone):
        api.watch(NODES)
    with pytest.raises(Forbidden):
        api.watch(NODES)
    with pytest.raises(Unreachable):
        api.watch(NODES)


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(break_off(events(ADDED, end=False)), id="server killed"),
        pytest.param(break_off(events(ADDED, end=False) + b"50\r\n{"), id="within an event"),
        pytest.param(hang(events(ADDED, end=False)), id="stalled"),
        pytest.param(hang(events(ADDED, end=False) + b"50\r\n{"), id="stalled within an event"),
        pytest.param(break_off(events(ADDED, "nonsense")), id="nonsense"),
        pytest.param(break_off(events(ADDED, {"type": "ADDED"})), id="without an object"),
        pytest.param(break_off(events(ADDED, {"type": "ADDED", "object": 3})), id="no object"),
        pytest.param(break_off(events(ADDED, {"type": "ADDED", "object": "x"})), id="a word"),
    ],
)
def test_a_watch_that_breaks_says_so(server: ScriptedServer, api: Api, broken) -> None:
    server.answers.append(broken)

    with api.watch(NODES, stall=SHORT) as watch:
        stream = iter(watch)
        assert next(stream) == ADDED
        with pytest.raises(Unreachable):
            next(stream)


def test_a_quiet_watch_lasts_longer_than_a_call(server: ScriptedServer) -> None:
    def pause(handler: object) -> None:
        handler.raw(events(ADDED, end=False))
        handler.server.released.wait(3 * SHORT.total_seconds())
        handler.raw(events(BOOKMARK).partition(b"\r\n\r\n")[2])

    server.answers.append(pause)

    with client(Server(url=server.url), SHORT).watch(NODES, stall=LONG) as watch:
        assert list(watch) == [ADDED, BOOKMARK]


@pytest.mark.parametrize("with_tls", [True, False])
def test_a_waiting_watch_is_ended_from_another_thread(authority: Authority, with_tls: bool) -> None:
    server = ScriptedServer(authority.server_context() if with_tls else None)
    server.answers.append(hang(events(ADDED, end=False)))
    api = client(Server(url=server.url, ca_file=authority.file))
    seen = []
    first = threading.Event()

    def read(watch) -> None:
        with watch:
            for event in watch:
                seen.append(event)
                first.set()

    watch = api.watch(NODES, stall=LONG)
    reader = threading.Thread(target=read, args=(watch,))
    reader.start()
    assert first.wait(LONG.total_seconds())
    watch.close()
    reader.join(LONG.total_seconds() / 2)

    assert not reader.is_alive()
    assert seen == [ADDED]
    watch.close()  # once more is harmless
    server.end()


# Rate


def test_a_burst_is_free_and_then_the_rate_holds() -> None:
    now = [100.0]
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    limit = RateLimit(per_second=10, burst=3, clock=lambda: now[0], sleep=sleep)
    waits = [limit.acquire() for _ in range(6)]

    assert waits[:3] == [timedelta()] * 3
    assert waits[3:] == [pytest.approx(timedelta(seconds=0.1), abs=timedelta(microseconds=5))] * 3
    assert limit.waited == pytest.approx(timedelta(seconds=0.3), abs=timedelta(microseconds=5))
    now[0] += 1000
    assert [limit.acquire() for _ in range(3)] == [timedelta()] * 3
    assert limit.acquire() > timedelta()


@pytest.mark.parametrize(("per_second", "burst"), [(0, 1), (-1, 1), (1, 0)])
def test_a_limit_that_lets_nothing_through_is_refused(per_second: float, burst: int) -> None:
    with pytest.raises(ValueError, match="rate limit must be above 0"):
        RateLimit(per_second=per_second, burst=burst)


def test_calls_and_watches_wait_for_their_turn_and_that_is_not_their_own_time(
    server: ScriptedServer,
) -> None:
    def stopped() -> float:  # threads that start late would wait less
        return 100.0

    limit = RateLimit(per_second=4, burst=1, clock=stopped)
    api = client(Server(url=server.url), timeout=timedelta(seconds=0.2), limit=limit)

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(api.get, [NODE] * 3)) == [{}] * 3
    before = limit.waited
    api.watch(NODES).__exit__(None, None, None)
    api.close()

    assert before == timedelta(seconds=0.25 + 0.5)
    assert limit.waited == before + timedelta(seconds=0.75)


# The real API server


def admin(plane: ControlPlane) -> Server:
    return Server(url=plane.url, ca_file=plane.certificate, token=lambda: plane.token)


@pytest.fixture
def real(control_plane: ControlPlane) -> Iterator[Api]:
    api = client(admin(control_plane))
    yield api
    for one in list(api.list(CONFIG_MAPS, {"labelSelector": "tried"})):
        api.delete(f"{CONFIG_MAPS}/{one['metadata']['name']}")
    api.close()


CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def config_map(name: str, **data: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"tried": "yes"}},
        "data": data,
    }


def test_the_real_api_server_reads_and_writes(real: Api) -> None:
    created = real.create(CONFIG_MAPS, config_map("a", x="1"))
    path = f"{CONFIG_MAPS}/a"

    assert real.get(path)["data"] == {"x": "1"}
    assert real.patch(path, {"data": {"x": None, "y": "2"}})["data"] == {"y": "2"}
    add = {"op": "add", "path": "/data/z", "value": "3"}
    assert real.patch(path, [add], Patch.JSON)["data"] == {"y": "2", "z": "3"}
    assert real.patch(path, config_map("a", y="4"), Patch.APPLY)["data"]["y"] == "4"
    assert real.patch(path, {"data": {"w": "5"}}, Patch.STRATEGIC)["data"]["w"] == "5"
    managers = {one["manager"] for one in real.get(path)["metadata"]["managedFields"]}
    assert managers == {"tester"}
    with pytest.raises(Conflict, match="the object has been modified"):
        real.replace(path, created)
    with pytest.raises(AlreadyExists):
        real.create(CONFIG_MAPS, config_map("a"))
    with pytest.raises(Conflict, match="UID"):
        real.delete(path, uid="another")
    real.delete(path, uid=created["metadata"]["uid"], propagation="Background")
    with pytest.raises(NotFound):
        real.get(path)
    with pytest.raises(ApiError, match="Invalid") as reported:
        real.create(CONFIG_MAPS, config_map("not a name"))
    assert reported.value.status == 422


def test_the_real_api_server_lists_in_pages(real: Api) -> None:
    for number in range(7):
        real.create(CONFIG_MAPS, config_map(f"p{number}", large="x" * 100_000))
    query = {"labelSelector": "tried", "limit": 3}

    pages = list(real.pages(CONFIG_MAPS, query))

    assert [len(page.items) for page in pages] == [3, 3, 1]
    assert len({page.resource_version for page in pages}) == 1
    assert len(list(real.list(CONFIG_MAPS, {"labelSelector": "tried"}))) == 7  # packed


def test_the_real_api_server_watches_and_forgets(real: Api, control_plane: ControlPlane) -> None:
    [*_, page] = real.pages(CONFIG_MAPS)
    real.create(CONFIG_MAPS, config_map("w"))
    query = {"labelSelector": "tried", "timeoutSeconds": 1}

    with real.watch(CONFIG_MAPS, {**query, "resourceVersion": page.resource_version}) as watch:
        assert [event["type"] for event in watch] == ["ADDED"]
    control_plane.restart_api_server()  # it knows only what happens from now on
    with (
        real.watch(CONFIG_MAPS, {**query, "resourceVersion": 1}) as watch,
        pytest.raises(Gone, match="too old resource version"),
    ):
        list(watch)


def test_the_real_api_server_says_who_we_are_and_what_we_may_not(
    real: Api, control_plane: ControlPlane
) -> None:
    token = control_plane.service_account_token("default", "default")
    server = Server(url=control_plane.url, ca_file=control_plane.certificate, token=lambda: token)
    account = client(server)
    stranger = client(
        Server(url=server.url, ca_file=server.ca_file, token=lambda: "wrong"), timeout=SHORT
    )

    with pytest.raises(Forbidden) as reported:
        account.patch("/api/v1/nodes/n1/status", {})
    assert str(reported.value) == (
        "PATCH /api/v1/nodes/n1/status: system:serviceaccount:default:default may not patch "
        "nodes/status in the whole cluster; give it a ClusterRole with the rule "
        '{"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]}; if it has one, '
        "the API server has just started and not read its roles yet"
    )
    with pytest.raises(Forbidden, match=r'Role in kube-system .*"apiGroups": \["coordination'):
        account.watch("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases")
    with pytest.raises(Unauthorized):
        stranger.get(NODE)
    account.close()
    stranger.close()


def test_an_eviction_that_a_budget_forbids_is_reported_at_once(real: Api) -> None:
    pods, budgets = (
        "/api/v1/namespaces/default/pods",
        ("/apis/policy/v1/namespaces/default/poddisruptionbudgets"),
    )
    labels = {"app": "guarded"}
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "none"}
    real.create(pods, {"metadata": {"name": "guarded", "labels": labels}, "spec": spec})
    ready = {"type": "Ready", "status": "True"}
    real.patch(
        f"{pods}/guarded/status",
        {"status": {"phase": "Running", "conditions": [ready]}},
        Patch.STRATEGIC,
    )
    selector = {"matchLabels": labels}
    real.create(
        budgets,
        {"metadata": {"name": "guard"}, "spec": {"minAvailable": 1, "selector": selector}},
    )
    deadline = time.monotonic() + LONG.total_seconds()
    while not real.get(f"{budgets}/guard").get("status", {}).get("observedGeneration"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "guarded", "namespace": "default"},
    }

    with pytest.raises(Throttled, match="disruption budget") as reported:
        real.create(f"{pods}/guarded/eviction", eviction)

    assert reported.value.is_disruption_budget
    real.delete(f"{budgets}/guard")
    real.delete(f"{pods}/guarded", grace=0)
