"""Interface of a trainer for the training loop."""

from typing import Protocol

from holdfast.model.errors import BackendError


class PeerLost(BackendError):
    """Another rank died, stopped responding or never joined. All ranks must be restarted."""


class Replica(Protocol):
    """The copy of the model on one rank, with its connection to the other ranks.

    ``train`` and ``broadcast`` are called by all ranks in the same order; both raise ``PeerLost``.
    """

    def train(self, step: int) -> float:
        """Run step number ``step``, counted from 0; return its mean loss over all ranks."""
        ...

    def broadcast(self, payload: bytes) -> bytes:
        """Broadcast the payload of rank 0 to all ranks; the payloads of others are ignored."""
        ...

    def state(self) -> bytes:
        """Return weights and optimizer state, with which ``restore`` continues identically."""
        ...

    def restore(self, state: bytes) -> None:
        """Load a state that ``state`` returned, possibly in another process."""
        ...

    def weights(self) -> bytes:
        """Return all weights in a fixed order: equal bytes mean equal models."""
        ...

    def held_out_loss(self) -> float:
        """Return the mean loss on text that is never trained on, in nats per character."""
        ...
