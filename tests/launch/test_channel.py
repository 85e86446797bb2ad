"""The connection between launchers, over real sockets."""

import socket
import time
from collections.abc import Iterator

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.adapters.launch.channel import Channel, ChannelClosed

KEY = b"0123456789abcdef"
Pair = tuple[Channel, Channel, socket.socket, socket.socket]


def connected(client_key: bytes = KEY) -> Pair:
    left, right = tcp_pair()
    client = Channel(left, client_key, is_server=False)
    return client, Channel(right, KEY, is_server=True), left, right


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        left = socket.create_connection(listener.getsockname())
        right, _ = listener.accept()
    return left, right


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = connected()
    yield made
    made[0].close()
    made[1].close()


def next_of(channel: Channel, count: int = 1) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        found += channel.receive()
        time.sleep(0.001)
    return found


def greet(client: Channel, server: Channel) -> None:
    """Exchange a message in each direction."""
    client.send({"n": 1})
    server.send({"n": 2})
    deadline = time.monotonic() + 30
    got: list[object] = []
    while len(got) < 2 and time.monotonic() < deadline:
        got += [*server.receive(), *client.receive()]
    assert sorted(str(one) for one in got) == ["{'n': 1}", "{'n': 2}"]


def test_messages_arrive_in_order_in_both_directions(pair: Pair) -> None:
    client, server, *_ = pair
    greet(client, server)
    for number in range(50):
        client.send({"number": number})

    assert [one["number"] for one in next_of(server, 50)] == list(range(50))


def exchange(client: Channel, server: Channel) -> None:
    for _ in range(1000):
        client.receive()
        client.send({})
        server.receive()
        time.sleep(0.001)


def test_another_key_is_refused() -> None:
    client, server, left, right = connected(b"another key of 16")
    with left, right:
        client.flush()
        server.flush()
        with pytest.raises(ChannelClosed, match="wrong key"):
            exchange(client, server)


def line_of(channel: Channel, text: bytes) -> bytes:
    return channel._signed(text)


@pytest.mark.parametrize("attack", ["repeated", "reordered", "changed", "reflected"])
def test_a_message_counts_once_in_its_place_and_direction(pair: Pair, attack: str) -> None:
    client, server, left, _ = pair
    greet(client, server)
    first, second = line_of(client, b'{"a":1}'), line_of(client, b'{"b":2}')
    forged = {
        "repeated": first + first,
        "reordered": second + first,
        "changed": first.replace(b"1}", b"2}"),
        "reflected": line_of(server, b'{"a":1}'),
    }[attack]
    left.settimeout(30)
    left.sendall(forged)

    with pytest.raises(ChannelClosed, match="wrong key"):
        next_of(server, 3)


@pytest.mark.parametrize("text", [b"[1]", b"{", b"[" * 10_000, b"1", b'"text"', b"\xff"])
def test_an_authentic_message_that_is_no_object_ends_the_connection(
    pair: Pair, text: bytes
) -> None:
    client, server, left, _ = pair
    greet(client, server)
    left.settimeout(30)
    left.sendall(line_of(client, text))

    with pytest.raises(ChannelClosed, match="invalid message"):
        next_of(server)


def test_a_line_without_end_is_bounded(pair: Pair) -> None:
    client, server, left, _ = pair
    greet(client, server)
    left.settimeout(30)
    left.sendall(b"x" * 70_000)

    with pytest.raises(ChannelClosed, match="too long"):
        next_of(server)


def receive_to_the_end(channel: Channel) -> None:
    while True:
        assert channel.receive() == []


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(max_size=400))
def test_no_bytes_of_a_stranger_become_a_message(data: bytes) -> None:
    left, right = tcp_pair()
    server = Channel(right, KEY, is_server=True)
    with left, right:
        left.sendall(data + b"\n")
        left.shutdown(socket.SHUT_WR)
        with pytest.raises(ChannelClosed):
            receive_to_the_end(server)
