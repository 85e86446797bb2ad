"""Calls to scontrol for the Slurm power saving and reboot providers."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.adapters.providers.orders import OwnerUnreachable
from holdfast.kit.commands import run
from holdfast.model.errors import BackendError, NodeGone, ProviderError
from holdfast.model.nodes import NodeView, Phase

_TIMEOUT: Final = timedelta(seconds=15)
"""Timeout; Slurm's own commands wait 4 s for slurmctld."""

_UNREACHABLE_PAUSE: Final = timedelta(seconds=10)
_UNREACHABLE: Final = ("Unable to contact slurm controller", "Socket timed out")
_DENIED: Final = ("Invalid user id", "ermission denied")
BOOTED: Final = "BOOTED"

_IN_REPAIR: Final = (Phase.REBOOTING, Phase.REPLACING)
_STATE: Final = re.compile(r" State=(\S+)")
_BOOT: Final = re.compile(r" BootTime=(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)")


def scontrol(*arguments: str) -> str:
    """Output of scontrol, which uses ``SLURM_CONF`` of the environment.

    Raises:
        OwnerUnreachable: slurmctld does not answer.
        NodeGone: it does not know the node.
        ProviderError: it refused.

    """
    is_order = "show" not in arguments
    try:
        done = run(("scontrol", *arguments), timeout=_TIMEOUT)
    except BackendError as error:
        raise OwnerUnreachable(
            str(error), after=_UNREACHABLE_PAUSE, is_outcome_unknown=is_order
        ) from error
    if not done.status:
        return done.output
    output = f"scontrol {' '.join(arguments)}: {' '.join((done.errors or done.output).split())}"
    if any(one in output for one in _UNREACHABLE):
        raise OwnerUnreachable(output, after=_UNREACHABLE_PAUSE, is_outcome_unknown=is_order)
    if "Invalid node name" in output or "not found" in output:
        raise NodeGone(output)
    if any(one in output for one in _DENIED):
        raise ProviderError(f"{output}: run the controller as SlurmUser, root or a Slurm operator")
    raise ProviderError(output)


def state(node: NodeView) -> frozenset[str]:
    """State and flags of a node, with ``BOOTED`` if a repeated order is already done.

    Raises:
        ProviderError: see ``scontrol``.

    """
    text = scontrol("-o", "show", "node", node.name)
    found = _STATE.search(text)
    if found is None:
        raise ProviderError(f"scontrol printed no state of {node.name}: {text[:100]!r}")
    flags = set(found[1].split("+"))
    return frozenset((*flags, *((BOOTED,) if _has_booted(text, node) else ())))


def _has_booted(text: str, node: NodeView) -> bool:
    """Whether the node has booted since an order whose outcome is unknown."""
    remediation = node.record.remediation
    is_repetition = (
        node.record.phase in _IN_REPAIR
        and remediation is not None
        and remediation.ordered_at is None
    )
    found = _BOOT.search(text)
    if not is_repetition or found is None:
        return False
    booted_at = datetime.fromisoformat(found[1]).astimezone(UTC)  # Slurm prints local time
    return booted_at > node.record.phase_since
