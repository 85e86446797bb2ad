"""No answer of a webhook's receiver ends the controller, or makes it wait or remember much."""

import socket
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.adapters.providers.settings import ProviderConfig, ProviderName, WebhookSettings
from holdfast.adapters.providers.table import build_provider
from holdfast.model.errors import ProviderError, RetryLater
from holdfast.model.nodes import Phase
from holdfast.ports.provider import NodeProvider
from tests.ports.builders import a_node
from tests.ports.fakes import FakeClock

NODE = a_node(Phase.REPLACING, provider_id="rack-3/7", addresses=("10.0.0.7",))
HEADS = [
    b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 429 Busy\r\nRetry-After: 99999999999999999999\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 503 Away\r\nRetry-After: Mon, 01 Jan 9999 00:00:00 -2359\r\n\r\n",
    b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffff\r\n",
    b"HTTP/1.1 307 Elsewhere\r\nLocation: http://127.0.0.1:1/\r\n\r\n",
    b"HTTP/1.1 500 Failed\r\n\r\n",
]
TOKENS = [
    b"", b"\0", b"\r", b"\n", b"\xff\xfe", b" ", b":", b"-1", b"1e9", b"9" * 5000,
    b"x: y\r\n" * 200,
    b"a" * 70_000, b"HTTP/9.9 999 \r\n", b"HTTP/1.1 100 Continue\r\n\r\n" * 50, b"0\r\n\r\n",
]  # fmt: skip


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """Valid answers with some parts removed or replaced."""
    data = draw(st.sampled_from(HEADS))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.sampled_from([0, 1, 4, 40])))
        data = data[:start] + draw(st.sampled_from(TOKENS) | st.binary(max_size=8)) + data[end:]
    return data


class Receiver:
    """Sends ``answer`` to each client, whatever it requests, and closes the connection."""

    def __init__(self) -> None:
        self.answer = b""
        self.pause_s = 0.0
        """Before each byte of the answer."""

        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client:
                try:
                    client.recv(65_536)
                    for part in self._parts():
                        client.sendall(part)
                        time.sleep(self.pause_s)
                except OSError:
                    continue

    def _parts(self) -> list[bytes]:
        if not self.pause_s:
            return [self.answer]
        return [self.answer[at : at + 1] for at in range(len(self.answer))]

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    one = Receiver()
    yield one
    one.close()


def provider_of(receiver: Receiver, **changes: Any) -> NodeProvider:
    webhook = WebhookSettings(url=receiver.url, secret_env="PATH", **changes)  # noqa: S106
    return build_provider(
        ProviderConfig(replace=ProviderName.WEBHOOK, webhook=webhook), FakeClock()
    )


@settings(max_examples=examples(300), deadline=None)
@given(answer=answers())
def test_an_order_ends_as_documented_whatever_is_answered(
    receiver: Receiver, answer: bytes
) -> None:
    receiver.answer = answer
    try:
        provider_of(receiver).replace(NODE, "token")
    except ProviderError as error:  # NodeGone and RetryLater, too
        failure = error
    else:
        return
    assert len(str(failure)) < 1000
    assert str(failure).isprintable()
    after = failure.after if isinstance(failure, RetryLater) else timedelta(0)
    assert timedelta(0) <= after <= timedelta(hours=1)


def test_a_receiver_that_sends_byte_by_byte_delays_an_order_by_the_timeout(
    receiver: Receiver,
) -> None:
    receiver.answer, receiver.pause_s = HEADS[0] + b"x" * 10_000, 0.1
    with pytest.raises(RetryLater, match="does not respond") as raised:
        provider_of(receiver, timeout=timedelta(seconds=1)).replace(NODE, "token")
    assert raised.value.is_outcome_unknown
    receiver.pause_s = 0.0
