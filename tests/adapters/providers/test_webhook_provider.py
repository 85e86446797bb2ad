import hashlib
import hmac
import json
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.providers.settings import ProviderConfig, ProviderName, WebhookSettings
from holdfast.adapters.providers.table import build_provider
from holdfast.kit.webhooks import pause_of
from holdfast.model.errors import ConfigError, NodeGone, ProviderError, RetryLater
from holdfast.model.nodes import Phase
from tests.ports.builders import NOW, a_node
from tests.ports.fakes import FakeClock

SECRET = "a secret of some length"  # noqa: S105
NODE = a_node(Phase.REPLACING, provider_id="rack-3/7", addresses=("10.0.0.7",))
SECOND = timedelta(seconds=1)
HALF_A_MINUTE = timedelta(seconds=30)


class WebhookClient:
    """Notes orders and answers as it is told."""

    def __init__(self, *, tls: tuple[Path, Path] | None = None) -> None:
        self.orders: list[tuple[str, dict[str, str], bytes]] = []
        self.status = 202
        self.headers: dict[str, str] = {}
        self.body = b""
        self.gate = threading.Event()
        self.gate.set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._server.block_on_close = False
        scheme = "http"
        if tls is not None:
            scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}/orders?site=1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.orders.append((self.path, dict(self.headers), body))
                receiver.gate.wait(10)
                self.send_response(receiver.status)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(receiver.body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def close(self) -> None:
        self.gate.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[WebhookClient]:
    one = WebhookClient()
    yield one
    one.close()


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_WEBHOOK_SECRET", SECRET)


def build(url: str, **settings: Any) -> Any:
    config = ProviderConfig(
        replace=ProviderName.WEBHOOK, webhook=WebhookSettings(url=url, **settings)
    )
    return build_provider(config, FakeClock())


def test_an_order_says_what_is_to_be_done_to_which_machine_and_why(receiver: WebhookClient) -> None:
    build(receiver.url).replace(NODE, "incident-1/1")

    ((path, headers, body),) = receiver.orders
    assert path == "/orders?site=1"
    assert (headers["Content-Type"], headers["Idempotency-Key"]) == (
        "application/json",
        "incident-1/1",
    )
    assert json.loads(body) == {
        "action": "replace",
        "node": "node-1",
        "provider_id": "rack-3/7",
        "addresses": ["10.0.0.7"],
        "boot_id": "boot-1",
        "token": "incident-1/1",
        "incident": "incident-1",
        "reason": "NvidiaGpuXidErrorPendingReplacement",
    }


def test_a_reboot_says_so(receiver: WebhookClient) -> None:
    build(receiver.url).reboot(a_node(), "t/1")

    assert json.loads(receiver.orders[0][2])["action"] == "reboot"


def test_an_order_is_signed_over_its_time_and_its_body(receiver: WebhookClient) -> None:
    before = datetime.now(UTC)

    build(receiver.url).replace(NODE, "t/1")

    ((_, headers, body),) = receiver.orders
    fields = dict(part.split("=", 1) for part in headers["Holdfast-Signature"].split(","))
    expected = hmac.new(SECRET.encode(), f"{fields['t']}.".encode() + body, hashlib.sha256)
    assert fields == {"t": fields["t"], "v1": expected.hexdigest()}
    assert int(before.timestamp()) <= int(fields["t"]) <= datetime.now(UTC).timestamp()
    assert SECRET not in str(headers)


def test_a_secret_in_a_file_may_change_while_holdfast_runs(
    receiver: WebhookClient, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text("first\n")
    provider = build(receiver.url, secret_file=file)
    file.write_text("second\n")

    provider.replace(NODE, "t/1")

    ((_, headers, body),) = receiver.orders
    seconds, signed = headers["Holdfast-Signature"].removeprefix("t=").split(",v1=")
    assert signed == hmac.digest(b"second", f"{seconds}.".encode() + body, "sha256").hex()


def test_a_secret_that_went_missing_is_reported_and_nothing_is_posted(
    receiver: WebhookClient, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text("first\n")
    provider = build(receiver.url, secret_file=file)
    file.unlink()

    with pytest.raises(ProviderError, match="the secret cannot be read"):
        provider.replace(NODE, "t/1")

    assert receiver.orders == []


def test_nothing_starts_without_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    with pytest.raises(ConfigError, match=r"provider\.webhook: the secret cannot be read"):
        build("https://example.org", secret_file=file)

    file.write_text(" \n")
    with pytest.raises(ConfigError, match=r"the secret is empty: put one into .*secret"):
        build("https://example.org", secret_file=file)

    monkeypatch.delenv("HOLDFAST_WEBHOOK_SECRET")
    with pytest.raises(ConfigError, match=r"the secret is empty: put one into \$HOLDFAST_WEB"):
        build("https://example.org")


@pytest.mark.parametrize("status", [200, 201, 202, 204, 409])
def test_an_order_is_accepted_also_when_it_was_seen_before(
    receiver: WebhookClient, status: int
) -> None:
    receiver.status = status

    build(receiver.url).replace(NODE, "t/1")


def test_a_machine_that_is_gone_is_reported(receiver: WebhookClient) -> None:
    receiver.status, receiver.body = 410, b"sold"

    with pytest.raises(
        NodeGone, match=r"127\.0\.0\.1 returned HTTP status 410 for the order to reboot.*: sold"
    ):
        build(receiver.url).reboot(NODE, "t/1")


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("headers", "after"),
    [
        ({"Retry-After": "7"}, 7 * SECOND),
        ({}, HALF_A_MINUTE),
        ({"Retry-After": "x"}, HALF_A_MINUTE),
    ],
)
def test_a_busy_receiver_says_when_to_come_again(
    receiver: WebhookClient, status: int, headers: dict[str, str], after: timedelta
) -> None:
    receiver.status, receiver.headers, receiver.body = status, headers, b"busy"

    with pytest.raises(RetryLater, match="busy") as caught:
        build(receiver.url).replace(NODE, "t/1")

    assert caught.value.after == after


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_other_answers_are_refusals_reported_with_what_the_receiver_reported(
    receiver: WebhookClient, status: int
) -> None:
    receiver.status, receiver.body = status, b"no such \xff rack\n" + b"x" * 5000

    with pytest.raises(ProviderError) as caught:
        build(receiver.url).replace(NODE, "t/1")

    assert type(caught.value) is ProviderError
    assert f"returned HTTP status {status} for the order to replace node-1: no such" in str(
        caught.value
    )
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("status", [500, 502, 504])
def test_a_receiver_that_fails_may_have_carried_the_order_out(
    receiver: WebhookClient, status: int
) -> None:
    receiver.status = status

    with pytest.raises(RetryLater) as caught:
        build(receiver.url).replace(NODE, "t/1")

    assert caught.value.is_outcome_unknown


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_refused(receiver: WebhookClient, status: int) -> None:
    receiver.status, receiver.headers = status, {"Location": receiver.url}

    with pytest.raises(ProviderError, match="redirects are refused"):
        build(receiver.url).replace(NODE, "t/1")

    assert len(receiver.orders) == 1


def test_a_receiver_that_hangs_is_left_after_the_timeout(receiver: WebhookClient) -> None:
    receiver.gate.clear()

    with pytest.raises(RetryLater, match="does not respond: timed out") as caught:
        build(receiver.url, timeout=timedelta(milliseconds=100)).replace(NODE, "t/1")

    assert caught.value.is_outcome_unknown


def test_a_dead_receiver_is_tried_again_later() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"

        with pytest.raises(RetryLater, match=r"127\.0\.0\.1 does not respond") as caught:
            build(url).replace(NODE, "t/1")

    assert not caught.value.is_outcome_unknown


def test_who_speaks_no_http_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(RetryLater, match="does not respond"):
            build(f"http://127.0.0.1:{port}").replace(NODE, "t/1")
        thread.join()


def test_a_token_of_any_kind_makes_a_header(receiver: WebhookClient) -> None:
    build(receiver.url).replace(NODE, "a\r\nX: y/1")

    ((_, headers, body),) = receiver.orders
    assert headers["Idempotency-Key"] == "a%0D%0AX%3A%20y/1"
    assert json.loads(body) | {"token": "a\r\nX: y/1"} == json.loads(body)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "receiver")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, private = tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate, private


@pytest.fixture
def tls_receiver(certificate: tuple[Path, Path]) -> Iterator[WebhookClient]:
    one = WebhookClient(tls=certificate)
    yield one
    one.close()


def test_orders_go_over_tls(tls_receiver: WebhookClient, certificate: tuple[Path, Path]) -> None:
    build(tls_receiver.url, ca_file=certificate[0]).replace(NODE, "t/1")

    assert len(tls_receiver.orders) == 1


def test_a_receiver_with_a_certificate_of_nobody_gets_no_order(tls_receiver: WebhookClient) -> None:
    with pytest.raises(ProviderError, match=r"an untrusted certificate.*ca_file") as caught:
        build(tls_receiver.url).replace(NODE, "t/1")

    assert not isinstance(caught.value, RetryLater)
    assert tls_receiver.orders == []


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_certificates_that_cannot_be_read_are_reported_at_the_start(
    tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)

    with pytest.raises(ConfigError, match=r"provider\.webhook\.ca_file: .*ca\.pem"):
        build("https://example.org", ca_file=file)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", timedelta(0)),
        ("120", timedelta(minutes=2)),
        ("3600", timedelta(hours=1)),
        ("3601", timedelta(hours=1)),
        ("9" * 400, timedelta(hours=1)),
        (format_datetime(NOW + 90 * SECOND, usegmt=True), 90 * SECOND),
        (format_datetime(NOW - SECOND, usegmt=True), timedelta(0)),
        ("Fri, 31 Dec 9999 23:59:59 GMT", timedelta(hours=1)),
        ("Thu, 01 Jan 2026 12:00:30 -0000", 30 * SECOND),
        ("-5", HALF_A_MINUTE),
        ("", HALF_A_MINUTE),
    ],
)
def test_retry_after_is_read_in_both_forms_and_bounded(text: str, expected: timedelta) -> None:
    assert pause_of(text, NOW, timedelta(seconds=30)) == expected


@given(st.text(max_size=40))
def test_whatever_retry_after_says_gives_a_pause(text: str) -> None:
    assert timedelta(0) <= pause_of(text, NOW, timedelta(seconds=30)) <= timedelta(hours=1)


def test_the_secret_is_in_no_message(receiver: WebhookClient) -> None:
    reported: list[str] = []
    answers: list[Callable[[], None]] = [
        lambda: setattr(receiver, "status", 500),
        lambda: setattr(receiver, "status", 302),
        lambda: setattr(receiver, "status", 503),
    ]
    for answer in answers:
        answer()
        with pytest.raises(ProviderError) as caught:
            build(receiver.url).replace(NODE, "t/1")
        reported.append(repr(caught.value))

    assert not any(os.environ["HOLDFAST_WEBHOOK_SECRET"] in one for one in reported)
