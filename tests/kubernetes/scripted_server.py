"""An API server that answers what a test wrote down, well or badly, with TLS or without."""

import ipaddress
import json
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

Answer = Callable[["Handler"], None]


@dataclass(frozen=True)
class RecordedRequest:
    verb: str
    path: str
    headers: dict[str, str]
    body: bytes
    peer: tuple[str, int]

    @property
    def content(self) -> Any:
        return json.loads(self.body)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "ScriptedServer"

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        requested = RecordedRequest(
            self.command, self.path, dict(self.headers), body, self.client_address
        )
        self.server.requested.append(requested)
        answers = self.server.answers
        (answers.popleft() if answers else reply({}))(self)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

    def log_message(self, *arguments: Any) -> None:
        pass

    def raw(self, data: bytes) -> None:
        self.wfile.write(data)
        self.wfile.flush()


class ScriptedServer(ThreadingHTTPServer):
    """Answers with what is in ``answers``, in that order, then with ``{}``."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.answers: deque[Answer] = deque()
        self.requested: list[RecordedRequest] = []
        self.released = threading.Event()  # ends every answer that hangs
        self._tls = tls
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.server_port}"

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, peer = super().get_request()
        if self._tls is not None:
            connection = self._tls.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        return connection, peer

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # what tests do to connections

    def end(self) -> None:
        self.released.set()
        self.shutdown()
        self.server_close()
        self._thread.join()


def reply(content: Any, status: int = 200, **headers: str) -> Answer:
    """A whole and proper answer."""

    def answer(handler: Handler) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        for key, value in {"Content-Type": "application/json", **named}.items():
            handler.send_header(key, value)
        handler.end_headers()
        handler.raw(body)

    return answer


def refuse(code: int, reason: str = "", message: str = "", **headers: str) -> Answer:
    return reply(status_object(code, reason, message), code, **headers)


def status_object(code: int, reason: str, message: str) -> dict[str, Any]:
    return {"kind": "Status", "code": code, "reason": reason, "message": message}


def break_off(data: bytes = b"") -> Answer:
    """Send ``data`` as it is, then cut the connection."""

    def answer(handler: Handler) -> None:
        handler.raw(data)
        handler.close_connection = True

    return answer


def hang(data: bytes = b"") -> Answer:
    """Send ``data`` and nothing more."""

    def answer(handler: Handler) -> None:
        handler.raw(data)
        handler.server.released.wait()
        handler.close_connection = True

    return answer


def drip(head: bytes, data: bytes, pause_s: float) -> Answer:
    """After ``head`` one byte after another."""

    def answer(handler: Handler) -> None:
        handler.raw(head)
        for byte in data:
            handler.raw(bytes([byte]))
            if handler.server.released.wait(pause_s):
                return

    return answer


CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def events(*happened: Any, end: bool = True, cut: int = 1 << 20) -> bytes:
    """The bytes of a watch; an event may be spread over chunks of ``cut`` bytes."""
    text = b"".join(json.dumps(event).encode() + b"\n" for event in happened)
    parts = [chunk(text[at : at + cut]) for at in range(0, len(text), cut)]
    return CHUNKED + b"".join(parts) + (b"0\r\n\r\n" if end else b"")


@dataclass(frozen=True)
class Authority:
    """A certificate authority of our own, in a folder."""

    folder: Path
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def file(self) -> Path:
        return self.folder / "ca.crt"

    @classmethod
    def make(cls, folder: Path) -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "the authority")])
        certificate = (
            _builder(name, name, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        authority = cls(folder, key, certificate)
        authority.file.write_bytes(certificate.public_bytes(Encoding.PEM))
        return authority

    def issue(self, common_name: str) -> str:
        """PEM of a certificate for 127.0.0.1 and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])
        addresses = x509.SubjectAlternativeName(
            [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName(common_name)]
        )
        certificate = (
            _builder(name, self.certificate.subject, key)
            .add_extension(addresses, critical=False)
            .sign(self.key, hashes.SHA256())
        )
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return (certificate.public_bytes(Encoding.PEM) + secret).decode()

    def server_context(self, common_name: str = "kubernetes") -> ssl.SSLContext:
        """For a server that also verifies clients, if they show a certificate."""
        file = self.folder / f"{common_name}.pem"
        file.write_text(self.issue(common_name), encoding="utf-8")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        context.load_verify_locations(self.file)
        return context


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=1))
        .not_valid_after(now + timedelta(hours=1))
    )
