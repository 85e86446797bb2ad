"""Orders: each to who carries it out, once, and none to someone who cannot be reached."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from holdfast.model.errors import RetryLater
from holdfast.model.nodes import NodeView
from holdfast.ports.clock import Clock

_REMEMBERED: Final = 4096
"""Orders; far more than the engine repeats at any time."""

Repair = Callable[[NodeView, str], None]
"""Orders a repair of a node, under a token; raises as the methods of ``NodeProvider``."""


class OwnerAway(RetryLater):
    """Just now no order gets through to the owner of the machines, this one as little as others.

    Throttling and dead or hanging endpoints are of this kind. Without it, every node in repair
    would wait for the same timeout, one after the other, and no other node be looked after.
    """


class Orders:
    """A ``NodeProvider`` that reboots by one means and replaces by another.

    Orders that were accepted are remembered as long as this object lives. Beyond that, the means
    themselves take a repetition well.
    """

    def __init__(self, *, reboot: Repair, replace: Repair, clock: Clock) -> None:
        self._reboot = _Lane(reboot, clock)
        self._replace = _Lane(replace, clock)

    def reboot(self, node: NodeView, token: str) -> None:
        """See ``NodeProvider.reboot``."""
        self._reboot.give(node, token)

    def replace(self, node: NodeView, token: str) -> None:
        """See ``NodeProvider.replace``."""
        self._replace.give(node, token)


class _Lane:
    """Leads to one owner of machines."""

    def __init__(self, repair: Repair, clock: Clock) -> None:
        self._repair = repair
        self._clock = clock
        self._accepted: dict[str, None] = {}  # in the order of their acceptance
        self._away_until: datetime | None = None
        self._why_away = ""

    def give(self, node: NodeView, token: str) -> None:
        """Give an order, unless it was given before or there is nobody to take it."""
        if token in self._accepted:
            return
        now = self._clock.now()
        if self._away_until is not None and now < self._away_until:
            raise RetryLater(self._why_away, after=self._away_until - now)
        try:
            self._repair(node, token)
        except OwnerAway as error:
            self._away_until = self._clock.now() + error.after
            self._why_away = str(error)
            raise
        self._accepted[token] = None
        if len(self._accepted) > _REMEMBERED:
            del self._accepted[next(iter(self._accepted))]
