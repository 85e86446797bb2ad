"""Slurm power saving, whose programs provide another machine for a node."""

from datetime import timedelta
from typing import Final

from holdfast.adapters.providers.settings import ProviderConfig
from holdfast.adapters.providers.slurm_calls import BOOTED, scontrol, state
from holdfast.model.errors import InProgress
from holdfast.model.nodes import NodeView

_COMING: Final = frozenset(("POWER_UP", "POWERING_UP", BOOTED))
_OFF: Final = "POWERED_DOWN"
_LEAVING: Final = frozenset(("POWER_DOWN", "POWERING_DOWN"))
_UNCERTAIN: Final = _LEAVING | {"DOWN"}
"""Beside ``POWERED_DOWN``: it is being switched off, or did not register in time after it was
powered up, so that its machine may be on."""

_PAUSE: Final = timedelta(seconds=5)


class SlurmPower:
    """Powers a node down, and up once it is down: slurmctld ignores earlier requests."""

    def replace(self, node: NodeView, token: str) -> None:  # noqa: ARG002
        """Take the next step of the replacement.

        Raises:
            InProgress: the node is powering down.

        """
        flags = state(node)
        if flags & _COMING:
            return
        if _OFF in flags and not flags & _UNCERTAIN:
            scontrol("update", f"nodename={node.name}", "state=power_up")
            return
        if not flags & _LEAVING:
            scontrol("update", f"nodename={node.name}", "state=power_down_force")
        raise InProgress(
            f"Slurm is powering {node.name} down; it is powered up after that", after=_PAUSE
        )


def build(config: ProviderConfig) -> SlurmPower:  # noqa: ARG001
    """Build the provider."""
    return SlurmPower()
