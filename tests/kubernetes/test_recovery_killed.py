"""A controller that is killed at any write of a repair: the next one goes on, and nothing is done
twice."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from controlled import installed  # noqa: F401 - a fixture
from effort import positions, variants
from fatal_proxy import FatalProxy, fatal_proxy
from machines import REBOOT_XID, REPLACE_XID, Fleet, a_fleet
from real_cluster import Cluster, until

SETTINGS = '[nodes]\nmax_unavailable = 1\nprovider_retry = "1s"\n'
MOST_WRITES = 30


@pytest.fixture
def fleet(installed, cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    with a_fleet(cluster, tmp_path) as fleet:
        yield fleet


@pytest.fixture
def proxy(fleet: Fleet, tmp_path: Path) -> Iterator[FatalProxy]:
    with fatal_proxy(fleet.cluster.plane, tmp_path) as proxy:
        yield proxy


def recovers(fleet: Fleet, proxy: FatalProxy, name: str, line: str, fatal: int) -> bool:
    """Whether the controller was killed on the way; the node has recovered either way."""
    proxy.fatal = 0
    controller = fleet.control(settings=SETTINGS, kubeconfig=proxy.kubeconfig)
    fleet.until_schedulable(name)
    proxy.writes.clear()
    proxy.fatal = fatal
    proxy.strike = controller.process.kill
    ordered = len(fleet.orders)
    fleet.machines[name].log(line)
    until(lambda: controller.process.poll() is not None or is_over(fleet, name))
    was_killed = controller.process.poll() is not None
    if was_killed:
        controller = fleet.control(settings=SETTINGS)
        until(lambda: is_over(fleet, name))
    controller.end()
    tokens = {order["token"] for order in fleet.orders[ordered:]}
    assert len(tokens) == 1, "one fault, one order"
    assert len([one for one in fleet.incidents if one.node == name]) == 1
    return was_killed


def is_over(fleet: Fleet, name: str) -> bool:
    """Whether the incident of a node has ended, and the node or its successor takes work."""
    ended = [one for one in fleet.incidents if one.node == name and one.released_at]
    return bool(ended) and fleet.phase(ended[0].successor or name) == "schedulable"


@pytest.mark.parametrize(
    ("line", "is_answered"),
    variants(
        [
            pytest.param(REPLACE_XID, False, id="before-replace"),
            pytest.param(REBOOT_XID, False, id="before-reboot"),
            pytest.param(REPLACE_XID, True, id="after-replace"),
            pytest.param(REBOOT_XID, True, id="after-reboot"),
        ],
        each=3,
    ),
)
def test_a_controller_killed_at_any_write(
    fleet: Fleet, proxy: FatalProxy, line: str, *, is_answered: bool
) -> None:
    proxy.is_answered = is_answered
    fleet.start("keeper")
    for fatal in positions(MOST_WRITES):
        name = f"victim-{fatal}"
        fleet.start(name)
        if not recovers(fleet, proxy, name, line, fatal):
            break
        for gone in [one for one in fleet.machines if one != "keeper"]:
            fleet.leave(gone)

    assert 8 < fatal < MOST_WRITES, "writes of a repair"
