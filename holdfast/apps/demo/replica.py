"""What the training loop asks of a trainer."""

from typing import Protocol

from holdfast.model.errors import BackendError


class PeerLost(BackendError):
    """Another rank died, fell silent or never came. All ranks must be started again."""


class Replica(Protocol):
    """The copy of the model on one rank, with its link to the other ranks.

    ``train`` and ``broadcast`` are called by all ranks in the same order; both raise ``PeerLost``.
    """

    def train(self, step: int) -> float:
        """Make step number ``step``, counted from 0; return its mean loss over all ranks."""
        ...

    def broadcast(self, payload: bytes) -> bytes:
        """Give the payload of rank 0 to all ranks; what the others pass is ignored."""
        ...

    def state(self) -> bytes:
        """Weights and optimizer state: all that ``restore`` needs to go on as if undisturbed."""
        ...

    def restore(self, state: bytes) -> None:
        """Take over what ``state`` returned, perhaps in another process."""
        ...

    def weights(self) -> bytes:
        """All weights, in a fixed order: equal bytes mean equal models."""
        ...

    def held_out_loss(self) -> float:
        """Mean loss on text that is never trained on, in nats for a character."""
        ...
