"""Comparison of a node with the machine that a provider has under its ID: pure."""

from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address
from typing import Final

from holdfast.kit.units import one_line
from holdfast.model.nodes import NodeView

_LONGEST_SHOWN: Final = 300
"""Maximum characters of names in a message: a provider may return any."""


def is_machine_of(node: NodeView, machine: Iterable[str]) -> bool:
    """Return whether a machine is the one behind a node.

    One common IP address or host name is enough; host names are compared by their first label if
    one of the two has no domain. Without one, also where nothing is known of either side, the
    machine counts as somebody else's: a repair of it would be worse than none.

    Args:
        node: the node, with its name and addresses.
        machine: names and IP addresses of the machine, as its provider reports them.

    """
    node_names = [one for one in map(_normalized, (node.name, *node.addresses)) if one]
    machine_names = [one for one in map(_normalized, machine) if one]
    return any(_are_same(one, other) for one in node_names for other in machine_names)


def shown_identity(names: Iterable[str]) -> str:
    """Return names and addresses for messages, each once, at most 300 characters."""
    shown = ", ".join(dict.fromkeys(one for one in names if one)) or "no name or address"
    return one_line(shown, _LONGEST_SHOWN)


def _are_same(one: str, other: str) -> bool:
    if one == other:
        return True
    if _is_ip(one) or _is_ip(other) or ("." in one and "." in other):
        return False
    return one.partition(".")[0] == other.partition(".")[0]


def _normalized(name: str) -> str:
    """Return a host name or IP address in one spelling; empty if many machines have it."""
    text = name.strip().rstrip(".").lower()
    try:
        address = ip_address(text)
    except ValueError:
        return "" if text.partition(".")[0] == "localhost" else text
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    is_shared = address.is_loopback or address.is_unspecified or address.is_link_local
    return "" if is_shared else str(address)


def _is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
