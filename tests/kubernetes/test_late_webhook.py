"""A receiver of orders that carries them out and responds too late, on a real control plane."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from controlled import installed  # noqa: F401 - a fixture
from machines import REBOOT_XID, REPLACE_XID, Fleet, a_fleet, stays
from real_cluster import Cluster, until

SECRET = {"WEBHOOK_SECRET": "secret"}
SETTINGS = """
[nodes]
drain_timeout = "20s"
max_unavailable = 1
provider_retry = "1s"
"""


class LateReceiver(ThreadingHTTPServer):
    """Carries each order out and never says so in time."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.fleet = fleet
        self.posted: list[dict[str, Any]] = []
        self.over = threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def provider(self) -> str:
        return f"""
            [provider]
            replace = "webhook"
            reboot = "webhook"
            [provider.webhook]
            url = "http://127.0.0.1:{self.server_port}/"
            secret_env = "WEBHOOK_SECRET"
            timeout = "500ms"
        """

    @property
    def tokens(self) -> set[str]:
        return {order["token"] for order in self.posted}


class _Handler(BaseHTTPRequestHandler):
    server: LateReceiver

    def do_POST(self) -> None:
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        is_new = order["token"] not in server.tokens
        server.posted.append(order)
        if is_new:
            time.sleep(1)  # the sender has hung up by now
            server.fleet._carry_out(order["action"], server.fleet.machines[order["node"]])
        server.over.wait()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def fleet(installed, cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    with a_fleet(cluster, tmp_path) as fleet:
        yield fleet


@pytest.fixture
def receiver(fleet: Fleet) -> Iterator[LateReceiver]:
    receiver = LateReceiver(fleet)
    yield receiver
    receiver.over.set()
    with suppress(OSError):
        receiver.shutdown()
        receiver.server_close()


@pytest.mark.parametrize("group", ["p5", ""])
def test_a_replacement_whose_response_was_lost_is_adopted_and_ordered_once(
    fleet: Fleet, receiver: LateReceiver, group: str
) -> None:
    fleet.start("a", "b", group=group)
    settings = f'{SETTINGS}replace_timeout = "20s"\n'
    controller = fleet.control(settings=settings, provider=receiver.provider, environment=SECRET)
    fleet.until_schedulable("a", "b")

    fleet.machines["a"].log(REPLACE_XID)
    incident = fleet.until_recovered("a")

    assert incident.successor == "spare-1"
    assert "does not respond: timed out" in controller.log
    assert ("a, b: no group label" in controller.log) is (not group)
    until(lambda: fleet.phase("spare-1") == "schedulable")
    fleet.machines["b"].log(REPLACE_XID)  # the slot of the budget is free again
    assert fleet.until_recovered("b").successor == "spare-2"
    assert len(receiver.tokens) == 2
    stays(lambda: len(receiver.tokens) == 2, 1)


def test_a_reboot_whose_response_was_lost_is_ordered_once(
    fleet: Fleet, receiver: LateReceiver
) -> None:
    fleet.start("a", "b")
    fleet.control(settings=SETTINGS, provider=receiver.provider, environment=SECRET)
    fleet.until_schedulable("a", "b")

    fleet.machines["a"].log(REBOOT_XID)
    incident = fleet.until_recovered("a")

    assert incident.remedy == "reboot"
    assert len(receiver.tokens) == 1
