"""Port of leader election: which of several controllers acts."""

from typing import Protocol


class Leadership(Protocol):
    """Whether this process is the leader."""

    def is_held(self) -> bool:
        """Return whether it may act now, and no other may during the next few seconds.

        Cheap: called before each change of external state.
        """
        ...


class Alone:
    """``Leadership`` of a controller that runs alone."""

    def is_held(self) -> bool:
        """Return True."""
        return True
