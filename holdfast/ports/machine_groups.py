"""Port of a provider that creates and removes groups of like machines."""

from collections.abc import Sequence
from typing import Protocol

from holdfast.model.clusters import GroupMachine, MachineGroup


class MachineGroups(Protocol):
    """Keeps groups at their desired sizes.

    Calls return when the request is recorded with the provider, not when it is fulfilled, and have
    no further effect when repeated. ``group`` is ``MachineGroup.key``. Every method may raise
    ``BackendError`` (the provider cannot be reached; retry), ``RetryLater`` (throttled, no
    capacity) and ``ProviderError`` (refused; the message is shown to the person who requested it).
    """

    def ensure(self, group: MachineGroup) -> None:
        """Create or update the group; new machines get this specification, existing ones do not.

        A new group has no machines.
        """
        ...

    def machines(self, group: str) -> Sequence[GroupMachine]:
        """Return all machines of the group, also leaving ones; none if there is no such group."""
        ...

    def scale(self, group: str, count: int) -> None:
        """Set the number of machines that do not leave, failed ones included.

        If there are more, the provider chooses which ones to remove: use ``remove`` to choose.
        """
        ...

    def remove(self, group: str, ids: Sequence[str]) -> None:
        """Remove these machines and reduce the count by them. Missing ones are no error."""
        ...

    def delete(self, group: str) -> None:
        """Delete the group with all its machines; a missing one is no error.

        Repeat it until ``machines`` is empty.
        """
        ...
