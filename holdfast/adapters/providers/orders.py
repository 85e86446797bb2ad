"""Routes orders to providers, deduplicates them by token, and backs off."""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from holdfast.kit.pauses import Pause
from holdfast.model.errors import RetryLater
from holdfast.model.nodes import NodeView
from holdfast.ports.clock import Clock

_REMEMBERED: Final = 4096
"""Maximum number of remembered orders; far more than the engine repeats at any time."""

_PAUSE: Final = timedelta(seconds=30)
"""Delay of the next order after an answer that lacks a field or has another type of value."""

_EXCERPT: Final = 300  # characters

Repair = Callable[[NodeView, str], None]
"""Orders a repair of a node, under a token; raises as the methods of ``NodeProvider``."""


class OwnerUnreachable(RetryLater):
    """The owner of the machines accepts no orders at the moment: throttled, down or hanging.

    All orders to it back off. Otherwise each node in repair would wait for the same timeout, one
    after the other, and delay the repair of all other nodes.
    """


class Orders:
    """A ``NodeProvider`` with separate providers for reboots and replacements.

    Accepted orders are remembered while this object lives. Beyond that, the providers themselves
    handle a repeated order.
    """

    def __init__(self, *, reboot: Repair, replace: Repair, clock: Clock) -> None:
        self._reboot = _OrderQueue(reboot, clock)
        self._replace = _OrderQueue(replace, clock)

    def reboot(self, node: NodeView, token: str) -> None:
        """See ``NodeProvider.reboot``."""
        self._reboot.give(node, token)

    def replace(self, node: NodeView, token: str) -> None:
        """See ``NodeProvider.replace``."""
        self._replace.give(node, token)


class _OrderQueue:
    """Orders to one owner of machines."""

    def __init__(self, repair: Repair, clock: Clock) -> None:
        self._repair = repair
        self._clock = clock
        self._accepted: dict[str, None] = {}  # in the order of their acceptance
        self._unreachable: Pause | None = None
        self._unreachable_reason = ""

    def give(self, node: NodeView, token: str) -> None:
        """Submit an order unless it was accepted before; raise while the owner is away."""
        if token in self._accepted:
            return
        now = self._clock.now()
        if self._unreachable is not None and not self._unreachable.is_over(now):
            raise RetryLater(self._unreachable_reason, after=self._unreachable.until - now)
        try:
            self._repair(node, token)
        except OwnerUnreachable as error:
            ended = self._clock.now()
            self._unreachable = Pause(ended, ended + error.after)
            self._unreachable_reason = str(error)
            raise
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise RetryLater(
                f"{node.name}: unexpected response of the machine provider"
                f" ({type(error).__name__}: {error})"[:_EXCERPT],
                after=_PAUSE,
                is_outcome_unknown=True,
            ) from error
        self._accepted[token] = None
        if len(self._accepted) > _REMEMBERED:
            del self._accepted[next(iter(self._accepted))]
