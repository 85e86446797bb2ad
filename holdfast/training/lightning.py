"""Reports of Lightning to Holdfast.

The package ``lightning`` or ``pytorch_lightning`` is needed.
"""

import functools
import logging
import math
import os
from typing import Any, Final

from holdfast import training
from holdfast.model.jobs import SKIP_STEPS_VARIABLE

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

_LOG: Final = logging.getLogger(__name__)


class HoldfastCallback(Callback):
    """Reports steps, losses and saved checkpoints; for ``Trainer(callbacks=[...])``.

    Without Holdfast, it does nothing. A step is an optimizer step, ``trainer.global_step``. Batches
    of steps in ``$HOLDFAST_SKIP_STEPS`` are skipped, except with the strategy of DeepSpeed, which
    does not support that.

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
        self._train: Any = None
        self._skipped: set[int] = set()

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Report each call of ``Trainer.save_checkpoint``, which ``ModelCheckpoint`` calls, too.

        Lightning has no hook after a save: ``on_save_checkpoint`` is called before the file exists.
        Neither has it one that skips a batch: ``on_train_batch_start`` of the module ends the epoch
        with -1, and that of a callback returns nothing. A ``training_step`` that returns None skips
        the batch.
        """
        if os.environ.get(SKIP_STEPS_VARIABLE) and self._train is None and stage == "fit":
            self._train = train = pl_module.training_step

            @functools.wraps(train)
            def training_step(*args: Any, **options: Any) -> Any:
                return None if self._skips(trainer, pl_module) else train(*args, **options)

            pl_module.training_step = training_step
        if self._save is not None:
            return
        self._save = save = trainer.save_checkpoint

        def save_checkpoint(filepath: Any, *args: Any, **options: Any) -> None:
            save(filepath, *args, **options)  # ends with a barrier of all ranks
            if trainer.is_global_zero:
                training.checkpoint_saved(trainer.global_step, filepath)

        trainer.save_checkpoint = save_checkpoint

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002 - a hook
        """Restore the methods of the trainer and the module."""
        if self._train is not None:
            pl_module.training_step, self._train = self._train, None
        if self._save is not None:
            trainer.save_checkpoint, self._save = self._save, None

    def _skips(self, trainer: Any, pl_module: Any) -> bool:
        """Return whether to skip a batch of the next step.

        With manual optimization no step follows, so that one batch is skipped for each.
        """
        number = trainer.global_step + 1
        is_known = number in self._skipped
        if not training.is_skipped(number) or (is_known and not pl_module.automatic_optimization):
            return False
        if "DeepSpeed" in type(trainer.strategy).__name__:
            if not is_known:
                _LOG.warning("step %d not skipped: DeepSpeed does not support that", number)
            self._skipped.add(number)
            return False
        if not is_known:
            _LOG.warning("step %d skipped: its loss was bad in an earlier attempt", number)
        self._skipped.add(number)
        return True

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
