"""What must hold when a controller closes the breaker, in every world."""

from abc import abstractmethod

from holdfast.adapters.sim.world import Observer, World
from holdfast.model.nodes import Phase


class BreakerLaws(Observer):
    """Watches the breaker of one simulation."""

    world: World

    @abstractmethod
    def _check(self, holds: bool, what: str) -> None:
        """Raise ``LawBroken`` unless a law is kept."""

    def breaker_closed(self) -> None:
        """See ``Observer.breaker_closed``: all nodes were in service for long enough."""
        quiet = self.world.scenario.policy.breaker_close_after
        since = self.world.now - quiet
        opened_at = self.world.breaker.tripped_at
        self._check(bool(quiet), "the breaker closed though only a person may close it")
        self._check(
            opened_at is not None and opened_at <= since, "the breaker closed before its time"
        )
        for node in self.world.nodes.values():
            record = node.record
            self._check(
                record.phase is Phase.SCHEDULABLE and record.phase_since <= since,
                f"the breaker closed, and {node.name} was not in service for so long",
            )
