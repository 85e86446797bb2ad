"""Lightning with a file for each checkpoint."""

from lightning_training import Tiny, train

train(Tiny())
