"""A character-level language model and its optimizer in NumPy.

The next character is predicted from the embeddings of those before it, through one hidden layer
(Bengio et al., "A Neural Probabilistic Language Model", JMLR 3, 2003). All weights lie in one
vector, so that gradients, optimizer state and checkpoints are plain vectors too.
"""

import math

import numpy as np
from numpy.typing import NDArray

from holdfast.apps.demo.corpus import CONTEXT, SYMBOLS, Batch

EMBEDDING = 24
"""Dimensions of a character's embedding; about a quarter of the vocabulary."""

Vector = NDArray[np.float32]


class CharModel:
    """The weights of the model, with loss and gradient."""

    def __init__(self, *, hidden: int, seed: int) -> None:
        self._shapes = (
            (SYMBOLS, EMBEDDING),
            (CONTEXT * EMBEDDING, hidden),
            (hidden,),
            (hidden, SYMBOLS),
            (SYMBOLS,),
        )
        self.weights: Vector = np.zeros(sum(map(math.prod, self._shapes)), dtype=np.float32)
        self._layers = self._split(self.weights)
        self._one_hot = np.eye(SYMBOLS, dtype=np.float32)
        draw = np.random.default_rng(seed)
        for layer in self._layers:
            if layer.ndim == 2:
                scale = 1.0 if layer is self._layers[0] else len(layer) ** -0.5
                layer[:] = draw.standard_normal(layer.shape, dtype=np.float32) * np.float32(scale)

    def loss(self, batch: Batch) -> float:
        """Return the mean cross-entropy of the batch, in nats per character."""
        _, _, log_likelihoods = self._forward(batch)
        return -float(_at_targets(log_likelihoods, batch).mean())

    def gradient(self, batch: Batch, *, whole: int, out: Vector) -> float:
        """Write the gradient of the loss into ``out``, shaped as ``weights``; return the loss.

        Both are summed over this batch and divided by ``whole``, the size of the batch of all
        ranks: the sum over the ranks is then the mean over the whole batch.
        """
        embedding, inner, inner_bias, outer, outer_bias = self._split(out)
        features, activity, log_likelihoods = self._forward(batch)
        slope = np.exp(log_likelihoods)
        slope[np.arange(len(slope)), batch.targets] -= 1
        slope /= np.float32(whole)
        np.matmul(activity.T, slope, out=outer)
        slope.sum(axis=0, out=outer_bias)
        slope = (slope @ self._layers[3].T) * (1 - activity * activity)
        np.matmul(features.T, slope, out=inner)
        slope.sum(axis=0, out=inner_bias)
        slope = (slope @ self._layers[1].T).reshape(-1, EMBEDDING)
        np.matmul(self._one_hot[batch.contexts.ravel()].T, slope, out=embedding)
        return -float(_at_targets(log_likelihoods, batch).sum()) / whole

    def _forward(self, batch: Batch) -> tuple[Vector, Vector, Vector]:
        embedding, inner, inner_bias, outer, outer_bias = self._layers
        features = embedding[batch.contexts].reshape(-1, CONTEXT * EMBEDDING)
        activity = np.tanh(features @ inner + inner_bias)
        scores = activity @ outer + outer_bias
        scores -= scores.max(axis=1, keepdims=True)
        scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
        return features, activity, scores

    def _split(self, vector: Vector) -> list[Vector]:
        ends = np.cumsum([math.prod(shape) for shape in self._shapes])
        parts = np.split(vector, ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True)]


class Adam:
    """The Adam optimizer of Kingma and Ba (arXiv:1412.6980), with the constants given there."""

    def __init__(self, size: int, *, rate: float = 0.002) -> None:
        self.mean: Vector = np.zeros(size, dtype=np.float32)
        self.square: Vector = np.zeros(size, dtype=np.float32)
        self._rate = rate

    def update(self, weights: Vector, gradient: Vector, *, step: int) -> None:
        """Update ``weights`` in place. ``step`` counts the updates, including this one."""
        self.mean *= 0.9
        self.mean += 0.1 * gradient
        self.square *= 0.999
        self.square += 0.001 * (gradient * gradient)
        rate = self._rate * math.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        weights -= rate * self.mean / (np.sqrt(self.square) + 1e-8)


def _at_targets(log_likelihoods: Vector, batch: Batch) -> Vector:
    return log_likelihoods[np.arange(len(log_likelihoods)), batch.targets]
