"""Refusal of orders for a machine that is not the one behind the node."""

import socket
from collections.abc import Sequence
from dataclasses import replace

from holdfast.decisions.machine_identity import is_machine_of, shown_identity
from holdfast.model.errors import ProviderError
from holdfast.model.nodes import NodeView


def require_machine_of(node: NodeView, machine: str, names: Sequence[str]) -> None:
    """Raise unless ``machine``, with these names and IP addresses, is the one behind ``node``.

    Names of the node are resolved if they do not match as they are: Slurm may know a node by a
    name of its own.

    Raises:
        ProviderError: they have no name and no address in common.

    """
    if is_machine_of(node, names):
        return
    resolved = [one for name in (node.name, *node.addresses) for one in _addresses(name)]
    if is_machine_of(replace(node, addresses=tuple(resolved)), names):
        return
    own = shown_identity((node.name, *node.addresses))
    raise ProviderError(
        f"{machine} may not be the machine of {node.name}, so it gets no order: the node has"
        f" {own}, and the machine {shown_identity(names)}; correct the"
        f" provider ID {node.provider_id!r} of the node, or repair its machine by hand"
    )


def _addresses(name: str) -> list[str]:
    """IP addresses of a host name; none if it is unknown."""
    try:
        return [str(one[4][0]) for one in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):
        return []
