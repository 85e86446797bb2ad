"""The part of a kubelet that the API server calls: logs of pods, and commands in them.

``FakeKubelets`` plays what kubelets do by themselves. One ``PodServer`` answers for all nodes that
are registered with it, so that ``kubectl logs`` and clients of the API work as on a real cluster.
Commands are run over WebSockets of the protocol ``v4.channel.k8s.io`` only: without input, their
output is made up; on a terminal, a real program runs on a real terminal.
"""

import base64
import hashlib
import select
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

from tests.engines.control_plane import ControlPlane
from tests.engines.fake_terminal import FakeTerminal, ended, frames

_HOST: Final = "127.0.0.1"
_POLL_S: Final = 0.02
_WEBSOCKET: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455


@dataclass
class _Log:
    """What a pod has printed: lines, each with the nanoseconds since the epoch before it."""

    lines: list[tuple[int, str]] = field(default_factory=list)


Command = Callable[[str, Sequence[str]], tuple[str, str, int]]
"""What happens when a command is run: from the pod's name and the command to its standard
output, standard error and exit code."""

Program = Callable[[str, Sequence[str]], Sequence[str]]
"""What runs on a terminal: from the pod's name and the command to a command of this machine."""


class PodServer:
    """Serves the logs of pods to the API server of a control plane; a context manager.

    Attributes:
        ignores_requests: it fails to read logs, like a kubelet without its runtime.
        run: runs commands; there is no program in any pod until it is replaced.
        program: finds what runs on a terminal.

    """

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._logs: defaultdict[str, _Log] = defaultdict(_Log)
        self._over = threading.Event()
        self._broken = 0
        self.ignores_requests = False
        self.run: Command = lambda _, command: ("", f"{command[0]}: not found", 127)
        self.program: Program = lambda _, command: command
        self._terminals: list[FakeTerminal] = []
        self._server = _Server((_HOST, 0), self)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(plane.certificate, plane.certificate.with_suffix(".key"))
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_POLL_S,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def serve(self, *nodes: str) -> None:
        """The API server finds the logs of pods on these nodes here."""
        endpoint = {"kubeletEndpoint": {"Port": self._server.server_address[1]}}
        addresses = [{"type": "InternalIP", "address": _HOST}]
        status = {"addresses": addresses, "daemonEndpoints": endpoint}
        for node in nodes:
            self._plane.request("PATCH", f"/api/v1/nodes/{node}/status", {"status": status})

    def write_lines(self, pod: str, *lines: str, namespace: str = "default") -> None:
        """The pod prints lines."""
        log = self._logs[self.uid_of(namespace, pod)]
        for line in lines:
            log.lines.append((time.time_ns(), line))

    def rotate(self, pod: str, namespace: str = "default") -> None:
        """The log of a pod is rotated, and its old part is gone; who follows it reads anew."""
        self._logs[self.uid_of(namespace, pod)] = _Log()
        self.break_streams()

    def break_streams(self) -> None:
        """Logs that are followed end at once, as when a kubelet is restarted."""
        self._broken += 1

    def attend(self, pod: str, command: Sequence[str], connection: ssl.SSLSocket) -> None:
        """Run a command on a terminal until it ends, or the other side is gone."""
        terminal = FakeTerminal(connection)
        self._terminals.append(terminal)
        terminal.run(self.program(pod, command))

    def break_terminals(self) -> None:
        """Connections to terminals break, as when a node is lost."""
        for terminal in self._terminals:
            terminal.hang_up()

    def uid_of(self, namespace: str, pod: str) -> str:
        """Another pod of the same name has another log."""
        found = self._plane.request("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}")
        return str(found["metadata"]["uid"])

    def answer(self, uid: str, *, since: datetime | None, follow: bool) -> Iterator[str]:
        """The lines of a log as they come, with their stamps; empty text while none does."""
        if self.ignores_requests:
            yield "unable to retrieve container logs\n"
            return
        log, broken = self._logs[uid], self._broken
        begin = int(since.timestamp()) * 10**9 if since is not None else 0
        sent = 0
        while True:
            known = log.lines[sent:]
            sent += len(known)
            yield "".join(f"{_stamp(at)} {line}\n" for at, line in known if at >= begin)
            if not follow or self._over.is_set() or broken != self._broken:
                return
            time.sleep(_POLL_S)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], pods: PodServer) -> None:
        super().__init__(address, _Handler)
        self.pods = pods


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        """``/containerLogs/NAMESPACE/POD/CONTAINER`` and ``/exec/NAMESPACE/POD/CONTAINER``."""
        url = urlsplit(self.path)
        _, what, namespace, pod, *_ = url.path.split("/")
        query = parse_qs(url.query)
        with suppress(OSError):  # the API server has hung up
            if what == "exec":
                self._exec(pod, query)
            else:
                self._log(self.server.pods.uid_of(namespace, pod), query)

    def _log(self, uid: str, query: Mapping[str, Sequence[str]]) -> None:
        since = datetime.fromisoformat(query["sinceTime"][0]) if "sinceTime" in query else None
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        follow = query.get("follow") == ["true"]
        for piece in self.server.pods.answer(uid, since=since, follow=follow):
            if piece:
                self._chunk(piece.encode())
            elif select.select([self.connection], [], [], 0)[0]:
                return
        self._chunk(b"")

    def _exec(self, pod: str, query: Mapping[str, Sequence[str]]) -> None:
        if "*/*" not in self.headers.get("Accept", "*/*"):  # as the kubelet's route for exec
            self.send_error(406)
            return
        self._upgrade()
        if "tty" in query:  # the API server writes 1 for true
            self.server.pods.attend(pod, query["command"], self.connection)
        else:
            self._run(pod, query["command"])

    def _upgrade(self) -> None:
        key = self.headers["Sec-WebSocket-Key"] + _WEBSOCKET
        accept = hashlib.sha1(key.encode(), usedforsecurity=False).digest()
        self.send_response(101)
        self.send_header("Connection", "Upgrade")
        self.send_header("Upgrade", "websocket")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(accept).decode())
        self.send_header("Sec-WebSocket-Protocol", "v4.channel.k8s.io")
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True

    def _run(self, pod: str, command: Sequence[str]) -> None:
        output, errors, code = self.server.pods.run(pod, command)
        for channel, content in ((1, output.encode()), (2, errors.encode())):
            self.wfile.write(frames(channel, content))
        self.wfile.write(ended(code))

    def _chunk(self, piece: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    def log_message(self, *_: Any) -> None:
        """Quiet."""


def _stamp(at_ns: int) -> str:
    """As container runtimes write it."""
    second, nanosecond = divmod(at_ns, 10**9)
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}.{nanosecond:09d}Z"
