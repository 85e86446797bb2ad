"""Caches of a process that becomes the leader, possibly again."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from holdfast.adapters.kubernetes.client.reflector import Reflector

_LISTS: Final = timedelta(seconds=10)
"""Time to list a collection; 5,000 nodes take two seconds."""


class RelistOnElection:
    """Lists all collections again when leadership begins.

    What the last leader wrote counts for the budget and the circuit breaker. A watch of a standby
    may not have received it: a connection to an API server that hangs fails after minutes.
    """

    def __init__(self, reflectors: Sequence[Reflector[Any]], elected: Callable[[], int]) -> None:
        """Create it; ``elected`` returns how many times this process was elected."""
        self._reflectors = reflectors
        self._elected = elected
        self._listed_for = elected()

    def run(self) -> None:
        """List all again after an election; the caches may be incomplete afterwards."""
        number = self._elected()
        if number == self._listed_for:
            return
        self._listed_for = number
        for reflector in self._reflectors:
            reflector.list_anew(_LISTS)
