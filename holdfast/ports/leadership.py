"""Which of several controllers acts."""

from typing import Protocol


class Leadership(Protocol):
    """Says whether this process is the one that may act."""

    def is_held(self) -> bool:
        """Whether it may act now, and no other may before the next few seconds are over.

        Cheap: asked before each change of the world.
        """
        ...


class Alone:
    """The ``Leadership`` of a controller that has no other beside it."""

    def is_held(self) -> bool:
        """Always."""
        return True
