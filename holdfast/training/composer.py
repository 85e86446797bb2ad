"""Reports of MosaicML Composer to Holdfast.

The package ``mosaicml`` is needed.
"""

import math
from typing import Any

from composer.core import Callback
from composer.utils import dist

from holdfast import training


class HoldfastCallback(Callback):
    """Reports steps, losses and saved checkpoints; for ``Trainer(callbacks=[...])``.

    Without Holdfast, it does nothing. A step is a batch, ``state.timestamp.batch``.

    Args:
        loss_interval: number of steps between two losses that are read. Reading one waits for the
            accelerator.

    """

    def __init__(self, loss_interval: int = 10) -> None:
        if loss_interval < 1:
            raise ValueError(f"loss_interval is {loss_interval}; expected 1 or more")
        self._loss_interval = loss_interval
        self._saved = ""

    def fit_start(self, state: Any, logger: Any) -> None:  # noqa: ARG002 - a hook
        """Report the step that the training resumed from."""
        if dist.get_global_rank() == 0:
            training.step(int(state.timestamp.batch))

    def batch_end(self, state: Any, logger: Any) -> None:  # noqa: ARG002 - a hook
        """Report a batch."""
        number = int(state.timestamp.batch)
        # some models return several losses, in a sequence or a dict
        has_loss = number % self._loss_interval == 0 and hasattr(state.loss, "item")
        value = float(state.loss) if has_loss else None
        if dist.get_global_rank() == 0 or (value is not None and not math.isfinite(value)):
            training.step(number, loss=value)

    def batch_start(self, state: Any, logger: Any) -> None:  # noqa: ARG002 - a hook
        """Report the checkpoint that was saved after the batch before."""
        self._report_newest(state)

    def fit_end(self, state: Any, logger: Any) -> None:  # noqa: ARG002 - a hook
        """Report the checkpoint that was saved after the last batch."""
        self._report_newest(state)

    def _report_newest(self, state: Any) -> None:
        if dist.get_global_rank() != 0:
            return
        for callback in state.callbacks:
            paths = getattr(callback, "saved_checkpoints", None)  # CheckpointSaver has it
            if paths and paths[-1] != self._saved:
                self._saved = paths[-1]
                training.checkpoint_saved(int(state.timestamp.batch), self._saved)
