"""A coordinator makes the orders of all launchers only if something has changed."""

import socket
from collections.abc import Collection, Iterator
from datetime import timedelta

import pytest

from holdfast.adapters.launch.server import LauncherServer
from holdfast.apps.launch.coordinator import Coordinator
from holdfast.decisions.launch_events import Joined, Lost, Member, Stopped
from holdfast.decisions.launch_orders import Order
from holdfast.decisions.launch_runs import RunName
from holdfast.decisions.launch_state import Phase, RoundSettings


@pytest.fixture
def server() -> Iterator[LauncherServer]:
    listener = socket.create_server(("127.0.0.1", 0))
    made = LauncherServer(listener, b"0123456789abcdef", 2.0, lambda _: None, RunName())
    yield made
    made.close()


def member(name: str) -> Member:
    return Member(name=name, address="", port=1, slots=1)


def test_the_same_objects_are_asked_for_orders_once(server: LauncherServer) -> None:
    asked: list[Collection[str]] = []

    def orders_for(names: Collection[str]) -> dict[str, Order]:
        asked.append(names)
        return {}

    first, second = object(), object()
    for basis in ((first, None), (first, None), (first, second), (second, second)):
        server.send_orders(orders_for, basis)
    assert len(asked) == 3


def test_the_basis_is_new_after_an_event_and_the_same_while_ranks_run() -> None:
    coordinator = Coordinator(RoundSettings(nodes=2, fence=timedelta(0)))
    events = [
        Joined(member=member("a")),
        Joined(member=member("b")),
        Lost(launcher="b"),
        Stopped(launcher="a", round=1, port=2),
        Joined(member=member("c")),
    ]
    for event in events:
        before = coordinator.basis
        coordinator.handle(event)
        assert coordinator.basis[0] is not before[0]
        quiet = coordinator.basis
        for _ in range(3):
            coordinator.handle(None)
        if coordinator.job.phase is Phase.RUN:
            assert [*map(id, coordinator.basis)] == [*map(id, quiet)]
    assert coordinator.job.round == 2
