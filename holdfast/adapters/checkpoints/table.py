"""Registry of all checkpoint formats, in the order of detection."""

from typing import Final

from holdfast.adapters.checkpoints import (
    accelerate,
    dcp,
    deepspeed,
    hf_trainer,
    lightning,
    megatron,
    torch_save,
    torchtitan,
)
from holdfast.adapters.checkpoints.contract import CheckpointFormat
from holdfast.kit.plugins import load_plugin, plugin_error
from holdfast.model.names import PluginGroup

ROWS: Final[tuple[CheckpointFormat, ...]] = (
    megatron.FORMAT,
    deepspeed.FORMAT,
    hf_trainer.FORMAT,
    accelerate.FORMAT,
    lightning.FORMAT,
    torchtitan.FORMAT,
    dcp.FORMAT,
    torch_save.FORMAT,
)
"""Specific formats come before general ones: a torchtitan step is a DCP checkpoint as well."""

FORMATS: Final = {row.name: row for row in ROWS}


def format_named(name: str) -> CheckpointFormat:
    """Return the format called ``name``, one of ``ROWS`` or of an installed package.

    Raises:
        ConfigError: the format does not exist, or the package that registers it is broken.

    """
    if name in FORMATS:
        return FORMATS[name]
    group = PluginGroup.CHECKPOINT_FORMATS
    found = load_plugin(group, name, built_in=FORMATS)
    if not isinstance(found, CheckpointFormat):
        raise plugin_error(group, name, f"expected a CheckpointFormat, got {type(found).__name__}")
    if found.name != name:
        raise plugin_error(group, name, f'its format is named "{found.name}"')
    return found
