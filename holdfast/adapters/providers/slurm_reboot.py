"""Slurm's RebootProgram, for clusters that configure one."""

from typing import Final

from holdfast.adapters.providers.settings import ProviderConfig
from holdfast.adapters.providers.slurm_calls import BOOTED, scontrol, state
from holdfast.model.nodes import NodeView

_UNDER_WAY: Final = frozenset(("REBOOT_REQUESTED", "REBOOT_ISSUED", BOOTED))


class SlurmReboot:
    """Requests the reboot from slurmctld, so that it does not treat the node as crashed."""

    def reboot(self, node: NodeView, token: str) -> None:  # noqa: ARG002
        """Request the reboot, unless it was already requested.

        The node stays closed until it is released. Without ``nextstate=DOWN``, Slurm 22.05 starts
        jobs on a node as soon as it has booted, unless its state is FAIL.
        """
        if not state(node) & _UNDER_WAY:
            scontrol("reboot", "ASAP", "nextstate=DOWN", node.name)


def build(config: ProviderConfig) -> SlurmReboot:  # noqa: ARG001
    """Build the provider."""
    return SlurmReboot()
