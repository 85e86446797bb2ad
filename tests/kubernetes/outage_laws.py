"""What must hold for a controller and a job while the control plane has an outage, and after it."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gangs import Indexed
from machines import Fleet
from real_cluster import until

from holdfast.model.errors import BackendError

SETTINGS = '[nodes]\nmax_unavailable = 1\nprovider_retry = "1s"\ndrain_timeout = "10s"\n'
NEVER = datetime.max.replace(tzinfo=UTC)
NODES = ("a", "b", "c", "d", "e")
"""Two of a job, one that breaks beside it, and room for the next attempt beside all of them."""


def until_done(fleet: Fleet, kubeconfig: Path | None, condition: Callable[[], object]) -> None:
    """Wait until something holds, and start a controller again that has ended.

    The API server need not answer all the time.
    """

    def is_so() -> object:
        if fleet.controllers[-1].process.poll() is not None:
            fleet.control(settings=SETTINGS, kubeconfig=kubeconfig)
        try:
            return condition()
        except BackendError:
            return False

    until(is_so)


def cell_of(job: Indexed) -> Any:
    return SimpleNamespace(group=job.name, job=job)


def outcome_of(job: Indexed) -> dict[str, Any]:
    record = job.record
    return {
        "job": record["phase"],
        "attempt": record["attempt"],
        "hardware": record["hardware_retries"],
        "application": record["app_retries"],
        "causes": [one["failure"]["reason"] for one in record["attempts"]],
    }


def only_bad_nodes_were_repaired(fleet: Fleet, bad: list[str]) -> None:
    """Once each, and one after the other: the budget is one node."""
    orders = {order["token"]: order["node"] for order in fleet.orders}
    assert sorted(orders.values()) == sorted(bad)
    first, second = sorted(fleet.incidents, key=lambda one: one.ended_at or NEVER)
    assert [first.node, second.node] == [*orders.values()]
    assert first.ended_at is not None
    assert second.drained_at is not None
    assert first.ended_at <= second.drained_at
