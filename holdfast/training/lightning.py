"""Reports of Lightning to Holdfast.

The package ``lightning`` or ``pytorch_lightning`` is needed.
"""

import math
from typing import Any

from holdfast import training

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback


class HoldfastCallback(Callback):
    """Reports steps, losses and saved checkpoints; for ``Trainer(callbacks=[...])``.

    Without Holdfast, it does nothing. A step is an optimizer step, ``trainer.global_step``.

    Args:
        loss_interval: number of steps between two losses that are read. Reading one waits for the
            accelerator.

    """

    def __init__(self, loss_interval: int = 10) -> None:
        if loss_interval < 1:
            raise ValueError(f"loss_interval is {loss_interval}; expected 1 or more")
        self._loss_interval = loss_interval
        self._step = -1
        self._save: Any = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002 - a hook
        """Report each call of ``Trainer.save_checkpoint``, which ``ModelCheckpoint`` calls, too.

        Lightning has no hook after a save: ``on_save_checkpoint`` is called before the file exists.
        """
        if self._save is not None:
            return
        self._save = save = trainer.save_checkpoint

        def save_checkpoint(filepath: Any, *args: Any, **options: Any) -> None:
            save(filepath, *args, **options)  # ends with a barrier of all ranks
            if trainer.is_global_zero:
                training.checkpoint_saved(trainer.global_step, filepath)

        trainer.save_checkpoint = save_checkpoint

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002 - a hook
        """Restore the method of the trainer."""
        if self._save is not None:
            trainer.save_checkpoint, self._save = self._save, None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - a hook
        """Report the step that the training resumed from."""
        self._step = trainer.global_step
        if trainer.is_global_zero:
            training.step(self._step)

    def on_train_batch_end(
        self,
        trainer: Any,
        pl_module: Any,  # noqa: ARG002 - a hook
        outputs: Any,
        batch: Any,  # noqa: ARG002 - a hook
        batch_idx: int,  # noqa: ARG002 - a hook
    ) -> None:
        """Report a step that the optimizer has done."""
        number = trainer.global_step
        if number == self._step:  # gradients are accumulated
            return
        self._step = number
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        value = None if loss is None or number % self._loss_interval else float(loss)
        if trainer.is_global_zero or (value is not None and not math.isfinite(value)):
            training.step(number, loss=value)
