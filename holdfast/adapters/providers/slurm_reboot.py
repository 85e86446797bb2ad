"""Slurm's RebootProgram, for clusters that have one."""

from typing import Final

from holdfast.adapters.providers.settings import ProviderConfig
from holdfast.adapters.providers.slurm_calls import BOOTED, scontrol, state
from holdfast.model.nodes import NodeView

_UNDER_WAY: Final = frozenset(("REBOOT_REQUESTED", "REBOOT_ISSUED", BOOTED))


class SlurmReboot:
    """Asks slurmctld for the reboot of a node; it then knows that the node did not just crash."""

    def reboot(self, node: NodeView, token: str) -> None:  # noqa: ARG002
        """Ask for it, unless that was done already."""
        if not state(node) & _UNDER_WAY:
            scontrol("reboot", "ASAP", "nextstate=RESUME", node.name)


def build(config: ProviderConfig) -> SlurmReboot:  # noqa: ARG001
    """The provider of the table's row."""
    return SlurmReboot()
