import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.telemetry import http_server
from holdfast.adapters.telemetry.http_server import CLIENTS, REQUEST_BYTES, HttpResponse, HttpServer
from holdfast.model.errors import ConfigError

TIMEOUT_S = 90.0
BIG = "x" * 8_000_000
GET = b"GET /page HTTP/1.1\r\nHost: x\r\n\r\n"
STARVED = """
import os, resource, socket, time
from holdfast.adapters.telemetry.http_server import HttpResponse, HttpServer

server = HttpServer("127.0.0.1", 0, {"/page": lambda: HttpResponse("x")})
client = socket.socket()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
try:
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
before = time.process_time()
client.connect(("127.0.0.1", server.port))
time.sleep(0.5)
is_quiet = time.process_time() - before < 0.25
for one in taken:
    os.close(one)
client.settimeout(20)
client.sendall(b"GET /page HTTP/1.1\\r\\n\\r\\n")
print(is_quiet, client.recv(100).split()[1].decode())
server.close()
"""


@pytest.fixture
def server() -> Iterator[HttpServer]:
    pages = {"/page": lambda: HttpResponse("ü\n"), "/big": lambda: HttpResponse(BIG)}
    server = HttpServer("127.0.0.1", 0, pages)
    yield server
    server.close()


def connect(server: HttpServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT_S)


def read_all(connection: socket.socket) -> bytes:
    data = b""
    while piece := connection.recv(1 << 20):
        data += piece
    return data


def ask(server: HttpServer, request: bytes) -> tuple[int, bytes]:
    with connect(server) as connection:
        connection.sendall(request)
        head, _, body = read_all(connection).partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def test_a_page_is_served_whole() -> None:
    server = HttpServer("localhost", 0, {"/": lambda: HttpResponse("ü", content_type="text/x")})
    with connect(server) as connection:
        connection.sendall(b"GET /?a=b HTTP/1.1\r\n\r\n")
        answer = read_all(connection)
    server.close()

    assert answer == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/x\r\nContent-Length: 2\r\n"
        b"Connection: close\r\n\r\n\xc3\xbc"
    )


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (GET, 200),
        (b"HEAD /page HTTP/1.0\r\n\r\n", 200),
        (b"GET /other HTTP/1.1\r\n\r\n", 404),
        (b"POST /page HTTP/1.1\r\n\r\n", 405),
        (b"GET /page\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\xff\x00 \xff HTTP/1.1\r\n\r\n", 405),
        (b"x" * REQUEST_BYTES, 431),
    ],
)
def test_every_request_gets_its_answer(server: HttpServer, request_: bytes, status: int) -> None:
    assert ask(server, request_)[0] == status


def test_head_has_no_body_and_an_unknown_path_names_the_known_ones(server: HttpServer) -> None:
    assert ask(server, b"HEAD /page HTTP/1.1\r\n\r\n") == (200, b"")
    assert ask(server, b"GET /x HTTP/1.1\r\n\r\n") == (404, b"there is /page, /big\n")


def test_a_request_may_come_byte_by_byte(server: HttpServer) -> None:
    with connect(server) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(len(GET)):
            connection.send(GET[number : number + 1])
        assert read_all(connection).endswith("ü\n".encode())


def test_a_big_page_arrives_though_its_reader_pauses(server: HttpServer) -> None:
    with connect(server) as connection:
        connection.sendall(b"GET /big HTTP/1.1\r\n\r\n")
        time.sleep(0.05)
        assert read_all(connection).endswith(b"\r\n\r\n" + BIG.encode())


def test_silent_clients_are_disconnected_after_the_timeout(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "TIMEOUT_S", 0.3)
    with ExitStack() as stack:
        silent = [stack.enter_context(connect(server)) for _ in range(CLIENTS - 1)]
        silent[0].sendall(b"GET /pa")
        silent[1].sendall(b"GET /big HTTP/1.1\r\n\r\n")  # and never read

        assert ask(server, GET)[0] == 200
        for connection in [silent[0], *silent[2:]]:
            assert connection.recv(1) == b""


def test_a_probe_is_answered_while_clients_without_requests_hold_all_connections(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "TIMEOUT_S", 1000 * TIMEOUT_S)  # none of them times out
    with ExitStack() as stack:
        for wave in range(1, 5):
            for _ in range(wave * CLIENTS):
                silent = stack.enter_context(connect(server))
                silent.sendall(b"GET /page HTTP/1.1\r\n")
            assert ask(server, GET)[0] == 200


def test_the_address_with_the_most_connections_loses_its_oldest(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "TIMEOUT_S", 1000 * TIMEOUT_S)
    with ExitStack() as stack:
        other = socket.create_connection(
            ("127.0.0.1", server.port), TIMEOUT_S, source_address=("127.0.0.2", 0)
        )
        first, *_ = [
            stack.enter_context(one)
            for one in (other, *(connect(server) for _ in range(3 * CLIENTS)))
        ][1:]
        assert first.recv(1) == b""

        other.sendall(GET)
        assert read_all(other).startswith(b"HTTP/1.1 200")


def test_a_server_without_file_descriptors_waits_and_recovers() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARVED], capture_output=True, text=True, check=False, timeout=60
    )

    assert (done.stdout, done.stderr) == ("True 200\n", "")


def test_a_client_that_hangs_up_disturbs_nobody(server: HttpServer) -> None:
    for request in (b"", b"GET", b"GET /big HTTP/1.1\r\n\r\n"):
        with connect(server) as connection:
            linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"  # close with a reset
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            connection.sendall(request)

    assert ask(server, GET)[0] == 200


def test_a_port_that_is_taken_is_bad_input(server: HttpServer) -> None:
    with pytest.raises(ConfigError) as caught:
        HttpServer("127.0.0.1", server.port, {})

    assert str(caught.value) == (
        f"cannot serve metrics on 127.0.0.1:{server.port}: Address already in use; "
        "choose another address"
    )


def test_a_host_that_is_nowhere_is_bad_input() -> None:
    with pytest.raises(ConfigError, match=r"cannot serve metrics on 203\.0\.113\.1:0: "):
        HttpServer("203.0.113.1", 0, {})


def test_a_closed_server_lets_go_of_its_port_and_of_its_clients(server: HttpServer) -> None:
    other = HttpServer("127.0.0.1", 0, {"/page": lambda: HttpResponse("x")})
    with connect(other) as connection:
        connection.sendall(b"GET")
        ask(other, GET)
        other.close()
        assert connection.recv(1) == b""

    again = HttpServer("127.0.0.1", other.port, {"/page": lambda: HttpResponse("x")})
    assert ask(again, GET)[0] == 200
    again.close()


HEAD = b"GET /page HTTP/1.1\r\nHost: x\r\n\r\n"


@given(st.data())
def test_any_bytes_are_answered_or_refused_and_the_next_client_is_served(
    data: st.DataObject,
) -> None:
    parts = st.binary(max_size=40) | st.sampled_from([HEAD, b"/" * 9000, b"\r\n\r\n", b"\0", b" "])
    request = b"".join(data.draw(st.lists(parts, max_size=5)))
    with closing(HttpServer("127.0.0.1", 0, {"/page": lambda: HttpResponse("x")})) as server:
        with suppress(OSError), connect(server) as connection:  # or refused before it was sent
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            received = read_all(connection)
            assert not received or int(received.split()[1]) in (200, 400, 404, 405, 431)

        assert ask(server, HEAD) == (200, b"x")
