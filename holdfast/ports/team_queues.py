"""Ports of the queues of teams, and of the store of the policies that define them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from holdfast.model.team_queues import FlavorQuota, NodeType, Policy, TeamQueue
from holdfast.ports.cluster_records import RecordedRequest


class TeamQueues(Protocol):
    """Queues in the scheduler. An owner is the ID of a policy.

    Every method may raise ``BackendError`` (retry) and ``ProviderError`` (refused, such as an
    object of the same name that belongs to somebody else; the message is shown). All have no
    further effect when repeated.
    """

    def node_types(self) -> Mapping[str, NodeType]:
        """Return the nodes by instance type, e.g. ``ml.p5.48xlarge``."""
        ...

    def put_priorities(self, owner: str, priorities: Mapping[str, int]) -> None:
        """Set the priority classes of an owner; its others are removed."""
        ...

    def put_queue(self, owner: str, queue: TeamQueue) -> None:
        """Create or update the queue of a team, with the namespace of the team."""
        ...

    def put_idle(self, owner: str, cohort: str, flavors: Sequence[FlavorQuota]) -> None:
        """Set the compute that a cohort has beside that of its queues; none if empty."""
        ...

    def remove(self, owner: str) -> bool:
        """Remove all that belongs to an owner, except namespaces.

        Returns:
            Whether nothing is left; a queue is, until the jobs that it admitted have ended.

        """
        ...


class PolicyRecords(Protocol):
    """Store of policies; every method may raise ``BackendError``."""

    def all(self) -> Sequence[Policy]:
        """Return all policies, in the order of their creation."""
        ...

    def create(
        self,
        policy: Policy,
        check: Callable[[Sequence[Policy]], None],
        requested: RecordedRequest,
    ) -> None:
        """Store a new policy; nothing is written if ``check`` of all others raises."""
        ...

    def change(
        self, policy_id: str, make: Callable[[Policy], Policy], requested: RecordedRequest
    ) -> Policy | None:
        """Change a policy; return the new one, or None if there is none with that ID.

        Nothing is written if ``make`` raises.
        """
        ...

    def save(self, before: Policy, after: Policy | None) -> bool:
        """Store the new state of a policy; None deletes it.

        Returns:
            False, and nothing is written, if the policy has changed since it was read.

        """
        ...
