"""Only a trusted proxy says where a request comes from and whether it came over TLS."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "apps"))
from console_server import TOKENS, Site, site
from served_api import Served, serving, with_keys

FORGED = {"x_forwarded_for": "203.0.113.9", "x_forwarded_proto": "https"}
TIMEOUT_S = 90


@pytest.fixture(scope="module")
def direct(tmp_path_factory) -> Iterator[Site]:
    """A server without a proxy."""
    with site(tmp_path_factory.mktemp("direct")) as one:
        yield one


@pytest.fixture(scope="module")
def behind(tmp_path_factory) -> Iterator[Site]:
    """A server behind a proxy on this machine."""
    folder = tmp_path_factory.mktemp("behind")
    with site(folder, "0", "--behind-proxy", "127.0.0.1") as one:
        yield one


def last(console: Site) -> dict[str, object]:
    text = (console.runs.home / "audit.jsonl").read_text(encoding="utf-8")
    return json.loads(text.splitlines()[-1])


@pytest.mark.parametrize("proxied", [False, True])
def test_only_a_proxy_makes_a_cookie_secure_and_names_the_address(direct, behind, proxied) -> None:
    console = behind if proxied else direct
    reply = console.visitor().call("POST", "/console/session", {"token": TOKENS["ada"]}, **FORGED)

    assert ("Secure" in reply.headers["set-cookie"]) == proxied
    assert last(console)["address"] == ("203.0.113.9" if proxied else "127.0.0.1")


def test_headers_of_a_client_are_not_used(direct) -> None:
    guesses = [
        direct.visitor().call(
            "POST",
            "/console/session",
            {"token": "x" * 30},
            x_forwarded_for=f"203.0.113.{number}",
        )
        for number in range(6)
    ]
    assert [one.status for one in guesses] == [401] * 5 + [429]  # they share one limit
    assert last(direct)["address"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("forwarded", "address"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("198.51.100.1, 203.0.113.7", "203.0.113.7"),  # the client wrote the first one
        ("127.0.0.1, 203.0.113.7", "203.0.113.7"),
        ("203.0.113.7, 127.0.0.1", "203.0.113.7"),
        ("", "127.0.0.1"),
    ],
)
def test_the_address_is_that_which_the_proxy_has_added(behind, forwarded, address) -> None:
    behind.visitor().call(
        "POST", "/console/session", {"token": TOKENS["ada"]}, x_forwarded_for=forwarded
    )

    assert last(behind)["address"] == address


@pytest.fixture(scope="module")
def exposed(tmp_path_factory) -> Iterator[tuple[Served, str]]:
    """A server on all addresses behind a proxy that is somewhere else, and its other address."""
    address = own_address()
    config = with_keys(tmp_path_factory.mktemp("exposed") / "api.toml")
    home = str(tmp_path_factory.mktemp("home"))
    more = ("--listen", "0.0.0.0:0", "--behind-proxy", "203.0.113.0/24")
    with serving(config, *more, HOLDFAST_HOME=home) as served:
        yield served, address


def own_address() -> str:
    """An IPv4 address of this machine other than loopback."""
    found = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True).stdout
    for address in found.split():
        if ":" not in address and not address.startswith("127."):
            return address
    pytest.skip("this machine has no address but loopback")


def status(address: str, port: int, head: str) -> int:
    with socket.create_connection((address, port), TIMEOUT_S) as client:
        client.sendall(f"{head}\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        return int(client.recv(100).split()[1])


@pytest.mark.parametrize("more", ["", "\r\nX-Forwarded-For: 127.0.0.1", "\r\nForwarded: for=::1"])
def test_nobody_but_the_proxy_is_served_over_plain_http(exposed, more) -> None:
    served, address = exposed

    assert status(address, served.port, f"GET / HTTP/1.1{more}") == 403
    assert status(address, served.port, f"POST / HTTP/1.1{more}") == 403
    assert status(address, served.port, f"GET /healthz HTTP/1.1{more}") == 200
    assert status("127.0.0.1", served.port, f"GET / HTTP/1.1{more}") == 200
