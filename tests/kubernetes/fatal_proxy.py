"""A proxy before the API server that kills its client at a chosen write."""

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeVar

from tests.engines.control_plane import ControlPlane

_WRITES = ("POST", "PUT", "PATCH", "DELETE")
_UNCOUNTED = ("/leases", "/events")
"""The lead is renewed all the time, and Events are told when there is time."""

_HOP_BY_HOP = ("connection", "transfer-encoding", "content-length", "host")


class FatalProxy:
    """Passes everything on; ``strike`` is called once, at the write of that number.

    A client with credentials keeps its rights; one without may do everything.

    Args:
        plane: the control plane.
        folder: for the configuration of clients.
        host: an address of this machine with a certificate of the control plane, for clients who
            want HTTPS; empty: it serves HTTP on the loopback address.

    """

    def __init__(self, plane: ControlPlane, folder: Path, host: str = "") -> None:
        self.plane = plane
        self.context = ssl.create_default_context(cafile=plane.certificate)
        self.writes: list[str] = []
        self.fatal = 0
        self.is_answered = False
        """Whether the fatal write is carried out before the client dies of it."""

        self.strike: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        handler = type("ProxyHandler", (_Handler,), {"proxy": self})
        self.server = ThreadingHTTPServer((host or "127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        if host:
            self._encrypt()
        self.kubeconfig = folder / "proxy.kubeconfig"
        self.kubeconfig.write_text(json.dumps(self._config({})), encoding="utf-8")

    def count(self, method: str, path: str) -> bool:
        """Note a write; whether it is the fatal one."""
        if method not in _WRITES or any(part in path for part in _UNCOUNTED):
            return False
        with self._lock:
            self.writes.append(f"{method} {path.partition('?')[0]}")
            return len(self.writes) == self.fatal

    def refuse(self, method: str, path: str) -> int:
        """The status that a request is answered with instead of being passed on; 0 for none."""
        return 0

    def cuts(self) -> bool:
        """Whether an answer ends before its next piece."""
        return False

    @property
    def url(self) -> str:
        """Where clients reach it."""
        return f"http://127.0.0.1:{self.server.server_port}"

    def before(self, kubeconfig: Path) -> Path:
        """A configuration with the credentials of another one, whose requests come through here."""
        [known] = json.loads(kubeconfig.read_text(encoding="utf-8"))["users"]
        path = self.kubeconfig.with_name(f"proxy-{kubeconfig.name}")
        path.write_text(json.dumps(self._config(known["user"])), encoding="utf-8")
        return path

    def _encrypt(self) -> None:
        certificate = self.plane.certificate
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
        self.server.socket = context.wrap_socket(
            self.server.socket,
            server_side=True,
            do_handshake_on_connect=False,  # but in the thread of the connection
        )

    def _config(self, user: object) -> object:
        return {
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }


P = TypeVar("P", bound=FatalProxy)


@contextmanager
def fatal_proxy(plane: ControlPlane, folder: Path) -> Iterator[FatalProxy]:
    with serving(FatalProxy(plane, folder)) as proxy:
        yield proxy


@contextmanager
def serving(proxy: P) -> Iterator[P]:
    thread = threading.Thread(target=proxy.server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield proxy
    proxy.server.shutdown()
    thread.join()
    proxy.server.server_close()


class _Handler(BaseHTTPRequestHandler):
    proxy: FatalProxy
    protocol_version = "HTTP/1.1"

    def _pass_on(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length) if length else None
        if status := self.proxy.refuse(self.command, self.path):
            self._refuse(status)
            return
        is_fatal = self.proxy.count(self.command, self.path)
        if is_fatal and not self.proxy.is_answered:
            self._die()
            return
        host, _, port = self.proxy.plane.url.removeprefix("https://").partition(":")
        upstream = http.client.HTTPSConnection(host, int(port), context=self.proxy.context)
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_BY_HOP}
            headers.setdefault("Authorization", f"Bearer {self.proxy.plane.token}")
            upstream.request(self.command, self.path, body, headers)
            answer = upstream.getresponse()
            if is_fatal:
                answer.read()
                self._die()
                return
            self._answer(answer)
        except (OSError, http.client.HTTPException):
            self.close_connection = True
        finally:
            upstream.close()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass_on  # noqa: N815 - http.server's names

    def _die(self) -> None:
        self.proxy.strike()
        self.close_connection = True

    def _refuse(self, status: int) -> None:
        body = json.dumps({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                           "message": "refused by a proxy", "code": status}).encode()  # fmt: skip
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _answer(self, answer: http.client.HTTPResponse) -> None:
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while piece := answer.read1(1 << 16):
            if self.proxy.cuts():
                self.close_connection = True
                return
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def handle(self) -> None:
        with suppress(OSError):
            super().handle()
