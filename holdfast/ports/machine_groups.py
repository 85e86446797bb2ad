"""The owner of groups of like machines, which makes them and takes them away."""

from collections.abc import Sequence
from typing import Protocol

from holdfast.model.clusters import GroupMachine, MachineGroup


class MachineGroups(Protocol):
    """Keeps groups at the sizes that they were given.

    Calls return when a wish is recorded with the owner, not when it is fulfilled, and change
    nothing when they are repeated. ``group`` is ``MachineGroup.key``. Every method may raise
    ``BackendError`` (the owner cannot be reached; to be tried again), ``RetryLater`` (throttled,
    no capacity) and ``ProviderError`` (refused; the message goes to the person who asked).
    """

    def ensure(self, group: MachineGroup) -> None:
        """Have the group, and make its machines of this from now on; those it has stay as they are.

        A new group has no machines.
        """
        ...

    def machines(self, group: str) -> Sequence[GroupMachine]:
        """All machines of the group, also those that leave; none if there is no such group."""
        ...

    def scale(self, group: str, count: int) -> None:
        """Have so many machines that do not leave, failed ones counted.

        Which ones go where there are more is up to the owner: who cares names them to ``remove``.
        """
        ...

    def remove(self, group: str, ids: Sequence[str]) -> None:
        """Take these machines away; the count falls with them. Those that are gone are no error."""
        ...

    def delete(self, group: str) -> None:
        """Take the group away with all its machines; one that is gone is no error.

        It may have to be repeated until ``machines`` has none.
        """
        ...
