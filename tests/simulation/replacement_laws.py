"""What must hold of replacements and their rate, whatever the names of the new nodes."""

from collections.abc import Callable
from datetime import datetime

from holdfast.adapters.sim.cluster import node_view
from holdfast.adapters.sim.machine import SimMachine
from holdfast.adapters.sim.scenario import ProviderReply
from holdfast.adapters.sim.world import World
from holdfast.decisions.replacement_limit import replacement_rate
from holdfast.kit.units import DAY
from holdfast.model.nodes import Remediation


class ReplacementLaws:
    """Watches the orders of replacements in one simulation."""

    def __init__(self, check: Callable[[bool, str], None]) -> None:
        self._check = check
        self._accepted: dict[SimMachine, dict[str, datetime]] = {}
        """When each token for the replacement of a machine was accepted last."""

        self._automatic: dict[SimMachine, datetime] = {}
        """When the replacement of each machine was accepted last, unless a person requested it."""

    def ordered(
        self, world: World, machine: SimMachine, repair: Remediation, answer: ProviderReply
    ) -> None:
        """A machine is replaced again only after its timeout, and each replacement counts."""
        accepted = self._accepted.setdefault(machine, {})
        timeout = world.scenario.policy.replace_timeout
        for other, at in accepted.items():
            self._check(
                other == repair.token or world.now - at >= timeout,
                f"{machine.provider_id} is replaced again {world.now - at} after {other}",
            )
        if answer in (ProviderReply.ACCEPTED, ProviderReply.LOST):
            accepted[repair.token] = world.now
            if not repair.request_id:
                self._automatic[machine] = world.now
        self._judge_rate(world)

    def _judge_rate(self, world: World) -> None:
        """Each automatic replacement counts for a day, whatever the name of its new node.

        Half a day leaves room for orders that a provider accepted hours after they were recorded.
        """
        views = [node_view(world, name) for name in world.nodes]
        recent = sum(at > world.now - DAY / 2 for at in self._automatic.values())
        rate = replacement_rate(views, len(views), world.scenario.policy, world.now)
        self._check(
            rate.last_day >= recent, f"{recent} replacements count as {rate.last_day} in a day"
        )
