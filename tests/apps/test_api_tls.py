"""``holdfast api`` with a certificate, which may be renewed without a restart."""

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from served_api import Served, holdfast, rejected, serving, with_keys
from tls_files import write_certificate

from holdfast.apps.exit_codes import ExitCode

DEADLINE_S = 90.0


def tls(folder: Path) -> str:
    """A table comes after all plain keys, and before those of the tests."""
    return f'[tls]\ncertificate = "{folder / "tls.crt"}"\nkey = "{folder / "tls.key"}"\n'


@pytest.fixture
def served(tmp_path) -> Iterator[Served]:
    write_certificate(tmp_path)
    with serving(with_keys(tmp_path / "api.toml", "max_connections = 8", tls(tmp_path))) as served:
        yield served


def presented(served: Served) -> str:
    """The certificate that the server presents."""
    return ssl.get_server_certificate(("127.0.0.1", served.port), timeout=DEADLINE_S)


def handshake(served: Served, authority: Path) -> str:
    """The version of TLS that a client which trusts ``authority`` agrees on."""
    context = ssl.create_default_context(cafile=str(authority))
    with (
        socket.create_connection(("127.0.0.1", served.port), DEADLINE_S) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as client,
    ):
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 200 ")
        return client.version() or ""


def test_a_client_calls_over_tls(served, monkeypatch) -> None:
    certificate = served.config.parent / "tls.crt"
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))

    assert served.url.startswith("https://127.0.0.1:")
    assert served.client().list_clusters()["ClusterSummaries"] == []
    assert handshake(served, certificate) == "TLSv1.3"
    assert f"console: {served.url}/" in served.said()


def test_the_command_line_uses_tls_if_the_configuration_has_it(served, monkeypatch) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(served.config.parent / "tls.crt"))
    text = served.config.read_text(encoding="utf-8")
    config = served.config.with_name("of-client.toml")
    config.touch(0o600)
    config.write_text(f"listen = {served.port}\n{text}", encoding="utf-8")

    ended = holdfast("clusters", "list", "--config", str(config))

    assert ended.returncode == ExitCode.OK, ended.stderr


@pytest.mark.attack
def test_without_tls_nothing_is_answered(served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), DEADLINE_S) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")

        assert b"HTTP/1.1" not in client.recv(100)


def test_a_renewed_certificate_is_used_and_a_broken_one_is_not(served) -> None:
    folder = served.config.parent
    first = presented(served)
    (folder / "tls.key").write_text("no key", encoding="utf-8")
    deadline = time.monotonic() + DEADLINE_S
    while "the previous certificate is used" not in served.said():
        assert presented(served) == first
        assert time.monotonic() < deadline
        time.sleep(0.1)
    certificate, _ = write_certificate(folder, "two")
    while presented(served) == first:
        assert time.monotonic() < deadline
        time.sleep(0.1)

    assert handshake(served, certificate) == "TLSv1.3"
    assert served.said().count("the previous certificate is used") == 1
    assert served.said().count("was renewed") == 1


@pytest.mark.attack
def test_clients_that_never_begin_tls_keep_nobody_out(served) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            client = socket.create_connection(("127.0.0.1", served.port), DEADLINE_S)
            stack.enter_context(client)

        assert handshake(served, served.config.parent / "tls.crt") == "TLSv1.3"
        open_files = len(list(Path(f"/proc/{served.process.pid}/fd").iterdir()))

    assert open_files < 60
    assert "handshake" not in served.said()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda folder: (folder / "tls.key").chmod(0o644), "others may read or change the key"),
        (lambda folder: (folder / "tls.key").unlink(), "No such file or directory"),
        (lambda folder: (folder / "tls.crt").write_text("x"), "are not a certificate and its key"),
        (lambda folder: (folder / "tls.key").write_text("x"), "are not a certificate and its key"),
    ],
)
def test_files_that_cannot_be_used_are_reported(tmp_path, monkeypatch, change, said) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    write_certificate(tmp_path)
    change(tmp_path)

    ended = rejected("api", "--config", str(with_keys(tmp_path / "api.toml", tls(tmp_path))))

    assert ended.returncode == ExitCode.BAD_INPUT
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.attack
@pytest.mark.parametrize("listen", [":0", "[::]:0", "192.0.2.1:8470"])
def test_plain_http_beyond_this_machine_is_refused(tmp_path, monkeypatch, listen) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    config = with_keys(tmp_path / "api.toml")

    ended = rejected("api", "--config", str(config), "--listen", listen)

    assert ended.returncode == ExitCode.BAD_INPUT
    assert "is reachable from other machines" in ended.stderr
    assert "--behind-proxy" in ended.stderr


@pytest.mark.parametrize("network", ["0.0.0.0/0", "::/0", "10.0.0.1/8", "proxy", "*", ""])
def test_a_proxy_is_named_by_its_address(tmp_path, network) -> None:
    config = with_keys(tmp_path / "api.toml")

    ended = rejected("api", "--config", str(config), "--behind-proxy", network)

    assert ended.returncode == ExitCode.BAD_INPUT
    assert f"--behind-proxy: {network!r}" in ended.stderr
