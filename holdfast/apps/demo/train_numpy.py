"""Trains a character model in NumPy, data parallel: ``python -m holdfast.apps.demo.train_numpy``.

The weights after the last step are bitwise equal, however often the job was interrupted.
"""

import os

# One thread: two ranks share two cores, and BLAS splits its sums by threads. Set before
# NumPy loads.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"

import sys
from collections.abc import Sequence

try:
    import numpy as np
except ModuleNotFoundError:
    sys.stderr.write("NumPy is not installed: pip install 'holdfast[demo]'\n")
    raise SystemExit(2) from None

from holdfast.apps.demo.allreduce import RankGroup, join
from holdfast.apps.demo.char_model import Adam, CharModel
from holdfast.apps.demo.corpus import Corpus, standard_library
from holdfast.apps.demo.options import Options, RankEnvironment, parse_options, rank_environment
from holdfast.apps.demo.training_loop import run_trainer, train


class NumpyReplica:
    """The model on one rank; see ``Replica``."""

    def __init__(
        self, corpus: Corpus, options: Options, environment: RankEnvironment, group: RankGroup
    ) -> None:
        self._corpus = corpus
        self._options = options
        self._environment = environment
        self._group = group
        self._model = CharModel(hidden=options.hidden, seed=options.seed)
        self._adam = Adam(self._model.weights.size)
        # Buffer of the gradient, with the loss as its last element.
        self._message = np.empty(self._model.weights.size + 1, dtype=np.float32)

    def train(self, step: int) -> float:
        """Run one step of Adam on the mean gradient of all ranks; return its loss."""
        batch = self._corpus.batch(
            seed=self._options.seed,
            step=step,
            size=self._options.batch,
            rank=self._environment.rank,
            world_size=self._environment.world_size,
        )
        gradient = self._message[:-1]
        self._message[-1] = self._model.gradient(batch, whole=self._options.batch, out=gradient)
        self._group.sum(self._message)
        self._adam.update(self._model.weights, gradient, step=step + 1)
        return float(self._message[-1])

    def broadcast(self, payload: bytes) -> bytes:
        """See ``RankGroup``."""
        return self._group.broadcast(payload)

    def state(self) -> bytes:
        """Return the vectors of weights and optimizer state, concatenated."""
        return b"".join(vector.tobytes() for vector in self._vectors())

    def restore(self, state: bytes) -> None:
        """Copy a state into the vectors in place: the layers of the model are views of them."""
        parts = np.split(np.frombuffer(state, dtype=np.float32), len(self._vectors()))
        for vector, part in zip(self._vectors(), parts, strict=True):
            vector[:] = part

    def weights(self) -> bytes:
        """Return the vector of weights, float32 in native byte order."""
        return self._model.weights.tobytes()

    def held_out_loss(self) -> float:
        """Return the mean cross-entropy of held-out text, in nats per character."""
        return self._model.loss(self._corpus.held_out_batch())

    def _vectors(self) -> tuple[np.ndarray, ...]:
        return self._model.weights, self._adam.mean, self._adam.square


def main(arguments: Sequence[str]) -> None:
    """Join the other ranks and train."""
    options = parse_options(
        "holdfast.apps.demo.train_numpy", "Train in NumPy.", arguments, os.environ
    )
    environment = rank_environment(os.environ)
    corpus = standard_library()
    run = options.run_identity("numpy", corpus)
    with join(
        environment, run, join_timeout=options.join_timeout, peer_timeout=options.peer_timeout
    ) as group:
        train(NumpyReplica(corpus, options, environment, group), options, environment, run)


if __name__ == "__main__":
    sys.exit(run_trainer(main))
