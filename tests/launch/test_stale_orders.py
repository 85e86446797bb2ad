"""Orders that a launcher reads after its lease has ended, as after a pause of its machine."""

import socket
import time
from collections.abc import Iterator

import pytest

from holdfast.adapters.launch.client import CoordinatorLink
from holdfast.adapters.launch.server import LauncherServer
from holdfast.decisions.launch_events import Joined, Member
from holdfast.decisions.launch_orders import Order, OrderKind
from holdfast.decisions.launch_runs import RunName

KEY, LEASE_S = b"0123456789abcdef", 1.0
MEMBER = Member(name="a", address="127.0.0.1", port=1, slots=1)
Ends = tuple[LauncherServer, CoordinatorLink]


@pytest.fixture
def ends() -> Iterator[Ends]:
    listener = socket.create_server(("127.0.0.1", 0))
    endpoint = ("127.0.0.1", listener.getsockname()[1])
    server = LauncherServer(listener, KEY, 60.0, lambda _: None, RunName())
    link = CoordinatorLink(endpoint, KEY, LEASE_S, lambda _: None, RunName())
    yield server, link
    link.close()
    server.close()


def join(server: LauncherServer, link: CoordinatorLink) -> None:
    deadline = time.monotonic() + 30
    while not link.is_connected() and time.monotonic() < deadline:
        link.advance(may_resolve=True)
        server.advance(server.readers())
    link.send(Joined(member=MEMBER))
    server.advance(server.readers())


def sent(server: LauncherServer, order: Order) -> None:
    server.send_orders(lambda names: dict.fromkeys(names, order), (order,))


@pytest.mark.parametrize("kind", OrderKind)
def test_no_order_that_is_read_after_the_end_of_the_lease_starts_ranks(
    ends: Ends, kind: OrderKind
) -> None:
    server, link = ends
    join(server, link)
    sent(server, Order(kind=kind, round=1))
    time.sleep(LEASE_S + 0.1)

    [order] = link.advance(may_resolve=False)

    assert not link.is_connected()
    assert order.kind is (OrderKind.WAIT if kind is OrderKind.RUN else kind)
    assert order.round == 1  # the next coordinator learns of it


def test_orders_are_read_while_the_lease_lasts(ends: Ends) -> None:
    server, link = ends
    join(server, link)
    sent(server, Order(kind=OrderKind.RUN, round=1))
    deadline, found = time.monotonic() + 30, list[Order]()
    while not found and time.monotonic() < deadline:
        found = link.advance(may_resolve=False)
        server.advance(server.readers())

    assert [one.kind for one in found] == [OrderKind.RUN]
