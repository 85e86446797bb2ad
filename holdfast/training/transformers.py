"""Reports of Hugging Face's Trainer to Holdfast.

The package ``transformers`` is needed.
"""

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from holdfast import training


class HoldfastCallback(TrainerCallback):
    """Reports steps, losses and saved checkpoints; for ``Trainer(callbacks=[...])``.

    Without Holdfast, it does nothing. Losses are those that the Trainer logs: the mean of
    ``logging_steps`` steps. The batch of a step in ``$HOLDFAST_SKIP_STEPS`` changes nothing: a
    callback cannot skip it, so that its gradients are dropped before the optimizer uses them. That
    has no effect with DeepSpeed, whose engine has gradients of its own.
    """

    _has_skipped = False
    """Whether a step was skipped since the last loss, whose value then includes dropped batches."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 - a hook
        """Report the step that the training resumed from."""
        if state.is_world_process_zero:
            training.step(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 - a hook
        """Report a step."""
        if state.is_world_process_zero:
            training.step(state.global_step)

    def on_pre_optimizer_step(
        self,
        args: Any,  # noqa: ARG002 - a hook
        state: Any,
        control: Any,  # noqa: ARG002 - a hook
        model: Any = None,
        **_: Any,
    ) -> None:
        """Drop the gradients of a step that is skipped."""
        if model is not None and training.is_skipped(state.global_step + 1):
            model.zero_grad(set_to_none=True)
            self._has_skipped = True

    def on_log(
        self,
        args: Any,  # noqa: ARG002 - a hook
        state: Any,
        control: Any,  # noqa: ARG002 - a hook
        logs: Any = None,
        **_: Any,
    ) -> None:
        """Report the loss of the last steps."""
        loss = (logs or {}).get("loss")
        if loss is None:
            return
        if state.is_world_process_zero and not self._has_skipped:
            training.step(state.global_step, loss=float(loss))
        self._has_skipped = False

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 - a hook
        """Report a checkpoint; other ranks may still write their small part of it."""
        if state.is_world_process_zero:
            path = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            training.checkpoint_saved(state.global_step, path)
