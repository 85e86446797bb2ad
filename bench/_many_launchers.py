"""Connections of many simulated launchers to a coordinator, in one process.

Arguments: port, key, number. Each joins and waits for a round; then the last one reports a failure.
Prints the seconds from that until the last one has its order to stop.
"""

import resource
import select
import sys
import time

from holdfast.adapters.launch.client import CoordinatorLink
from holdfast.decisions.exit_meanings import ExitMeaning
from holdfast.decisions.launch_events import Failed, Joined, Member
from holdfast.decisions.launch_orders import Order, OrderKind
from holdfast.decisions.launch_runs import RunName

_HEARTBEAT_S = 1.0


class Launchers:
    """All connections, and the last order of each."""

    def __init__(self, port: int, key: bytes, count: int, lease_s: float) -> None:
        self._links = [
            CoordinatorLink(("127.0.0.1", port), key, lease_s, lambda _: None, RunName())
            for _ in range(count)
        ]
        self._joined: set[int] = set()
        self._orders: dict[int, Order] = {}

    def wait_for(self, kind: OrderKind) -> None:
        """Until all launchers have an order of this kind."""
        heartbeat_at = 0.0
        while sum(order.kind is kind for order in self._orders.values()) < len(self._links):
            now = time.monotonic()
            if now >= heartbeat_at:
                for number in range(len(self._links)):
                    self._advance(number)
                heartbeat_at = now + _HEARTBEAT_S
            for number in self._ready():
                self._advance(number)

    def fail(self) -> None:
        """Report the failure of the last one."""
        self._links[-1].send(
            Failed(
                launcher=_name(len(self._links) - 1), round=1, rank=len(self._links) - 1, code=1,
                meaning=ExitMeaning.CRASH, text="exit code 1",
            )
        )  # fmt: skip

    def _ready(self) -> list[int]:
        poll, numbers = select.poll(), {}
        for number, link in enumerate(self._links):
            for descriptor in link.readers():
                numbers[descriptor] = number
                poll.register(descriptor, select.POLLIN)
        return [numbers[one] for one, _ in poll.poll(1000 * _HEARTBEAT_S)]

    def _advance(self, number: int) -> None:
        link = self._links[number]
        for order in link.advance(may_resolve=True):
            self._orders[number] = order
        if number not in self._joined and link.is_connected():
            self._joined.add(number)
            member = Member(name=_name(number), address="127.0.0.1", port=1, slots=8, order=number)
            link.send(Joined(member=member))


def _name(number: int) -> str:
    return f"node-{number}"


def main() -> None:
    port, key, count, lease_s = sys.argv[1:]
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    launchers = Launchers(int(port), key.encode(), int(count), float(lease_s))
    launchers.wait_for(OrderKind.RUN)
    at = time.monotonic()
    launchers.fail()
    launchers.wait_for(OrderKind.STOP)
    print(time.monotonic() - at)


if __name__ == "__main__":
    main()
