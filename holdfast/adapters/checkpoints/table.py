"""All checkpoint formats, in the order in which they are recognised."""

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
"""The particular before the general: a step of torchtitan is a DCP checkpoint as well."""

FORMATS: Final = {row.name: row for row in ROWS}


def format_named(name: str) -> CheckpointFormat:
    """The format of that name: one of ``ROWS``, or that of an installed package.

    Raises:
        ConfigError: there is none, or the package that registers it is broken.

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
