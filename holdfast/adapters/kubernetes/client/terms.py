"""Caches of a process that becomes the leader, possibly again."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from holdfast.adapters.kubernetes.client.reflector import Reflector

_LISTS: Final = timedelta(seconds=10)
"""Time to list a collection; 5,000 nodes take two seconds."""


class Terms:
    """Lists all collections again when leadership begins.

    What the last leader wrote counts for the budget and the circuit breaker. A watch of a standby
    may not have received it: a connection to an API server that hangs fails after minutes.
    """

    def __init__(self, reflectors: Sequence[Reflector[Any]], number: Callable[[], int]) -> None:
        """Create it; ``number`` returns how many times this process has become the leader."""
        self._reflectors = reflectors
        self._number = number
        self._begun = number()

    def begin(self) -> None:
        """Begin a term if there is a new one; its caches may be incomplete afterwards."""
        number = self._number()
        if number == self._begun:
            return
        self._begun = number
        for reflector in self._reflectors:
            reflector.list_anew(_LISTS)
