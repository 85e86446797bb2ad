"""The owner of the machines of a cluster of real nodes, who takes the orders of a webhook."""

import hmac
import json
import queue
import ssl
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from holdfast.kit.webhooks import signature
from tests.engines.real_cluster import RealCluster

SECRET = "known to the controller and to the owner"  # noqa: S105


@dataclass
class Order:
    """An accepted order, and when it came by the clock ``time.monotonic``."""

    action: str
    node: str
    token: str
    reason: str
    at: float


class MachineOwner:
    """Accepts signed orders over HTTPS, and carries them out one after another.

    It knows machines by their provider ID. Use it as a context manager.
    """

    def __init__(self, cluster: RealCluster) -> None:
        self.orders: list[Order] = []
        self._cluster = cluster
        self._accepted: queue.Queue[Order | None] = queue.Queue()
        self._spares = 0
        self.failures: list[str] = []
        """Orders that were not carried out, and why."""
        certificate = cluster.plane.certificate
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
        self._server = ThreadingHTTPServer((cluster.network.host, 0), self._handler())
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://{cluster.network.host}:{self._server.server_port}/orders"
        self._threads = [
            threading.Thread(target=self._server.serve_forever, args=(0.05,)),
            threading.Thread(target=self._carry_out_all),
        ]

    def __enter__(self) -> "MachineOwner":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._accepted.put(None)
        self._server.shutdown()
        self._server.server_close()
        for thread in self._threads:
            thread.join()

    def accept(self, body: bytes, header: str) -> int:
        """The HTTP status for an order; one with a token that came before has no effect."""
        at = datetime.fromtimestamp(int(header.partition("t=")[2].partition(",")[0]), UTC)
        if not hmac.compare_digest(signature(SECRET.encode(), at, body), header):
            return 401
        given = json.loads(body)
        node = self._cluster.nodes.get(given["node"])
        if any(order.token == given["token"] for order in self.orders):
            return 409
        if node is None or node.provider_id != given["provider_id"]:
            return 410
        order = Order(*(given[key] for key in ("action", "node", "token", "reason")),
                      time.monotonic())  # fmt: skip
        self.orders.append(order)
        self._accepted.put(order)
        return 202

    def _carry_out_all(self) -> None:
        # Machines end with the thread that boots them: this one lasts as long as the owner.
        while (order := self._accepted.get()) is not None:
            try:
                self._carry_out(order)
            except Exception as error:  # noqa: BLE001 - its machines would end with this thread
                self.failures.append(f"{order}: {error!r}")

    def _carry_out(self, order: Order) -> None:
        machine = self._cluster.nodes.get(order.node)
        if machine is None:  # another order was first
            return
        if order.action == "reboot":
            machine.reboot()
        else:
            self._cluster.leave(order.node)
            self._spares += 1
            self._cluster.join(f"spare-{self._spares}")

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(owner.accept(body, self.headers["Holdfast-Signature"]))
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        return Handler
