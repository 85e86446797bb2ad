"""Limits on the open connections of a server, so that idle clients cannot keep others out."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol, TypeVar


class OpenConnection(Protocol):
    """Connection of a client."""

    @property
    def address(self) -> str:
        """IP address of the client."""

    @property
    def replacement_order(self) -> float:
        """Of several connections, the one with the lowest number is replaced first."""


Connection = TypeVar("Connection", bound=OpenConnection)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Maximum numbers of open connections."""

    total: int
    """Connections of all clients together."""

    per_address: int
    """Connections of one address."""


def connection_to_replace(
    connections: Collection[Connection], address: str, limits: ConnectionLimits
) -> Connection | None:
    """Return the connection to close before a further one of ``address`` is accepted.

    It belongs to ``address`` if that has reached its limit, or else to the address that has the
    most. None while the limits allow one more.
    """
    counts = Counter(one.address for one in connections)
    if counts[address] >= limits.per_address:
        addresses = {address}
    elif len(connections) >= limits.total:
        most = max(counts.values())
        addresses = {one for one, count in counts.items() if count == most}
    else:
        return None
    replaceable = (one for one in connections if one.address in addresses)
    return min(replaceable, key=lambda one: one.replacement_order)
