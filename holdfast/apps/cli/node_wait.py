"""``--wait``: follows what was asked for some nodes until it is done."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import click

from holdfast.adapters.local.lock import is_held
from holdfast.apps.runs import KnownRun
from holdfast.kit.units import format_duration
from holdfast.model.nodes import Phase

_PAUSE_S: Final = 0.1


@dataclass(slots=True)
class Awaited:
    """One node for which something was asked."""

    run: KnownRun
    node: str
    request_id: str
    told: str = ""
    """What was last said of it."""

    def is_done(self) -> bool:
        """Whether it was carried out; says on standard error how it goes on."""
        nodes = self.run.store.nodes()
        if self.node not in nodes:
            successors = (name for name, (_, old, _) in nodes.items() if old == self.node)
            self.node = next(successors, self.node)
        if self.node not in nodes:
            return False
        phase = nodes[self.node][2].phase
        request = self.run.store.requests().get(self.node)
        is_pending = request is not None and request.id == self.request_id
        now = f"{self.node}: {'not taken up yet' if is_pending else phase}"
        if now != self.told:
            self.told = now
            click.echo(now, err=True)
        return phase is Phase.SCHEDULABLE and not is_pending


def wait_until_done(awaited: Iterable[Awaited], timeout: timedelta) -> bool:
    """Wait until everything was carried out and every node, or its successor, takes work again.

    Returns:
        Whether that was so in time; if not, standard error says what is missing.

    """
    deadline = time.monotonic() + timeout.total_seconds()
    left = list(awaited)
    while left := [one for one in left if not one.is_done()]:
        ended = [one for one in left if not is_held(one.run.directory)]
        for one in ended:
            click.echo(f"holdfast: {one.node}: run {one.run.name} ended before", err=True)
        if ended:
            return False
        if time.monotonic() >= deadline:
            nodes = ", ".join(one.node for one in left)
            click.echo(
                f"holdfast: not done within {format_duration(timeout)}: {nodes}; it goes on: "
                "holdfast nodes list --watch",
                err=True,
            )
            return False
        time.sleep(_PAUSE_S)
    return True
