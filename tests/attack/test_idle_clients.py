"""Clients that connect and send nothing cannot keep a health probe from its answer."""

import socket
from contextlib import ExitStack

from holdfast.adapters.telemetry.http_server import HttpResponse, HttpServer


def test_idle_clients_do_not_starve_the_probes_of_agent_and_controller() -> None:
    server = HttpServer("127.0.0.1", 0, {"/healthz": lambda: HttpResponse("ok\n")})
    with ExitStack() as opened:
        opened.callback(server.close)
        for _ in range(64):
            opened.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        # the timeout of the liveness probe in the chart is 5 s
        with socket.create_connection(("127.0.0.1", server.port), timeout=4) as probe:
            probe.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")

            assert probe.recv(100).startswith(b"HTTP/1.1 200")
