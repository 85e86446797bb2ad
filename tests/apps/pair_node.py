"""Ends of tests between nodes, in this process."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.adapters.host.pairs.channel import PairConnection, authenticate_as_server
from holdfast.apps.checks.config import CheckConfig
from holdfast.apps.checks.pair_server import PairServer
from holdfast.apps.listen_address import ListenAddress
from holdfast.kit.config import load_config
from holdfast.model.errors import BackendError

TOKEN = "a token that is long enough"  # noqa: S105


@contextmanager
def serving(config: Path, *, token: str = TOKEN) -> Iterator[tuple[int, list[str]]]:
    """``holdfast check serve`` on loopback. Gives its port and what it tells."""
    server = PairServer(load_config(config, CheckConfig), ListenAddress("127.0.0.1", 0), token)
    reported: list[str] = []
    over = threading.Event()
    before = threading.enumerate()
    thread = threading.Thread(target=lambda: server.serve(reported.append, is_over=over.is_set))
    thread.start()
    try:
        yield server.port, reported
    finally:
        over.set()
        thread.join()
        server.close()
        for answering in set(threading.enumerate()).difference(before):
            answering.join(10)


@contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """Something else that listens, and gives each connection to ``answer``. Gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        over = threading.Event()

        def accept() -> None:
            while not over.is_set():
                with suppress(TimeoutError):
                    connection = listener.accept()[0]
                    with connection, suppress(BackendError, OSError):
                        answer(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            thread.join()


def welcomed(then: Callable[[PairConnection], None]) -> Callable[[socket.socket], None]:
    """An end that has the token, and then does as it likes."""

    def answer(connection: socket.socket) -> None:
        channel = authenticate_as_server(connection, TOKEN)
        channel.send({"node": "other"})
        then(channel)

    return answer
