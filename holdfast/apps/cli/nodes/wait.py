"""Option ``--wait``: follows requests on nodes until they are done."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

import click

from holdfast.apps.views.nodes import Fleet, check_waits
from holdfast.kit.units import format_duration
from holdfast.model.nodes import Phase


@dataclass(slots=True)
class RepairWait:
    """Request on one node that is waited for."""

    fleet: Fleet
    node: str
    request_id: str
    reported: str = ""
    """Last progress line that was printed."""

    def is_done(self) -> bool:
        """Whether the request is done; prints progress on standard error."""
        nodes = {node.name: node for node in self.fleet.nodes()}
        if self.node not in nodes:
            successors = (node.name for node in nodes.values() if node.replaces == self.node)
            self.node = next(successors, self.node)
        node = nodes.get(self.node)
        if node is None:
            return False
        is_pending = node.request is not None and node.request.id == self.request_id
        pending = f"check {waits}" if (waits := check_waits(node)) else "not started yet"
        now = f"{self.node}: {pending if is_pending else node.phase}"
        if now != self.reported:
            self.reported = now
            click.echo(now, err=True)
        return node.phase is Phase.SCHEDULABLE and not is_pending


def wait_until_done(
    waiting: Iterable[RepairWait], timeout: timedelta, target_options: str = ""
) -> bool:
    """Wait until all requests are done and every node, or its successor, is schedulable.

    Args:
        waiting: requests to wait for.
        timeout: maximum time to wait.
        target_options: options that select the same target in another command.

    Returns:
        False on timeout or if a run ended before; standard error lists the nodes that are left.

    """
    deadline = time.monotonic() + timeout.total_seconds()
    left = list(waiting)
    while left := [one for one in left if not one.is_done()]:
        ended = [one for one in left if one.fleet.has_ended()]
        for one in ended:
            click.echo(
                f"holdfast: {one.node}: run {one.fleet.name} has ended; stopped waiting", err=True
            )
        if ended:
            return False
        if time.monotonic() >= deadline:
            nodes = ", ".join(one.node for one in left)
            click.echo(
                f"holdfast: timed out after {format_duration(timeout)}: {nodes}; repairs continue: "
                f"holdfast nodes list --watch{target_options}",
                err=True,
            )
            return False
        time.sleep(max(one.fleet.poll_interval_s for one in left))
    return True
