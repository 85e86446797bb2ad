"""Registry of all checkpoint formats, in the order of detection."""

from typing import Final

from holdfast.adapters.checkpoints import (
    accelerate,
    composer,
    dcp,
    deepspeed,
    deepspeed_universal,
    dlrover,
    hf_trainer,
    lightning,
    megatron,
    nemo,
    neuronx,
    nvrx_local,
    orbax,
    ray_train,
    safetensors_model,
    torch_save,
    torchtitan,
)
from holdfast.adapters.checkpoints.contract import CheckpointFormat
from holdfast.adapters.checkpoints.pattern import PREFIX, pattern_format
from holdfast.kit.plugins import load_plugin, plugin_error
from holdfast.model.names import PluginGroup

ROWS: Final[tuple[CheckpointFormat, ...]] = (
    dlrover.FORMAT,
    nvrx_local.FORMAT,
    megatron.FORMAT,
    nemo.FORMAT,
    deepspeed.FORMAT,
    deepspeed_universal.FORMAT,
    hf_trainer.FORMAT,
    accelerate.FORMAT,
    lightning.FORMAT,
    torchtitan.FORMAT,
    ray_train.FORMAT,
    orbax.FORMAT,
    neuronx.FORMAT,
    composer.FORMAT,
    dcp.FORMAT,
    torch_save.FORMAT,
    safetensors_model.FORMAT,
)
"""Specific formats come before general ones: a torchtitan step is a DCP checkpoint as well."""

FORMATS: Final = {row.name: row for row in ROWS}


def format_named(name: str) -> CheckpointFormat:
    """Return the format called ``name``: of ``ROWS``, an installed package, or a ``pattern``.

    Raises:
        ConfigError: the format does not exist, the pattern is not valid, or the package that
            registers the format is broken.

    """
    if name in FORMATS:
        return FORMATS[name]
    if name.startswith(PREFIX):
        return pattern_format(name)
    group = PluginGroup.CHECKPOINT_FORMATS
    found = load_plugin(group, name, built_in=FORMATS)
    if not isinstance(found, CheckpointFormat):
        raise plugin_error(group, name, f"expected a CheckpointFormat, got {type(found).__name__}")
    if found.name != name:
        raise plugin_error(group, name, f'its format is named "{found.name}"')
    return found
