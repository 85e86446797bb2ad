"""Faults of the nodes of a step, and nodes on which a step can be launched: pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from holdfast.adapters.slurm.commands.node_text import NodeFacts
from holdfast.adapters.slurm.commands.reasons import DEFERRED, Author
from holdfast.adapters.slurm.nodes.boots import is_other_boot, is_other_slurmd

_BAD: Final = frozenset(("FAIL", "DOWN", "INVALID_REG"))


def is_usable(node: NodeFacts) -> bool:
    """Whether a step can be launched on a node."""
    return node.has_heartbeat and not node.state & _BAD


def is_unreachable(node: NodeFacts) -> bool:
    """Whether ranks may still run on a node: only slurmd ends them, and it does not answer."""
    return not node.has_heartbeat and not node.is_asleep


def faults_after_end(
    names: Iterable[str], nodes: Mapping[str, NodeFacts], before: Mapping[str, str]
) -> dict[str, str]:
    """Return the faults that may explain why a step ended, by node.

    Args:
        names: nodes of the step.
        nodes: their current states.
        before: ``NodeFacts.slurmd`` of each node when the step began.

    """
    found = {name: _fault(nodes.get(name), before.get(name, "")) for name in names}
    return {name: why for name, why in found.items() if why}


def faults_while_running(
    names: Iterable[str], nodes: Mapping[str, NodeFacts], before: Mapping[str, str]
) -> dict[str, str]:
    """Return the faults that a running step cannot survive; arguments as in ``faults_after_end``.

    A node whose repair is deferred until its jobs end is not among them, nor is one that does not
    answer for a while.
    """
    return {
        name: why
        for name, why in faults_after_end(names, nodes, before).items()
        if (node := nodes.get(name)) is not None
        and (
            "DOWN" in node.state
            or _is_lost(node)
            or is_other_boot(node.slurmd, before.get(name, ""))
        )
    }


def _fault(node: NodeFacts | None, before: str) -> str:
    if node is None:
        return "unknown to Slurm"
    flags = sorted(node.state & _BAD)
    if flags:
        return "+".join(flags) + (f" ({node.reason.text})" if node.reason.text else "")
    if not node.has_heartbeat:
        return "+".join(sorted(node.state))
    if is_other_boot(node.slurmd, before):
        return "rebooted"
    return "slurmd restarted" if is_other_slurmd(node.slurmd, before) else ""


def _is_lost(node: NodeFacts) -> bool:
    """Whether the controller ordered an immediate repair, which ends what runs on the node."""
    reason = node.reason
    is_by_holdfast = reason.author is Author.HOLDFAST and reason.text.startswith("Action:")
    return "FAIL" in node.state and is_by_holdfast and DEFERRED not in reason.text
